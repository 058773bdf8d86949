"""A scenario's text, and the faults found in it: all of them at once, each with its line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from allotment_hub.policyfile import problems
from allotment_hub.policyfile.document import Document, DocumentError, read_document
from allotment_hub.policyfile.problems import FileError, Path, Problem, one_of, path_text


class ScenarioError(FileError):
    """A scenario file that cannot be played: wrong usage, with every fault that was found."""


def failed(source: str, message: str, line: int | None = None, path: str = "") -> ScenarioError:
    """Make the error for one fault."""
    return ScenarioError([Problem(path, message, line)], source)


@dataclass
class Sheet:
    """Plain data with its lines; faults are collected, then raised at once."""

    name: str
    document: Document
    found: list[Problem] = field(default_factory=list)

    @property
    def data(self) -> Any:
        """Mappings, lists, text, numbers, booleans and null."""
        return self.document.data

    def line(self, path: Path) -> int:
        """Return the line of the nearest part of a path that has one; 1 at the least."""
        return self.document.line(path) or 1

    def fault(self, path: Path, message: str) -> None:
        """Note a fault at a path."""
        self.found.append(Problem(path_text(path), message, self.line(path)))

    def check(self) -> None:
        """Raise what was noted.

        Raises
        ------
        ScenarioError
            When there is at least one fault.
        """
        if self.found:
            raise ScenarioError(self.found, self.name)


def read_sheet(text: str, name: str) -> Sheet:
    """Read YAML 1.2 or JSON with line numbers.

    Raises
    ------
    ScenarioError
        When the text is too long, not YAML, has a key twice or a tag of its own.
    """
    try:
        return Sheet(name, read_document(text))
    except DocumentError as error:
        raise ScenarioError([error.problem], name) from None


def nearest(word: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown word: the likeliest one meant, or all.

    >>> nearest("lese", ["lease", "request"])
    "; did you mean 'lease'?"
    """
    meant = problems.nearest(word, known)
    return (
        f"; did you mean {meant!r}?" if meant else f"; it may be {one_of(sorted(known), most=40)}"
    )
