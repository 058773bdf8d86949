"""What the commands share: their two ways to fail, JSON, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


class UsageError(Exception):
    """Wrong usage or input (exit code 2); the text says what would be right, one line a fault."""


class CheckFailed(Exception):
    """The thing asked about is not so (exit code 1); the text says why."""


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out rows in columns, as wide as their widest cell.

    >>> print(table(["no", "by"], [[1, "ann"], [12, None]]))
    no  by
    1   ann
    12  -
    """
    cells = [list(headers), *([_cell(one) for one in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(headers))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
             for row in cells)  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    text = "-" if value is None else str(value)
    return "".join(character if character.isprintable() else "?" for character in text)
