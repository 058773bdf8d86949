"""When something starts: by running the same decisions forward.

*Expected* start: the state is forked and lived forward; every lease lasts as long as its basis
says (what the caller knows of observed ends, else its declared term), nobody else asks for
anything, and the request starts when the very function that decides for real grants it.

*Latest* start: a bound, given only where there is one. A claim and a reservation bind everybody
and carry it. A request within its tenant's guarantee that has neither yet gets one when it is
first in line, so that it starts at the latest after as many of the longest possible holds as
there are places in front. Beyond the guarantee nobody owes anything: there is no bound, and none
is given. Nor is one where a higher class needs no approval: more of it may always come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from . import commands
from .admission import decide, next_due
from .amounts import DAY
from .leases import Lease
from .lines import bucket_key
from .ordering import position
from .requests import Request
from .state import State
from .times import gone_by

Basis = Literal["claim", "reservation", "terms", "observed", "places", "none"]

HORIZON = 14 * DAY
"""How far ahead is looked; what would start later is said to have no expected start."""

MAX_STEPS = 4000
"""A bound on the work of one forecast, in cycles of the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """``expected_start`` None: not within the horizon, or nothing known would make room.

    ``basis`` names what the expected start rests on, ``bound`` what the latest start does.
    """

    expected_start: int | None = None
    latest_start: int | None = None
    basis: Basis = "none"
    bound: Basis = "none"


EndOf = Callable[[Lease], int | None]
"""What is known of when a lease really ends; None: nothing beyond its term."""


def by_terms(lease: Lease) -> int | None:
    """Nothing is known but the terms."""
    return None


def forecast(
    state: State,
    now: int,
    wanted: Iterable[str] | None = None,
    *,
    ends: EndOf = by_terms,
    max_steps: int = MAX_STEPS,
) -> dict[str, Forecast]:
    """Forecasts of waiting requests (all, or the ``wanted`` ids)."""
    ids = [
        request.id
        for request in state.requests.values()
        if request.state == "queued" and (wanted is None or request.id in set(wanted))
    ]
    starts = expected_starts(state, now, ids, ends=ends, max_steps=max_steps)
    basis: Basis = "terms" if ends is by_terms else "observed"
    result = {}
    for request_id in ids:
        latest, bound = latest_start(state, state.requests[request_id], now)
        expected = starts.get(request_id)
        if expected is not None and latest is not None:
            expected = min(expected, latest)
        result[request_id] = Forecast(
            expected_start=expected,
            latest_start=latest,
            basis=basis if expected is not None else "none",
            bound=bound,
        )
    return result


def expected_starts(
    state: State,
    now: int,
    ids: Iterable[str],
    *,
    ends: EndOf = by_terms,
    max_steps: int = MAX_STEPS,
) -> dict[str, int]:
    """When each request would be granted if nobody asked for anything more."""
    ahead = state.fork()
    missing = set(ids)
    found: dict[str, int] = {}
    ending: list[tuple[int, str]] = []
    for lease in list(ahead.leases.values()):
        if lease.state in ("granted", "preparing") and lease.held_until is None:
            # Else the timer of preparing would end it here, as if no server ever came up.
            lease = commands.started(ahead, now, lease.id)
        heapq.heappush(ending, (_end_of(ahead, lease, ends, now), lease.id))
    clock = now
    for _ in range(max_steps):
        decide(ahead, clock)
        for event in ahead.take_journal():
            if event.what == "lease.granted" and isinstance(event.record, Lease):
                request_id = event.record.request
                if request_id in missing:
                    missing.discard(request_id)
                    found[request_id] = clock
                _begin(ahead, event.record, clock, ending, ends)
            elif event.what == "lease.stopping" and isinstance(event.record, Lease):
                heapq.heappush(ending, (clock, event.record.id))
        if not missing:
            break
        clock_next = _next(ahead, clock, ending)
        if clock_next is None or clock_next - now > HORIZON:
            break
        clock = clock_next
        while ending and ending[0][0] <= clock:
            lease_id = heapq.heappop(ending)[1]
            if lease_id in ahead.leases:
                commands.gone(ahead, clock, lease_id)
    return found


def _end_of(state: State, lease: Lease, ends: EndOf, now: int) -> int:
    known = ends(lease)
    if known is not None and known > now:
        return known
    return gone_by(state.policy, lease, now) - (
        lease.stop_grace if lease.state != "stopping" else 0
    )


def _begin(
    ahead: State, lease: Lease, clock: int, ending: list[tuple[int, str]], ends: EndOf
) -> None:
    """In a look ahead every granted lease starts at once and lasts for its term."""
    if lease.id in ahead.leases:
        running = commands.started(ahead, clock, lease.id)
        heapq.heappush(ending, (ends(running) or running.term_ends_at, lease.id))


def _next(ahead: State, clock: int, ending: list[tuple[int, str]]) -> int | None:
    due = next_due(ahead, clock)
    times = [ending[0][0]] if ending else []
    if due is not None and due > clock:
        times.append(due)
    return max(clock, min(times)) if times else None


def latest_start(state: State, request: Request, now: int) -> tuple[int | None, Basis]:
    """The bound on the start of a queued request and what it rests on; (None, "none"): no bound."""
    claim = state.claims.get(request.id)
    if claim is not None:
        return max(now, claim.until), "claim"
    if _may_be_overtaken(state, request):
        return None, "none"
    kept = state.reservations.get(request.id)
    if kept is not None and kept.owed:
        return max(now, kept.starts_at), "reservation"
    bucket = state.queue[bucket_key(state.policy, request)]
    if bucket.blocked is None or not bucket.owed:
        return None, "none"
    places, _ = position(state, request, bucket, now)
    longest = max(
        (
            class_.claim_window + class_.prepare_within + class_.duration.max
            for name, class_ in state.policy.classes.items()
            if set(state.policy.pools_for(name)) & {pool for pool, _ in bucket.cells}
        ),
        default=0,
    )
    grace = max((rule.stop_grace for rule in state.policy.reclaim), default=0)
    wait = state.policy.ordering.reserve_after
    return now + places * (wait + longest + grace), "places"


def _may_be_overtaken(state: State, request: Request) -> bool:
    """Whether work of a class that outranks this one may come at any time, unapproved."""
    mine = state.policy.classes[request.class_]
    pools = set(state.policy.pools_for(request.class_))
    return any(
        class_.priority > mine.priority
        and class_.approval is None
        and pools & set(state.policy.pools_for(name))
        for name, class_ in state.policy.classes.items()
    )
