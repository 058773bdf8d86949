"""Patterns of a scenario's ``is:`` against what was found, and where they part.

A mapping matches any mapping that has at least its keys; a list matches when each pattern in it
matches some element; a mapping of operators (``>=``, ``<=``, ``<``, ``>``, ``==``, ``in``,
``match``, ``not``) compares; anything else has to be equal. A number never equals a boolean.

Moments and durations are read before they are compared: a found moment (:class:`Moment`) equals
the offset ``40m`` as well as the time of day it stands for, and ``240m`` equals ``4h``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allotment_hub.clock import parse_time
from allotment_hub.domain.amounts import AmountError, parse_duration

MAX_REGEX = 500
"""Characters that a regular expression in a pattern may have."""


class PatternError(ValueError):
    """A pattern that can never be meant: an unknown operator, a broken regular expression."""


class Moment(str):
    """A time as people see it (RFC 3339) that knows its offset from the start of the timeline.

    Parameters
    ----------
    text : str
        The time of day, as REST shows it.
    offset_ms : int
        Milliseconds since the start of the timeline.
    """

    __slots__ = ("offset_ms",)
    offset_ms: int

    def __new__(cls, text: str, offset_ms: int) -> Moment:
        """Make a string that carries its offset."""
        made = super().__new__(cls, text)
        made.offset_ms = offset_ms
        return made


class LeaseName(str):
    """The id of a lease, which answers to the name of its request as well.

    Parameters
    ----------
    text : str
        The id of the lease.
    request : str
        The name of its request in the timeline.
    """

    __slots__ = ("request",)
    request: str

    def __new__(cls, text: str, request: str) -> LeaseName:
        """Make a string that knows its request."""
        made = super().__new__(cls, text)
        made.request = request
        return made


class _Missing:
    """Stands for a key that is not there: it matches nothing except ``{"not": …}``."""

    def __repr__(self) -> str:
        return "(not there)"


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where a pattern and the finding part: the path into it, what was wanted and found."""

    path: str
    wanted: Any
    found: Any


def mismatches(pattern: Any, found: Any, path: str = "") -> list[Mismatch]:
    """Return every place where ``found`` does not match ``pattern``; empty when it matches.

    >>> mismatches({"state": "queued"}, {"state": "queued", "user": "ann"})
    []
    >>> mismatches({"gpus": {">=": 2}}, {"gpus": 1})
    [Mismatch(path='gpus', wanted={'>=': 2}, found=1)]
    """
    if isinstance(pattern, Mapping):
        if is_comparison(pattern):
            holds = all(OPERATORS[str(key)](value, found) for key, value in pattern.items())
            return [] if holds else [Mismatch(path, dict(pattern), found)]
        return _mapping(pattern, found, path)
    if isinstance(pattern, list):
        return _list(pattern, found, path)
    return [] if _equal(pattern, found) else [Mismatch(path, pattern, found)]


def matches(pattern: Any, found: Any) -> bool:
    """Whether ``found`` matches ``pattern``."""
    return not mismatches(pattern, found)


def is_comparison(pattern: Mapping[Any, Any]) -> bool:
    """Whether a mapping consists of operators only; the empty one matches any mapping."""
    return bool(pattern) and all(key in OPERATORS for key in pattern)


def check_pattern(pattern: Any, path: str = "is") -> None:
    """Refuse a pattern that cannot be meant, before anything is played.

    Raises
    ------
    PatternError
        For a mapping that mixes operators and keys, an unknown operator, a regular expression
        that does not compile, or ``in`` without a list.
    """
    if isinstance(pattern, Mapping):
        _check_mapping(pattern, path)
    elif isinstance(pattern, list):
        for index, item in enumerate(pattern):
            check_pattern(item, f"{path}[{index}]")


def _check_mapping(pattern: Mapping[Any, Any], path: str) -> None:
    for key, value in pattern.items():
        if not isinstance(key, str):
            raise PatternError(f"{path}: the key {key!r} is not text")
        if key not in OPERATORS and re.fullmatch(r"[=<>!~]+", key):
            raise PatternError(f"{path}: unknown operator {key!r}; operators: {_operators()}")
        if key in OPERATORS and len({k in OPERATORS for k in pattern}) == 2:
            raise PatternError(f"{path}: {key!r} stands beside keys; put the comparison under one")
        if key == "match":
            _check_regex(value, path)
        elif key == "in" and not isinstance(value, list):
            raise PatternError(f"{path}: 'in' takes a list, not {value!r}")
        elif key not in ("==", "in"):
            check_pattern(value, f"{path}.{key}")


