"""How the fields of the policy are written: units, words, and names that the language reserves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from allotment_hub.domain import amounts
from allotment_hub.domain.policy import (
    Approval,
    Flavor,
    Limits,
    Quota,
    ReclaimRule,
    Tenant,
    WorkClass,
)

from .problems import one_of

ALIASES = {"class_": "class", "for_": "for"}
"""Field names that are keywords of the language, and how the file writes them."""

WORDS: Mapping[tuple[type, str], Mapping[str, Any]] = {
    (ReclaimRule, "idle_after"): {"off": None},
    (ReclaimRule, "unused_after"): {"off": None},
    (Flavor, "sharing"): {"off": None},
    (Tenant, "budget"): {"off": None},
    (WorkClass, "max_wait"): {"off": None},
    (WorkClass, "objective"): {"off": None},
    (WorkClass, "approval"): {"off": None},
    (Quota, "ceiling"): {"unlimited": amounts.UNLIMITED},
    (Limits, "gpus_per_user"): {"unlimited": None},
    (Limits, "queued_per_user"): {"unlimited": None},
    (Approval, "running_at_once"): {"unlimited": None},
}
"""Words that stand for a value, by class and field. No other field takes a word."""

_MICRO = 1_000_000


def parse_cpus(value: Any) -> int:
    """Read a number of CPUs as milli-CPUs.

    >>> parse_cpus(32), parse_cpus(0.5)
    (32000, 500)
    """
    try:
        return amounts.parse_gpus(value)
    except amounts.AmountError as error:
        message = str(error).replace("a number of GPUs", "a number of CPUs")
        raise amounts.AmountError(message.replace("; write 'unlimited'", "")) from None


def show_memory(size: int) -> str | int:
    """Bytes with the largest binary unit that divides them, else as a number of bytes.

    >>> show_memory(80 * 2**30), show_memory(1001)
    ('80GiB', 1001)
    """
    return size if size % 1024 else amounts.show_memory(size)


def show_rate(micro: int) -> int | float:
    """Millionths of the currency unit as the price that the file shows: 12500000 → 12.5.

    >>> show_rate(12_500_000), show_rate(4_000_000)
    (12.5, 4)
    """
    return micro // _MICRO if micro % _MICRO == 0 else float(Decimal(micro) / _MICRO)


@dataclasses.dataclass(frozen=True, slots=True)
class Notation:
    """How one kind of quantity is read, shown and described."""

    parse: Callable[[Any], int]
    show: Callable[[int], Any]
    right: str


UNITS: Mapping[str, Notation] = {
    "gpus": Notation(
        amounts.parse_gpus,
        amounts.show_gpus,
        "a number of GPUs from zero up with at most three decimals, such as 2 or 0.25",
    ),
    "cpus": Notation(
        parse_cpus,
        amounts.show_gpus,
        "a number of CPUs from zero up, such as 32 or 0.5",
    ),
    "duration": Notation(
        amounts.parse_duration,
        amounts.show_duration,
        "a duration such as 90s, 20m, 4h, 7d or a whole number of seconds",
    ),
    "memory": Notation(
        amounts.parse_memory,
        show_memory,
        "an amount of memory such as 80GiB, 512MiB or a whole number of bytes",
    ),
    "rate": Notation(
        amounts.parse_rate,
        show_rate,
        "a price per GPU-hour from zero up with at most six decimals, such as 12.5",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a class of the policy, as the file has it."""

    name: str
    key: str
    hint: Any
    """The type without its unit and without None."""
    unit: Notation | None
    optional: bool
    required: bool
    default: Any
    words: Mapping[str, Any]


def fields_of(cls: Any) -> Mapping[str, FieldSpec]:
    """Fields of a policy class by their key in the file, in the order of the class."""
    return _fields_of(cls)


@cache
def _fields_of(cls: Any) -> Mapping[str, FieldSpec]:
    hints = get_type_hints(cls, include_extras=True)
    specs = (_spec(cls, item, hints[item.name]) for item in dataclasses.fields(cls))
    return {spec.key: spec for spec in specs}


def _spec(cls: type, item: dataclasses.Field[Any], hint: Any) -> FieldSpec:
    inner, optional = _without_none(hint)
    unit = None
    if get_origin(inner) is Annotated:
        inner, *marks = get_args(inner)
        unit = next(UNITS[mark.name] for mark in marks if isinstance(mark, amounts.Unit))
    factory = item.default_factory
    required = item.default is dataclasses.MISSING and factory is dataclasses.MISSING
    default = None
    if not required:
        default = factory() if factory is not dataclasses.MISSING else item.default
    return FieldSpec(
        name=item.name,
        key=ALIASES.get(item.name, item.name),
        hint=inner,
        unit=unit,
        optional=optional,
        required=required,
        default=default,
        words=WORDS.get((cls, item.name), {}),
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    parts = [part for part in get_args(hint) if part is not NoneType]
    optional = len(parts) < len(get_args(hint))
    return (parts[0] if len(parts) == 1 else Union[tuple(parts)]), optional  # noqa: UP007 - built


def right(hint: Any, words: Mapping[str, Any] | None = None) -> str:
    """Say what a value of a type looks like.

    >>> right(int), right(Literal["warn", "refuse"])
    ('a whole number', 'warn or refuse')
    """
    return one_of((*_choices(hint), *(words or {})))


def _choices(hint: Any) -> tuple[str, ...]:
    origin = get_origin(hint)
    if origin is Literal:
        return tuple(str(choice) for choice in get_args(hint))
    if origin in (Union, UnionType):
        return tuple(choice for part in get_args(hint) for choice in _choices(part))
    if hint is bool:
        return ("true", "false")
    if origin is tuple:
        return (f"a list, each entry {right(get_args(hint)[0])}",)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return (f"a mapping with {one_of(fields_of(hint))}",)
    if origin is not None:
        return ("a mapping by name",)
    return ({int: "a whole number", float: "a number", str: "text"}[hint],)
