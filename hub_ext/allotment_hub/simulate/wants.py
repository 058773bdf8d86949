"""What a scenario asks for, strictly read into the integers that the rules work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from allotment_hub.domain.amounts import (
    AmountError,
    parse_duration,
    parse_gpus,
    parse_memory,
)


def read_wants(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Read the keys of a request.

    Raises
    ------
    AmountError
        Naming the key, what it has and what would be right.

    >>> read_wants({"gpus": 2, "duration": "4h"})
    {'gpus': 2000, 'duration': 14400000}
    """
    wants = {}
    for key, value in raw.items():
        if value is None:
            continue
        try:
            wants[key] = _READERS[key](value)
        except AmountError as error:
            raise AmountError(f"{key}: {error}") from None
    return wants


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise AmountError(f"{value!r} is not a count; write a whole number from 1")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise AmountError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 200:
        raise AmountError(f"{value!r} is not a text of at most 200 characters")
    return value


def _driver(value: Any) -> str:
    return _text(str(value) if isinstance(value, (int, float)) else value)


def _texts(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise AmountError(f"{value!r} is not a list of texts")
    return tuple(_text(item) for item in listed)


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        # YAML people write `interruptible: false`; `true` is the weaker of the other two.
        said = words[0] if value is False else words[1] if value is True else value
        if said not in words:
            raise AmountError(f"{value!r} is not one of {', '.join(words)}")
        return str(said)

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "tenant": _text,
    "class": _text,
    "pool": _text,
    "flavor": _text,
    "gpus": parse_gpus,
    "devices": _count,
    "nodes": _count,
    "min_memory": parse_memory,
    "min_driver": _driver,
    "same_node": _flag,
    "nvlink": _flag,
    "duration": parse_duration,
    "interruptible": _one_of("no", "checkpoint", "stateless"),
    "borrow": _flag,
    "start": _one_of("present", "always"),
    "cpus": parse_gpus,  # milli-CPUs in the same notation
    "memory": parse_memory,
    "tolerations": _texts,
}
