"""How the command line writes times, amounts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone, tzinfo
from typing import Any
from unicodedata import east_asian_width

_UTC_TEXT = re.compile(r"(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d) UTC")


def parse_time(value: Any) -> datetime | None:
    """An RFC 3339 time, or None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(
            re.sub(r"\.(\d{1,6})\d*", _micros, value).replace("Z", "+00:00")
        )
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _micros(match: re.Match[str]) -> str:
    return "." + match[1].ljust(6, "0")


class Times:
    """Writes times in the reader's zone, without the date on the day itself.

    Parameters
    ----------
    now : datetime or None
        By the governor's clock; None where it is not known.
    zone : tzinfo or None
        None is the zone of this machine.
    """

    def __init__(self, now: datetime | None, zone: tzinfo | None = None) -> None:
        self.now, self.zone = now, zone

    def at(self, value: Any) -> str:
        """A point in time, ``-`` where there is none."""
        moment = value if isinstance(value, datetime) else parse_time(value)
        if moment is None:
            return "-"
        local = moment.astimezone(self.zone)
        if self.now is not None and local.date() == self.now.astimezone(self.zone).date():
            return f"{local:%H:%M}"
        return f"{local:%Y-%m-%d %H:%M}"

    def away(self, value: Any) -> str:
        """How far off a point in time is: ``in 12 min``, ``8 min ago``; empty if not known."""
        moment = parse_time(value)
        if moment is None or self.now is None:
            return ""
        seconds = (moment - self.now).total_seconds()
        span = show_seconds(abs(seconds))
        return f"in {span}" if seconds >= 0 else f"{span} ago"

    def local(self, text: str) -> str:
        """A sentence of the governor with its UTC times turned into local ones."""

        def turned(match: re.Match[str]) -> str:
            date = match[1] or (
                f"{self.now.astimezone(timezone.utc):%Y-%m-%d}" if self.now else None
            )
            moment = parse_time(f"{date}T{match[2]}:00Z") if date else None
            return self.at(moment) if moment else match[0]

        return _UTC_TEXT.sub(turned, text)


def show_seconds(seconds: float) -> str:
    """A span in its two largest units.

    >>> show_seconds(50), show_seconds(720), show_seconds(5400), show_seconds(200000)
    ('50 s', '12 min', '1 h 30 min', '2 d 7 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    for size, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    raise AssertionError("every span is below a minute, an hour or above")


def number(value: Any) -> str:
    """A number of GPUs; ``?`` where it is unknown, which is never zero.

    >>> number(2), number(2.0), number(0.25), number(None)
    ('2', '2', '0.25', '?')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "?"
    return f"{value:g}"


def plain(value: Any) -> str:
    """A name from outside on one line, without what would steer a terminal."""
    return "".join(c if c.isprintable() else "�" for c in str(value))


def width(text: str) -> int:
    """Columns of a terminal that a text takes: Chinese characters take two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], right: str = "") -> list[str]:
    """Lines of a table with aligned columns; ``right`` names the columns flushed right.

    >>> table(["name", "gpus"], [["ann", 2], ["bo", 10]], right="gpus")
    ['name  gpus', 'ann      2', 'bo      10']
    """
    cells = [[*headers], *([plain(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(headers))]
    to_right = right.split()
    lines = []
    for row in cells:
        parts = []
        for head, cell, size in zip(headers, row, widths, strict=True):
            gap = " " * (size - width(cell))
            parts.append(gap + cell if head in to_right else cell + gap)
        lines.append("  ".join(parts).rstrip())
    return lines
