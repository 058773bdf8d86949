"""What a person asks for in ``user_options["allotment"]``, checked before anything is asked.

The REST interface of the hub stores ``user_options`` as they come and hands them on unseen, so
everything here is written for a body that somebody made by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allotment_hub.domain.amounts import AmountError, parse_duration, parse_gpus, parse_memory

MOST_TEXT = 64
MOST_NODES = 10_000


class WantsError(ValueError):
    """Something in ``user_options["allotment"]`` that cannot be; all of it at once.

    Parameters
    ----------
    errors : sequence of (path, message)
        ``path`` as in ``allotment.gpus``; ``message`` says what would be right.
    """

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{path}: {message}" for path, message in self.errors))


def check_wants(raw: Any) -> dict[str, Any] | None:
    """Check what is asked for, strictly; None is a session without GPUs.

    Parameters
    ----------
    raw : object
        The value of the key ``allotment``; None where there is no such key.

    Returns
    -------
    dict or None
        The same keys and notation, without the keys that are null.

    Raises
    ------
    WantsError

    >>> check_wants({"gpus": 2, "duration": "4h"})
    {'gpus': 2, 'duration': '4h'}
    >>> check_wants({"gpus": 0}) is None
    True
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise WantsError([("allotment", "write an object such as {gpus: 1}")])
    errors: list[tuple[str, str]] = []
    checked: dict[str, Any] = {}
    for key, value in raw.items():
        check = _CHECKS.get(key) if isinstance(key, str) else None
        if check is None:
            known = ", ".join(_CHECKS)
            errors.append((f"allotment.{_shown(key)}", f"unknown key; known are {known}"))
        elif value is not None:
            try:
                check(value)
            except ValueError as error:
                errors.append((f"allotment.{key}", str(error)))
            else:
                checked[key] = value
    if "gpus" not in checked and not any(path == "allotment.gpus" for path, _ in errors):
        if checked:
            errors.append(("allotment.gpus", "say how many: a number such as 1, or 0 for none"))
        elif not errors:
            return None
    if errors:
        raise WantsError(errors)
    return checked if checked["gpus"] > 0 else None


def _shown(key: Any) -> str:
    """Show a foreign key in a message: short, and on one line."""
    return ascii(key)[1:-1][:MOST_TEXT] if isinstance(key, str) else ascii(key)[:MOST_TEXT]


def _gpus(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("write a number such as 2 or 0.25")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("write a finite number such as 2 or 0.25")
    try:
        parse_gpus(value)
    except AmountError as error:
        # The value itself may be a thousand digits long: its message is cut by `_short`.
        raise ValueError(_short(error)) from None


def _whole(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise ValueError(f"write a whole number from 1 to {MOST_NODES:,}")


def _truth(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError("write true or false")


def _name(value: Any) -> None:
    right = f"write a name of 1 to {MOST_TEXT} printable characters without slashes"
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_TEXT:
        raise ValueError(right)
    if not value.isprintable() or "/" in value or value != value.strip():
        raise ValueError(right)


def _amount(parse: Callable[[Any], int]) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        try:
            if parse(value) <= 0:
                raise ValueError("write more than nothing")
        except AmountError as error:
            raise ValueError(_short(error)) from None

    return check


def _one_of(*words: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value not in words or not isinstance(value, str):
            raise ValueError(f"write one of {', '.join(words)}")

    return check


def _short(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 300 else f"{text[:120]} … {text[-120:]}"


_CHECKS: dict[str, Callable[[Any], None]] = {
    "gpus": _gpus,
    "tenant": _name,
    "class": _name,
    "pool": _name,
    "flavor": _name,
    "nodes": _whole,
    "min_memory": _amount(parse_memory),
    "same_node": _truth,
    "nvlink": _truth,
    "duration": _amount(parse_duration),
    "interruptible": _one_of("stateless", "checkpoint", "no"),
    "borrow": _truth,
    "start": _one_of("present", "always"),
}

FIELD = "allotment_"
"""Prefix of the fields in the spawn form."""


def wants_from_form(form: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a spawn form into what it asks of Allotment and the rest.

    Parameters
    ----------
    form : mapping of str to list of str
        As JupyterHub hands it over.

    Returns
    -------
    wants, rest : dict
        ``wants`` may hold things that :func:`check_wants` refuses; empty fields are left out.

    >>> wants_from_form({"allotment_gpus": ["1"], "allotment_flavor": [""], "image": ["x"]})
    ({'gpus': 1}, {'image': ['x']})
    """
    wants: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, values in form.items():
        if not key.startswith(FIELD):
            rest[key] = values
            continue
        value = values[-1] if values else ""
        if isinstance(value, str) and value.strip():
            name = key.removeprefix(FIELD)
            wants[name] = _from_text(name, value.strip())
    return wants, rest


def _from_text(name: str, text: str) -> Any:
    """Read a field's text as what its key takes; what cannot be read stays text, to be refused."""
    check = _CHECKS.get(name)
    if check is _truth:
        return {"on": True, "true": True, "false": False}.get(text, text)
    if check in (_gpus, _whole) and len(text) <= 20:
        for kind in (int, float) if check is _gpus else (int,):
            try:
                return kind(text)
            except ValueError:
                continue
    return text
