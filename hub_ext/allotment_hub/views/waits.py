"""The report on the waits of a period: distributions, surges, findings and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from allotment_hub.domain.events import Event
from allotment_hub.domain.findings import Finding, taken_in_turns
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.waiting import Surge, Wait, distribution, grouped, surges, waits_of

from .findings import finding_view
from .frame import Wall
from .samples import held_story, wait_story

COUNTS = ("granted", "waiting", "gave_up")


def waits_report(
    events: Sequence[Event],
    since: int,
    until: int,
    wall: Wall,
    *,
    samples: bool = False,
    present: Sequence[Finding] = (),
) -> dict[str, Any]:
    """Tell about the waits that overlap a period, from the whole history.

    Parameters
    ----------
    events : sequence of Event
        The history from its beginning, in its order.
    since, until : int
        The period, in steady milliseconds; ``until`` is not included.
    samples : bool
        Whether to tell the longest waited, longest held and hardest to fit step by step.
    present : sequence of Finding
        What was found in the state at the end, to be told besides.
    """
    known = [event for event in events if event.at < until]
    waits = [w for w in waits_of(known, until) if w.ends > since or w.begins >= since]
    report: dict[str, Any] = {
        "since": wall(since),
        "until": wall(until),
        "all": _shown(waits),
        **{
            f"by_{by}": {name: _shown(group) for name, group in grouped(waits, by).items()}
            for by in ("tenant", "class", "shape")
        },
        "surges": [_surge(one, wall) for one in surges(waits, since, until)],
        "findings": [
            finding_view(one, wall)
            for one in (*present, *taken_in_turns(e for e in known if e.at >= since))
        ],
    }
    if samples:
        report["samples"] = _samples(known, waits, since, until, wall)
    return report


def _shown(waits: Sequence[Wait]) -> dict[str, Any]:
    return {
        key if key in COUNTS else f"{key}_s": (
            value if key in COUNTS or value is None else value / 1000
        )
        for key, value in asdict(distribution(waits)).items()
    }


def _surge(surge: Surge, wall: Wall) -> dict[str, Any]:
    return {
        "since": wall(surge.begins),
        "until": wall(surge.ends),
        "waited_gpu_s": surge.waited / 1_000_000,
        "usual_gpu_s": surge.usual / 1_000_000,
        "by": [
            {
                "tenant": tenant,
                "class": class_,
                "asked_gpus": asked / 1000,
                "usual_gpus": usual / 1000,
            }
            for tenant, class_, asked, usual in surge.by
        ],
    }


def _samples(
    events: Sequence[Event], waits: Sequence[Wait], since: int, until: int, wall: Wall
) -> dict[str, Any]:
    waited = [wait for wait in waits if wait.length > 0]
    longest = max(waited, key=lambda wait: (wait.length, wait.request.id), default=None)
    hardest = max(waited, key=_hardness, default=None)
    lease = _longest_held(events, since, until)
    return {
        "longest_waited": None if longest is None else wait_story(events, longest, wall),
        "longest_held": None if lease is None else held_story(events, lease, until, wall),
        "hardest_to_fit": None if hardest is None else wait_story(events, hardest, wall),
    }


def _hardness(wait: Wait) -> tuple[int, int, int, str]:
    """Waited longest for its shape; then the largest; then the longest."""
    return wait.spent_on("shape"), wait.request.ask.gpus, wait.length, wait.request.id


def _longest_held(events: Sequence[Event], since: int, until: int) -> Lease | None:
    last: dict[str, Lease] = {}
    for event in events:
        if isinstance(event.record, Lease):
            last[event.record.id] = event.record

    def ends(lease: Lease) -> int:
        return until if lease.released_at is None else lease.released_at

    held = [lease for lease in last.values() if ends(lease) > since]
    return max(held, key=lambda lease: (ends(lease) - lease.granted_at, lease.id), default=None)
