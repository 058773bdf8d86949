"""Quantities: milli-GPUs, bytes and milliseconds, read from and written as text without loss."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

MILLI = 1000
"""Milli-GPUs in one whole GPU."""

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MAX_GPUS = 1_000_000
"""No pool has more GPUs than this: a larger number in a policy or a request is refused."""

MAX_DURATION = 3660 * DAY
MAX_MEMORY = 1 << 60

UNLIMITED = MAX_GPUS * MILLI
"""What the word ``unlimited`` stands for in a ceiling: everything that the pool has."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks a field of the policy with the notation that its value is written in."""

    name: str


Gpus = Annotated[int, Unit("gpus")]
Duration = Annotated[int, Unit("duration")]
Memory = Annotated[int, Unit("memory")]
Rate = Annotated[int, Unit("rate")]


class AmountError(ValueError):
    """A quantity that cannot be read; the message says what would be right."""


_DURATION = re.compile(r"([0-9]{1,12})(s|m|h|d)")
_DURATION_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)")
_MEMORY_UNITS = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


def parse_gpus(value: Any) -> int:
    """Read a number of GPUs as milli-GPUs.

    Parameters
    ----------
    value : int, float, Decimal or str
        A number from 0 to 1,000,000 with at most three decimals, or ``"unlimited"``.

    Raises
    ------
    AmountError
        For booleans, NaN, negative numbers, more than three decimals or more than the bound.

    >>> parse_gpus(2), parse_gpus(0.25), parse_gpus("1.5")
    (2000, 250, 1500)
    """
    if value == "unlimited" and isinstance(value, str):
        return UNLIMITED
    number = _decimal(value, "a number of GPUs such as 2 or 0.25")
    milli = number * MILLI
    if milli != milli.to_integral_value():
        raise AmountError(f"{value!r} has more than three decimals; write it as 0.125")
    if number > MAX_GPUS:
        raise AmountError(f"{value!r} is above the bound of {MAX_GPUS:,} GPUs; write 'unlimited'")
    return int(milli)


def parse_duration(value: Any) -> int:
    """Read a duration as milliseconds: ``90s``, ``20m``, ``4h``, ``7d`` or whole seconds.

    >>> parse_duration("20m"), parse_duration(90)
    (1200000, 90000)
    """
    right = "write a duration as 90s, 20m, 4h, 7d or a whole number of seconds"
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise AmountError(f"{value!r} is not a duration; {right}")
        result = int(match[1]) * _DURATION_UNITS[match[2]]
    elif isinstance(value, int) and not isinstance(value, bool):
        result = value * SECOND
    else:
        raise AmountError(f"{value!r} is not a duration; {right}")
    if not 0 <= result <= MAX_DURATION:
        raise AmountError(f"{value!r} is outside 0 to {MAX_DURATION // DAY} days")
    return result


def parse_memory(value: Any) -> int:
    """Read an amount of memory as bytes: ``80GiB``, ``512MiB`` or whole bytes.

    >>> parse_memory("80GiB") == 80 * 2**30
    True
    """
    right = "write memory as 80GiB, 512MiB or a whole number of bytes"
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value)
        if match is None:
            raise AmountError(f"{value!r} is not an amount of memory; {right}")
        result = int(Decimal(match[1]) * _MEMORY_UNITS[match[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        result = value
    else:
        raise AmountError(f"{value!r} is not an amount of memory; {right}")
    if not 0 <= result <= MAX_MEMORY:
        raise AmountError(f"{value!r} is outside 0 to {MAX_MEMORY} bytes")
    return result


def parse_rate(value: Any) -> int:
    """Read a price per GPU-hour as millionths of the currency unit."""
    number = _decimal(value, "a price per GPU-hour such as 12.5")
    micro = number * 1_000_000
    if micro != micro.to_integral_value() or number > 10**9:
        raise AmountError(f"{value!r} is not a price; at most six decimals and a thousand million")
    return int(micro)


def _decimal(value: Any, right: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise AmountError(f"{value!r} is not a number; write {right}")
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,40}(\.[0-9]{1,20})?", value):
        raise AmountError(f"{value!r} is not a number; write {right}")
    try:
        number = Decimal(str(value))
    except InvalidOperation:  # pragma: no cover - the types above always convert
        raise AmountError(f"{value!r} is not a number; write {right}") from None
    if not number.is_finite() or number < 0:
        raise AmountError(f"{value!r} is not a finite number from zero up; write {right}")
    return number


def show_gpus(milli: int) -> int | float:
    """Milli-GPUs as the number that people and REST see: 2000 → 2, 250 → 0.25."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def show_duration(ms: int) -> str:
    """Milliseconds in the shortest exact notation that :func:`parse_duration` reads.

    >>> show_duration(4 * HOUR), show_duration(90 * SECOND)
    ('4h', '90s')
    """
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms // SECOND}s"


def show_memory(size: int) -> str:
    """Bytes in the largest binary unit that divides them: ``80GiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