def _check_regex(value: Any, path: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_REGEX:
        raise PatternError(
            f"{path}: 'match' takes a regular expression of ≤ {MAX_REGEX} characters"
        )
    try:
        re.compile(value)
    except re.error as error:
        raise PatternError(f"{path}: {value!r} is no regular expression: {error}") from None


def _operators() -> str:
    return ", ".join(OPERATORS)


def _mapping(pattern: Mapping[Any, Any], found: Any, path: str) -> list[Mismatch]:
    if not isinstance(found, Mapping):
        return [Mismatch(path, dict(pattern), found)]
    parted: list[Mismatch] = []
    for key, wanted in pattern.items():
        where = f"{path}.{key}" if path else str(key)
        parted += mismatches(wanted, found.get(key, MISSING), where)
    return parted


def _list(pattern: list[Any], found: Any, path: str) -> list[Mismatch]:
    if not _is_list(found):
        return [Mismatch(path, pattern, found)]
    parted: list[Mismatch] = []
    for index, wanted in enumerate(pattern):
        if not any(matches(wanted, item) for item in found):
            parted.append(Mismatch(f"{path}[{index}]", wanted, list(found)))
    return parted


def _is_list(found: Any) -> bool:
    return isinstance(found, Sequence) and not isinstance(found, str)


def _equal(wanted: Any, found: Any) -> bool:
    if found is MISSING:
        return False
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return wanted.keys() == found.keys() and all(_equal(wanted[k], found[k]) for k in wanted)
    if _is_list(wanted) and _is_list(found):
        return len(wanted) == len(found) and all(map(_equal, wanted, found))
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None or found is None:
        return wanted is found
    if isinstance(found, LeaseName):
        return wanted in (str(found), found.request)
    pair = _quantities(wanted, found)
    return bool(pair[0] == pair[1]) if pair else wanted == found


def _exactly(wanted: Any, found: Any) -> bool:
    """``==``: the same elements in the same order, where each may itself be a pattern."""
    if isinstance(wanted, list):
        return _is_list(found) and len(wanted) == len(found) and all(map(matches, wanted, found))
    return _equal(wanted, found)


def _quantities(wanted: Any, found: Any) -> tuple[Any, Any] | None:
    """Both sides as numbers where they measure the same kind of thing, else None."""
    if isinstance(found, Moment):
        return _moments(wanted, found)
    if isinstance(wanted, (int, float)) and isinstance(found, (int, float)):
        return wanted, found
    if isinstance(found, str) and isinstance(wanted, (str, int)):
        try:
            return parse_duration(wanted), parse_duration(found)
        except AmountError:
            pass
    if isinstance(found, str) and isinstance(wanted, str):
        return wanted, found
    return None


def _moments(wanted: Any, found: Moment) -> tuple[Any, Any] | None:
    try:
        return parse_duration(wanted), found.offset_ms
    except AmountError:
        pass
    if not isinstance(wanted, str):
        return None
    try:
        return parse_time(wanted), parse_time(str(found))
    except ValueError:
        return wanted, str(found)


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(wanted: Any, found: Any) -> bool:
        if found is MISSING or isinstance(wanted, bool) or isinstance(found, bool):
            return False
        pair = _quantities(wanted, found)
        return pair is not None and test(pair[1], pair[0])

    return holds


def _in(wanted: Any, found: Any) -> bool:
    return isinstance(wanted, list) and any(matches(item, found) for item in wanted)


def _regex(wanted: Any, found: Any) -> bool:
    return isinstance(found, str) and re.search(str(wanted), found) is not None


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": _compare(lambda found, wanted: bool(found >= wanted)),
    "<=": _compare(lambda found, wanted: bool(found <= wanted)),
    ">": _compare(lambda found, wanted: bool(found > wanted)),
    "<": _compare(lambda found, wanted: bool(found < wanted)),
    "==": _exactly,
    "in": _in,
    "match": _regex,
    "not": lambda wanted, found: not matches(wanted, found),
}
