"""Plain values into the classes of the policy, collecting everything that is wrong on the way.

Where a value is wrong, a stand-in takes its place, so that all the rest is still read and checked
and the author sees every fault at once. The stand-in never leaves this package: a document with
an error is refused whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from allotment_hub.domain.amounts import AmountError

from .notation import FieldSpec, fields_of, right
from .problems import Path, Problems, nearest, one_of, shown

T = TypeVar("T")

_MAX_DIGITS = 40


def read(cls: type[T], data: Any, problems: Problems, path: Path = ()) -> T:
    """Read a mapping as an instance of a class of the policy.

    Parameters
    ----------
    cls : type
        A dataclass whose fields are described by :func:`~.notation.fields_of`.
    data : Any
        What the document holds at ``path``.
    problems : Problems
        Takes every error; the result is usable only where none was added.
    """
    specs = fields_of(cls)
    if not isinstance(data, Mapping):
        problems.error(path, _wrong(data, right(cls)))
        data = {}
    for key in data:
        if key not in specs:
            problems.error((*path, str(key)), _unknown(str(key), cls))
    values = {
        spec.name: _field(spec, data, problems, (*path, key))
        for key, spec in specs.items()
        if key in data or spec.required
    }
    return cls(**values)


def _unknown(key: str, cls: Any) -> str:
    known = fields_of(cls)
    meant = nearest(key, known)
    if meant is not None:
        return f"is not a known key; did you mean '{meant}'?"
    for spec in known.values():
        inner = spec.hint
        if get_origin(inner) is tuple:
            inner = get_args(inner)[0]
        deeper = nearest(key, fields_of(inner)) if dataclasses.is_dataclass(inner) else None
        if deeper is not None:
            return f"is not a known key; did you mean '{deeper}', which belongs in '{spec.key}'?"
    return f"is not a known key; known here: {one_of(known, most=20)}"


def _field(spec: FieldSpec, data: Mapping[str, Any], problems: Problems, path: Path) -> Any:
    if spec.key not in data:
        text = spec.unit.right if spec.unit else right(spec.hint, spec.words)
        problems.error(path, f"is missing; write {text}")
        return _stand_in(spec)
    value = data[spec.key]
    if isinstance(value, str) and value in spec.words:
        return spec.words[value]
    if value is None:
        problems.error(path, _empty(spec))
        return _stand_in(spec)
    if spec.unit is not None:
        return _quantity(spec, value, problems, path)
    result = _value(spec.hint, value, problems, path, spec.words)
    return _stand_in(spec) if result is _BAD else result


def _empty(spec: FieldSpec) -> str:
    if spec.words:
        return f"is empty; write {one_of(spec.words)} or a value, or leave the key out"
    if spec.unit is None and spec.hint is not str:
        bare = "[]" if get_origin(spec.hint) is tuple else "{}"
        if dataclasses.is_dataclass(spec.hint) or get_origin(spec.hint) not in (None, Literal):
            return f"is empty; write {bare} or leave the key out"
    return "is empty; write a value or leave the key out"


def _stand_in(spec: FieldSpec) -> Any:
    if not spec.required:
        return spec.default
    if spec.unit is not None:
        return 0
    if dataclasses.is_dataclass(spec.hint):
        return read(cast("type[Any]", spec.hint), {}, Problems())
    if get_origin(spec.hint) is Literal:
        return get_args(spec.hint)[0]
    return () if get_origin(spec.hint) is tuple else ""


def _quantity(spec: FieldSpec, value: Any, problems: Problems, path: Path) -> Any:
    unit = spec.unit
    if unit is None:  # pragma: no cover - the caller has checked
        raise TypeError(spec.name)
    text = ", or ".join((unit.right, *spec.words))
    if value == "unlimited" or isinstance(value, (list, Mapping)) or _long(value):
        problems.error(path, _wrong(value, text))
        return _stand_in(spec)
    try:
        return unit.parse(value)
    except AmountError as error:
        message = _wrong(value, text) if isinstance(value, bool) else str(error)
        if "unlimited" not in spec.words:
            message = message.replace("; write 'unlimited'", "")
        if "off" in spec.words and not message.endswith("off"):
            message += ", or off"
        problems.error(path, message)
        return _stand_in(spec)


def _long(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() > 4 * _MAX_DIGITS
    return isinstance(value, str) and len(value) > _MAX_DIGITS


class _Bad:
    """Marks a value that could not be read."""


_BAD = _Bad()


def _value(
    hint: Any,
    value: Any,
    problems: Problems,
    path: Path,
    words: Mapping[str, Any] | None = None,
) -> Any:
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint):
        return _nested(hint, value, problems, path, words)
    if origin is tuple:
        return _sequence(get_args(hint)[0], value, problems, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(get_args(hint)[1], value, problems, path)
    try:
        return _adapter(hint).validate_python(value, strict=True)
    except ValidationError:
        problems.error(path, _wrong(value, right(hint, words)) + _quoted(hint, value))
        return _BAD


def _nested(
    hint: Any, value: Any, problems: Problems, path: Path, words: Mapping[str, Any] | None
) -> Any:
    if isinstance(value, Mapping):
        return read(hint, value, problems, path)
    problems.error(path, _wrong(value, right(hint, words)))
    return _BAD


def _sequence(item: Any, value: Any, problems: Problems, path: Path) -> Any:
    if not isinstance(value, (list, tuple)):
        problems.error(path, _wrong(value, right(tuple[item, ...])) + _listed(value))
        return _BAD
    read_items = [_value(item, one, problems, (*path, at)) for at, one in enumerate(value)]
    return tuple(_placeholder(item) if one is _BAD else one for one in read_items)


def _mapping(item: Any, value: Any, problems: Problems, path: Path) -> Any:
    if not isinstance(value, Mapping):
        problems.error(path, _wrong(value, "a mapping by name"))
        return _BAD
    result = {}
    for key, one in value.items():
        if not isinstance(key, str):
            problems.error(path, f"has the key {shown(key)}, which is not text; put it in quotes")
            continue
        found = _value(item, one, problems, (*path, key))
        result[key] = _placeholder(item) if found is _BAD else found
    return result


def _placeholder(item: Any) -> Any:
    if dataclasses.is_dataclass(item):
        return read(cast("type[Any]", item), {}, Problems())
    return 0 if item is int else () if get_origin(item) is tuple else ""


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _wrong(value: Any, text: str) -> str:
    if value is None:
        return f"is empty; write {text}"
    return f"is {shown(value)}; write {text}"


def _quoted(hint: Any, value: Any) -> str:
    """Remark on a number or a switch where text is meant: it needs quotes."""
    if hint is str and isinstance(value, (bool, int, float)):
        return f" in quotes: '{shown(value)}'"
    return ""


def _listed(value: Any) -> str:
    plain = isinstance(value, str) and value.isprintable() and len(value) < _MAX_DIGITS
    return f", such as [{value}]" if plain else ""
