"""What is wrong in a file: where, what, and what would be right. All of it at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

Path = tuple["str | int", ...]
"""Keys and list positions from the top of the document to a value."""

Severity = Literal["error", "warning", "note"]

_PLAIN_KEY = re.compile(r"[^\s.\[\]\"'\\]+")
_SHOWN = 60
_LONGEST = 400


def printable(text: str) -> str:
    r"""Make a text safe to print on one line: control characters are spelt out.

    >>> printable("a\x1bb")
    'a\\x1bb'
    """
    safe = _escaped(text)
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def path_text(path: Path) -> str:
    """Write a path as people read it.

    >>> path_text(("tenants", "vision", "quotas", 0, "guarantee"))
    'tenants.vision.quotas[0].guarantee'
    >>> path_text(("tenants", "a b", "groups"))
    'tenants["a b"].groups'
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part) and part.isprintable() and len(part) <= _SHOWN:
            text += f".{part}" if text else part
        else:
            text += f'["{shown(part, quotes=False)}"]'
    return text


def shown(value: object, *, quotes: bool = True) -> str:
    r"""Show a value from a file safely: on one line, without control characters, not too long.

    >>> shown("a\nb"), shown(True), shown(10**70)
    ("'a\\nb'", 'true', '1000000000000000000000000… (71 characters)')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, int) and value.bit_length() > 4000:  # beyond what str() converts
        return "a number of more than a thousand digits"
    text = repr(value)
    if isinstance(value, str):
        text = _escaped(text)
        text = text if quotes else text[1:-1].replace('"', '\\"')
    if len(text) > _SHOWN:
        return f"{text[:25]}… ({len(text)} characters)"
    return text


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that was probably meant, or None.

    >>> nearest("garantee", ["pool", "guarantee", "ceiling"])
    'guarantee'
    """
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def one_of(names: Iterable[str], *, most: int = 12) -> str:
    """A list of choices in words, cut where it gets long.

    >>> one_of(["a", "b", "c"])
    'a, b or c'
    """
    listed = [name if len(name) <= _SHOWN else f"{name[:25]}…" for name in names]
    if not listed:
        return "none (there are none yet)"
    if len(listed) > most:
        return ", ".join(listed[:most]) + f" … ({len(listed)} in all)"
    return " or ".join([", ".join(listed[:-1]), listed[-1]] if listed[1:] else listed)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault or remark: ``path`` names the value, ``line`` counts from 1, None is unknown.

    ``severity`` is ``error`` (nothing is loaded), ``warning`` (probably not what was meant) or
    ``note`` (how a value that could be read in two ways was read).
    """

    path: str
    message: str
    line: int | None = None
    severity: Severity = "error"

    def as_dict(self) -> dict[str, object]:
        """Render in the shape of ``errors`` in REST; what is no error says how grave it is."""
        shape: dict[str, object] = {"path": self.path, "line": self.line, "message": self.message}
        return shape if self.severity == "error" else {**shape, "severity": self.severity}

    def text(self, source: str) -> str:
        """Write as one line: ``file:line: path: message``."""
        where = source if self.line is None else f"{source}:{self.line}"
        return ": ".join(part for part in (where, self.path, self.message) if part)


class FileError(ValueError):
    """A file that cannot be used.

    Attributes
    ----------
    errors : list of dict
        ``{path, line, message}`` of every error found, in the order of the file.
    problems : tuple of Problem
        The same as objects.
    source : str
        Name of the file, or what stands for it.

    Class tree::

        ValueError
        └── FileError
            ├── PolicyError
            └── InventoryError
    """

    def __init__(self, problems: Iterable[Problem], source: str) -> None:
        self.problems = tuple(problems)
        self.source = source
        self.errors = [problem.as_dict() for problem in self.problems]
        super().__init__("\n".join(problem.text(source) for problem in self.problems))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems, self.source)


class PolicyError(FileError):
    """A policy that is refused; nothing of it is applied."""


class InventoryError(FileError):
    """A declared inventory that is refused."""


@dataclass(slots=True)
class Problems:
    """Collects problems while a document is read, and which values they are about."""

    found: list[tuple[Path, Problem]] = field(default_factory=list)
    _wrong: set[Path] = field(default_factory=set)
    _around: set[Path] = field(default_factory=set)

    def error(self, path: Path, message: str) -> None:
        """Add an error, unless the value or a part around it is already known to be wrong."""
        if not self.covers(path):
            self._add(path, message, "error")
            self._wrong.add(path)
            self._around.update(path[:length] for length in range(len(path) + 1))

    def warn(self, path: Path, message: str) -> None:
        """Add a warning: loaded, but probably not what was meant."""
        self._add(path, message, "warning")

    def note(self, path: Path, message: str) -> None:
        """Add a note: how a value was understood."""
        self._add(path, message, "note")

    def covers(self, path: Path) -> bool:
        """Whether an error about this value, or one that it lies in, was found before."""
        return any(path[:length] in self._wrong for length in range(len(path) + 1))

    def touches(self, path: Path) -> bool:
        """Whether an error was found at, around or inside a value."""
        return path in self._around or self.covers(path)

    @property
    def failed(self) -> bool:
        """Whether there is at least one error."""
        return bool(self._wrong)

    def _add(self, path: Path, message: str, severity: Severity) -> None:
        problem = Problem(path_text(path), printable(message), None, severity)
        self.found.append((path, problem))
