"""A finding as an operator reads it: a sentence, and the numbers in the shape of REST."""

from __future__ import annotations

from typing import Any

from allotment_hub.domain.findings import Finding

from .frame import Wall, duration, gpus

_GPUS = frozenset({"guaranteed", "in_service", "missing", "asked", "held", "free", "largest"})
_TIMES = frozenset({"until", "last"})
_SPANS = frozenset({"waited", "bound", "within"})

_SENTENCES = {
    "guarantees-above-capacity": "Guarantees of {subject} add up to {guaranteed} GPUs and "
    "{in_service} serve: {missing} are missing. No team gives anything of its guarantee up for it.",
    "priority-inversion": "{subject} (class {class}, {asked} GPUs) waits while work of a lower "
    "class that cannot be interrupted holds {held} GPUs of {flavor}, until {until} at the latest.",
    "starvation": "{subject}: {waiting} waiting beyond the bound of {bound}; the oldest, {request},"
    " waits for {waited} ({code}).",
    "fragmentation": "{free} of {in_service} GPUs of {subject} are free, at most {largest} on one "
    "node, and fit none of the shapes that wait: {shapes}.",
    "cycle-suspected": "{subject} was asked back {times} times within {within}: it may be taking "
    "turns with {by}.",
}


def finding_view(finding: Finding, wall: Wall) -> dict[str, Any]:
    """Show a finding.

    >>> finding_view(Finding(kind="cycle-suspected", subject="a", evidence=(("times", 3),
    ...     ("within", 1_800_000), ("by", ("b",)))), str)["text"]
    'a was asked back 3 times within 30m: it may be taking turns with b.'
    """
    evidence = {key: _shown(key, value, wall) for key, value in finding.evidence}
    words = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in evidence.items()
    }
    text = _SENTENCES[finding.kind].format(subject=finding.subject, **words)
    return {
        "kind": finding.kind, "subject": finding.subject, "text": text, "evidence": evidence,
    }  # fmt: skip


def _shown(key: str, value: Any, wall: Wall) -> Any:
    if key in _GPUS:
        return gpus(value)
    if key in _TIMES:
        return wall(value)
    if key in _SPANS:
        return duration(value)
    return list(value) if isinstance(value, tuple) else value
