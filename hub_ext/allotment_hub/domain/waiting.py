"""Waits, from the events alone: how long, for which reasons, and what made demand surge.

Folds over a history. A *wait* is one stretch from entering the line to the grant or to leaving it;
work that is taken back and queued again waits once more. Times are milliseconds of the steady
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .events import Event
from .findings import shape
from .reasons import CATEGORY
from .requests import Reason, Request

Ending = Literal["granted", "parked", "cancelled", "expired", "rejected", "waiting"]

BEHIND = Reason(code="BehindInQueue", rule="ordering")
"""The reason of who is not first in its line: nothing is recorded of it but the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a wait with one reason."""

    begins: int
    ends: int
    reason: Reason


@dataclass(slots=True, kw_only=True)
class Wait:
    """One stretch of waiting. ``ends`` is the end of what is known where it still lasts."""

    request: Request
    begins: int
    ends: int
    ending: Ending = "waiting"
    spans: list[Span] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.ends - self.begins

    def spent_on(self, category: str) -> int:
        """Milliseconds for reasons of one category of the public list."""
        return sum(
            span.ends - span.begins
            for span in self.spans
            if CATEGORY.get(span.reason.code) == category
        )


def waits_of(events: Iterable[Event], until: int) -> list[Wait]:
    """All waits of a history in the order in which they began; those that last end at ``until``."""
    found: list[Wait] = []
    open_: dict[str, tuple[Wait, int, Reason]] = {}
    for event in events:
        request = event.record
        if not isinstance(request, Request):
            continue
        known = open_.get(request.id)
        if request.state == "queued":
            reason = request.reasons[0] if request.reasons else BEHIND
            if known is None:
                begins = event.at if request.grants else min(event.at, request.submitted_at)
                wait = Wait(request=request, begins=begins, ends=begins)
                found.append(wait)
                open_[request.id] = (wait, begins, reason)
            else:
                known[0].request = request
                if reason.code != known[2].code:
                    _span(known, event.at)
                    open_[request.id] = (known[0], event.at, reason)
        elif known is not None:
            del open_[request.id]
            _span(known, event.at)
            known[0].ending = "granted" if request.state == "done" else request.state
    for known in open_.values():
        _span(known, until)
    return found


def _span(known: tuple[Wait, int, Reason], ends: int) -> None:
    wait, begins, reason = known
    wait.ends = max(wait.ends, ends)
    if ends > begins:
        wait.spans.append(Span(begins=begins, ends=ends, reason=reason))


# -- distributions ---------------------------------------------------------------------------

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Waits that ended with a grant, in milliseconds; ``waiting`` counts those that still last."""

    granted: int
    waiting: int
    gave_up: int
    mean: int | None = None
    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    max: int | None = None


def distribution(waits: Sequence[Wait]) -> Distribution:
    """Nearest-rank percentiles of the granted waits.

    >>> distribution([]).p99 is None
    True
    """
    lengths = sorted(wait.length for wait in waits if wait.ending == "granted")
    waiting = sum(1 for wait in waits if wait.ending in ("waiting", "parked"))
    counts = {
        "granted": len(lengths), "waiting": waiting,
        "gave_up": len(waits) - len(lengths) - waiting,
    }  # fmt: skip
    if not lengths:
        return Distribution(**counts)
    ranks = {f"p{p}": lengths[-(-len(lengths) * p // 100) - 1] for p in PERCENTILES}
    return Distribution(
        **counts, **ranks, mean=sum(lengths) // len(lengths), max=lengths[-1],
    )  # fmt: skip


def grouped(
    waits: Iterable[Wait], by: Literal["tenant", "class", "shape"]
) -> dict[str, list[Wait]]:
    """Waits by tenant, class or shape, in the order of the names."""
    groups: dict[str, list[Wait]] = {}
    for wait in waits:
        request = wait.request
        name = {"tenant": request.tenant, "class": request.class_, "shape": shape(request)}[by]
        groups.setdefault(name, []).append(wait)
    return dict(sorted(groups.items()))


# -- surges ----------------------------------------------------------------------------------

SLICES = 24
"""Parts into which a period is cut to find when waiting surged."""

SHORTEST_SLICE = 60_000
TWICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """A part of the period in which much more was waited for than usual, and whose demand rose.

    ``by`` holds (tenant, class, asked, usual) in milli-GPUs, the largest rise first.
    """

    begins: int
    ends: int
    waited: int
    usual: int
    by: tuple[tuple[str, str, int, int], ...]


def surges(waits: Sequence[Wait], since: int, until: int) -> list[Surge]:
    """Where waiting (milli-GPU-milliseconds) was above twice its median, and who asked for more.

    The rise of a tenant and class is what it asked for in the slice above its own median over all
    slices; a surge with no rise comes from the pool, not from demand: then ``by`` is empty.
    """
    length = max(SHORTEST_SLICE, -(-(until - since) // SLICES))
    starts = list(range(since, until, length))
    waited = [_waited(waits, at, min(at + length, until)) for at in starts]
    usual = _median(waited)
    asked = _asked(waits, since, length, len(starts))
    found = []
    for place, at in enumerate(starts):
        if waited[place] == 0 or waited[place] <= TWICE * usual:
            continue
        rises = [
            (tenant, class_, amounts[place], _median(amounts))
            for (tenant, class_), amounts in asked.items()
            if amounts[place] > _median(amounts)
        ]
        rises.sort(key=lambda rise: (rise[3] - rise[2], rise))
        found.append(Surge(
            begins=at, ends=min(at + length, until), waited=waited[place], usual=usual,
            by=tuple(rises[:5]),
        ))  # fmt: skip
    return found


def _waited(waits: Iterable[Wait], begins: int, ends: int) -> int:
    return sum(
        wait.request.ask.gpus * max(0, min(ends, wait.ends) - max(begins, wait.begins))
        for wait in waits
    )


def _asked(
    waits: Iterable[Wait], since: int, length: int, slices: int
) -> dict[tuple[str, str], list[int]]:
    asked: dict[tuple[str, str], list[int]] = {}
    for wait in waits:
        place = (wait.begins - since) // length
        if 0 <= place < slices:
            key = (wait.request.tenant, wait.request.class_)
            asked.setdefault(key, [0] * slices)[place] += wait.request.ask.gpus
    return dict(sorted(asked.items()))


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0
