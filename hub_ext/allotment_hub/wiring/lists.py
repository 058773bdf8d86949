"""Lists of a hub's configuration: read and added to, never replaced."""

from __future__ import annotations

from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue


class ConfigureError(ValueError):
    """What was given to ``configure()`` cannot be; the message says what would be right."""


def listed(section: Config, name: str) -> list[Any]:
    """Return a list as configured so far."""
    value = section.get(name, [])
    if isinstance(value, LazyConfigValue):
        value = value.get_value([])
    return list(value)


def append(section: Config, name: str, value: Any, *, first: bool = False) -> None:
    """Add an entry, at the end unless it is to come first."""
    there = listed(section, name)
    section[name] = [value, *there] if first else [*there, value]
