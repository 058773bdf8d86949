"""What is wrong with the pool as a whole, that no single wait shows: worked out on demand.

A finding changes nothing and blames nobody; it names what an operator should look at, with the
numbers behind it. From the state: a *priority inversion*, *starvation*, *fragmentation*, and
*guarantees above what serves*. From recent events: work that is *taken in turns* for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .amounts import DAY, MINUTE
from .events import Event
from .leases import Lease
from .lines import Bucket
from .reasons import CATEGORY
from .requests import Request
from .state import State
from .stock import Stock

FindingKind = Literal[
    "priority-inversion", "starvation", "fragmentation", "guarantees-above-capacity",
    "cycle-suspected",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at.

    Parameters
    ----------
    kind : str
        What it is.
    subject : str
        What it is about: a request, ``pool/flavor``, or ``tenant/class/shape``.
    evidence : tuple of (str, object)
        The numbers behind it: milli-GPUs, milliseconds.
    """

    kind: FindingKind
    subject: str
    evidence: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a wait may last before it counts as starvation, in milliseconds.

    A class with an objective is bound by that; ``otherwise`` bounds the others. Each further
    doubling of the GPUs asked for adds one more of the same bound: large shapes need longer.
    """

    otherwise: int = DAY

    def of(self, state: State, request: Request) -> int:
        """The bound on the wait of one request.

        >>> from .events import PolicyVersion
        >>> from .policy import Policy
        >>> from .requests import Ask
        >>> r = Request(id="r", sequence=1, kind="job", user="u", tenant="t", class_="c",
        ...             ask=Ask(gpus=4000, devices=4), state="queued", submitted_at=0, asked_at=0)
        >>> Bounds(otherwise=10).of(State(), r)
        30
        """
        class_ = state.policy.classes.get(request.class_)
        objective = class_.objective if class_ is not None else None
        base = self.otherwise if objective is None else objective.start_within
        doublings = max(1, request.ask.gpus // 1000).bit_length() - 1
        return base * (1 + doublings)


def findings(state: State, now: int, bounds: Bounds = Bounds()) -> tuple[Finding, ...]:
    """All findings of a state, in an order that depends on nothing but the state."""
    return (
        *_above_capacity(state),
        *_inversions(state),
        *_starving(state, now, bounds),
        *_fragmented(state),
    )


# -- guarantees ------------------------------------------------------------------------------


def _above_capacity(state: State) -> Iterable[Finding]:
    """Guarantees that add up to more than what serves: after a failure, or by overcommitment."""
    for (group, flavor), covered in sorted(state.covered.items()):
        stock = state.stocks.get((group, flavor))
        serving = stock.in_service if stock is not None else 0
        if covered > serving:
            yield Finding(
                kind="guarantees-above-capacity",
                subject=f"{group}/{flavor}",
                evidence=(
                    ("guaranteed", covered), ("in_service", serving),
                    ("missing", covered - serving),
                ),
            )  # fmt: skip


# -- waits -----------------------------------------------------------------------------------


def _heads(state: State) -> list[tuple[Bucket, Request]]:
    """The first of each line that something blocks, in the order of acceptance."""
    found = [
        (bucket, state.requests[bucket.entries[0][2]])
        for bucket in state.queue.values()
        if bucket.entries and bucket.blocked is not None
    ]
    return sorted(found, key=lambda pair: pair[1].sequence)


def _inversions(state: State) -> Iterable[Finding]:
    """A higher class kept off by running work of a lower one that cannot be interrupted."""
    rigid: dict[tuple[str, str], list[Lease]] = {}
    for bucket, request in _heads(state):
        class_ = state.policy.classes.get(request.class_)
        if class_ is None or not _for_room(bucket):
            continue
        for key in bucket.stocks:
            stock = state.stocks.get(key)
            if stock is None or stock.free >= request.ask.gpus:
                continue
            if key not in rigid:  # once for all lines: there may be thousands of either
                rigid[key] = _rigid_on(state, stock)
            below = [lease for lease in rigid[key] if lease.priority < class_.priority]
            if below:
                yield _inversion(request, stock, below)


def _inversion(request: Request, stock: Stock, below: list[Lease]) -> Finding:
    return Finding(
        kind="priority-inversion",
        subject=request.id,
        evidence=(
            ("class", request.class_), ("tenant", request.tenant), ("flavor", stock.flavor),
            ("asked", request.ask.gpus), ("held", sum(lease.gpus for lease in below)),
            ("leases", tuple(lease.id for lease in below[:MOST_NAMED])),
            ("until", max(lease.term_ends_at for lease in below)),
        ),
    )  # fmt: skip


MOST_NAMED = 20
"""Leases that one finding names."""


def _for_room(bucket: Bucket) -> bool:
    blocked = bucket.blocked
    return blocked is not None and CATEGORY.get(blocked.code) in ("shape", "occupied", "order")


def _rigid_on(state: State, stock: Stock) -> list[Lease]:
    """Work on a kind of device that cannot be interrupted, in the order of its grants."""
    found = [
        state.leases[lease_id]
        for (pool, flavor), members in state.by_cell.items()
        if flavor == stock.flavor and state.cell(pool, flavor).group == stock.group
        for lease_id in members
    ]
    return sorted((one for one in found if one.interruptible == "no"), key=lambda one: one.fence)


def shape(request: Request) -> str:
    """How many GPUs on how many nodes, as one word.

    >>> from .requests import Ask
    >>> r = Request(id="r", sequence=1, kind="job", user="u", tenant="t", class_="c",
    ...             ask=Ask(gpus=8000, devices=8, nodes=2, flavor="a100"), state="queued",
    ...             submitted_at=0, asked_at=0)
    >>> shape(r)
    '8xa100/2n'
    """
    text = f"{request.ask.gpus / 1000:g}x{request.ask.flavor or 'any'}"
    return f"{text}/{request.ask.nodes}n" if request.ask.nodes > 1 else text


def _starving(state: State, now: int, bounds: Bounds) -> Iterable[Finding]:
    """Waits beyond their bound, one finding for each tenant, class and shape."""
    beyond: dict[str, list[Request]] = {}
    for request in state.requests.values():
        if request.state != "queued":
            continue
        if now - request.submitted_at > bounds.of(state, request):
            group = f"{request.tenant}/{request.class_}/{shape(request)}"
            beyond.setdefault(group, []).append(request)
    for group, requests in sorted(beyond.items()):
        first = min(requests, key=lambda request: (request.submitted_at, request.sequence))
        yield Finding(
            kind="starvation",
            subject=group,
            evidence=(
                ("request", first.id), ("waited", now - first.submitted_at),
                ("bound", bounds.of(state, first)), ("waiting", len(requests)),
                ("code", first.reasons[0].code if first.reasons else "BehindInQueue"),
            ),
        )  # fmt: skip


def _fragmented(state: State) -> Iterable[Finding]:
    """Free devices that would be enough for somebody who waits, and fit nobody who does."""
    waiting: dict[tuple[str, str], list[tuple[Bucket, Request]]] = {}
    for bucket, request in _heads(state):
        for key in bucket.stocks:
            waiting.setdefault(key, []).append((bucket, request))
    for key in sorted(waiting):
        stock = state.stocks.get(key)
        if stock is None or not stock.free:
            continue
        enough = [(b, r) for b, r in waiting[key] if r.ask.gpus <= stock.free]
        unfit = [r for b, r in enough if b.blocked is not None and b.blocked.code in _UNFIT]
        if not unfit or len(unfit) < len(enough):
            continue
        yield Finding(
            kind="fragmentation",
            subject=f"{stock.group}/{stock.flavor}",
            evidence=(
                ("free", stock.free), ("in_service", stock.in_service),
                ("share", round(stock.free / stock.in_service, 3)),
                ("largest", max(_free_of(stock).values(), default=0)),
                ("shapes", tuple(sorted({shape(request) for request in unfit}))),
            ),
        )  # fmt: skip


_UNFIT = frozenset({"Fragmented", "TopologyConflict", "NodeTainted", "NodeUnhealthy", "AllInUse"})


def _free_of(stock: Stock) -> dict[str, int]:
    return {
        name: len(shelf.free) * stock.capacity + sum(shelf.part.values())
        for name, shelf in stock.shelves.items()
    }


# -- taking turns ----------------------------------------------------------------------------


def taken_in_turns(
    events: Iterable[Event], within: int = 30 * MINUTE, times: int = 3
) -> tuple[Finding, ...]:
    """Work that is asked back again and again within a short time: a cycle, or close to one.

    Parameters
    ----------
    events : iterable of Event
        In their order; only notices of returns count.
    within, times : int
        So often within so many milliseconds is suspicious.
    """
    taken: dict[str, list[tuple[int, str]]] = {}
    for event in events:
        lease = event.record
        if event.what != "lease.noticed" or not isinstance(lease, Lease) or lease.reclaim is None:
            continue
        if lease.reclaim.trigger in ("return", "preemption"):
            rows = taken.setdefault(lease.request, [])
            rows.append((event.at, lease.reclaim.for_request or ""))
    found = []
    for request, rows in sorted(taken.items()):
        most = max(
            sum(1 for at, _ in rows if begins <= at <= begins + within) for begins, _ in rows
        )
        if most < times:
            continue
        by = sorted({other for _, other in rows if other})
        pair = [other for other in by if any(who == request for _, who in taken.get(other, ()))]
        found.append(Finding(
            kind="cycle-suspected", subject=request,
            evidence=(("times", most), ("within", within), ("by", tuple(by)),
                      ("pair", tuple(pair)), ("last", rows[-1][0])),
        ))  # fmt: skip
    return tuple(found)
