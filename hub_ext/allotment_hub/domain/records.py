"""Changed copies of records: what nearly every decision makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")
Setter = Callable[[Any, Any], None]


@cache  # as many entries as there are kinds of records
def _parts(
    cls: Any,
) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Setter, ...], dict[str, Setter]]:
    names = [one.name for one in fields(cls)]
    setters = {name: getattr(cls, name).__set__ for name in names}
    return attrgetter(*names), tuple(setters.values()), setters


def replace(record: T, **changes: Any) -> T:
    """A copy of a record with other values in some fields.

    The same as :func:`dataclasses.replace` for frozen dataclasses with slots, at least two fields
    and no ``__post_init__``, in a third of the time: values go straight into the slots.

    >>> from .events import Switch
    >>> replace(Switch(name="paused", on=False), on=True)
    Switch(name='paused', on=True, text='', since=0)
    >>> replace(Switch(name="paused", on=False), off=True)
    Traceback (most recent call last):
    TypeError: Switch has no field 'off'
    """
    cls: Any = type(record)
    values, setters, by_name = _parts(cls)
    copy: T = object.__new__(cls)
    for put, value in zip(setters, values(record), strict=True):
        put(copy, value)
    for name, value in changes.items():
        if name not in by_name:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
        by_name[name](copy, value)
    return copy
