"""What the kit shows: items with input, expectation, criterion of failure, mark and weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, get_args

from allotment_hub.policyfile.document import read_document

Mark = Literal["must", "plus", "not needed"]

PARTS = (
    "steps", "resource portrait", "multi-tenant queue", "training", "inference",
    "failure and recovery", "what people see",
)  # fmt: skip
"""The six steps, the five groups, and what is seen of them, in the order in which they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that is shown.

    Parameters
    ----------
    scenario : str or None
        Name of the file that is played; None cannot be shown yet.
    not_yet : str
        What is missing; an item that has it is never passed.
    weight : int
        Its part of the score, 0 and up.
    eyes : mapping
        User name to the name of its waiting request: whose view is looked at in the end.
    """

    id: str
    part: str
    title: str
    mark: Mark
    weight: int
    input: str
    expected: str
    fails_when: str
    scenario: str | None = None
    not_yet: str = ""
    eyes: Mapping[str, str] = field(default_factory=dict)


def kit() -> Any:  # Traversable has no name that all supported versions of Python share
    """The folder of the catalogue, the scenarios, and the pool and rules they are played on."""
    return resources.files(__package__) / "kit"


def read_kit() -> tuple[Item, ...]:
    """All items, in the order of the catalogue.

    Raises
    ------
    ValueError
        Where an entry has a mark or part that there is not, or nothing to play and no reason.
    """
    document: Any = read_document((kit() / "catalogue.yaml").read_text("utf-8")).data
    items = tuple(Item(**entry) for entry in document["items"])
    for item in items:
        if item.mark not in get_args(Mark) or item.part not in PARTS or item.weight < 0:
            raise ValueError(f"{item.id}: mark, part or weight is not one that there is")
        if item.scenario is None and not item.not_yet:
            raise ValueError(f"{item.id}: has neither a scenario nor a reason for having none")
    return items
