"""What happens next: timers that fell due, then grants in order, until nothing changes any more.

``decide`` mutates the state it is given through events; fork the state first to look ahead. It
terminates: each pass grants, ends or moves at least one record along a declared edge, or stops.
"""

from __future__ import annotations

import heapq

from .cells import Cell
from .checks import CEILING, PLACEMENT, Blocked, Fit, check
from .events import Claim
from .grants import grant
from .lines import Bucket, bucket_key
from .loans import settle
from .ordering import OrderKey, bucket_order, decisive, lines_in_front
from .preemption import plan_preemption
from .records import replace
from .requests import Reason, Request
from .reservations import check_reservations, end_reservation, reserve
from .returns import (
    claims_due,
    end_claim,
    make_claim,
    plan_return,
    serve_claims,
    take_ready_claim,
    waiting_for_return,
)
from .rooms import Room
from .state import State
from .timers import expire
from .times import ends_anyway, lease_due

MAX_PASSES = 1000
"""A bound on the passes of one cycle, so that a fault in a rule cannot stop the governor."""


def decide(state: State, now: int) -> None:
    """Bring a state to rest at ``now``."""
    for _ in range(MAX_PASSES):
        before = len(state.journal)
        expire(state, now)
        _check_claims(state, now)
        check_reservations(state, now)
        serve_claims(state, now)
        settle(state, now)
        _admit(state, now)
        if len(state.journal) == before:
            return


CLAIMS_AHEAD = 64
"""How deep into one line leases are asked back at the same time."""


def next_due(state: State, now: int) -> int | None:
    """When ``decide`` has to run again if nothing happens before; None: not by time."""
    while state.due:
        due, lease_id = state.due[0]
        lease = state.leases.get(lease_id)
        if lease is not None and lease_due(lease) == due:
            break
        heapq.heappop(state.due)
    times = [state.due[0][0]] if state.due else []
    claim = claims_due(state)
    if claim is not None:
        times.append(claim)
    if state.retries:
        times.append(state.retries[0][0])
    times += request_dues(state)
    return max(now, min(times)) if times else None


def request_dues(state: State) -> list[int]:
    """When requests that may wait only so long come to their end."""
    dues = []
    limits = {
        name: (class_.max_wait, class_.parked_for) for name, class_ in state.policy.classes.items()
    }
    waiting = any(limit is not None for limit, _ in limits.values())
    for request in state.requests.values() if waiting or state.parked else ():
        longest, parked_for = limits.get(request.class_, (None, None))
        if request.state == "parked" and parked_for is not None:
            dues.append(request.state_since + parked_for)
        elif request.state == "queued" and longest is not None:
            dues.append(request.submitted_at + longest)
    return dues


# -- grants ----------------------------------------------------------------------------------


def _admit(state: State, now: int) -> None:
    """One pass, in order, over the lines whose answer may have changed since the last."""
    heap: list[tuple[OrderKey, int, Bucket]] = []
    rooms = _lines_to_try(state, now)
    for number, key in enumerate(rooms):
        bucket = state.queue.get(key)
        if bucket is not None:
            heap.append((bucket_order(state, bucket, now), number, bucket))
    heapq.heapify(heap)
    while heap:
        order, number, bucket = heapq.heappop(heap)
        if not bucket.entries or state.queue.get(bucket.key) is not bucket:
            continue
        room = rooms[bucket.key]
        if room is not None and not room.may_still_fit(bucket):
            continue  # those in front have taken what had come free
        fresh = bucket_order(state, bucket, now)
        if fresh > order:
            heapq.heappush(heap, (fresh, number, bucket))
            continue
        first_by = decisive(fresh, heap[0][0]) if heap else ""
        if _try(state, bucket, fresh, now, first_by) and bucket.entries:
            heapq.heappush(heap, (bucket_order(state, bucket, now), number, bucket))


def _lines_to_try(state: State, now: int) -> dict[tuple[object, ...], Room | None]:
    """The lines to look at: new ones, those that wait for what has been freed or lent, and those
    whose time has come. Takes note that they have been looked at. A line that is looked at only
    for what has come free comes with it.
    """
    keys: dict[tuple[object, ...], Room | None] = dict.fromkeys(state.dirty)
    if state.dirty_general:
        keys.update(state.general)
    for stock_key, freed in state.dirty_stocks.items():
        room = Room(state, stock_key, freed)
        for key in state.lines.get(stock_key, ()):
            if keys.get(key, room) is not None and room.may_fit(state.queue[key]):
                keys[key] = None if key in keys else room
    for stock_key in state.dirty_loans:
        for key in state.lines.get(stock_key, ()):
            line = state.queue[key]
            if line.owed and line.entries[0][2] not in state.claims:
                keys[key] = None
    while state.retries and state.retries[0][0] <= now:
        keys[heapq.heappop(state.retries)[-1]] = None
    state.dirty, state.dirty_stocks, state.dirty_loans = {}, {}, {}
    state.dirty_general = False
    return keys


def _try(state: State, bucket: Bucket, order: OrderKey, now: int, first_by: str = "") -> bool:
    """Grant the first of a line, or note what blocks it. True when it was granted."""
    request = state.requests[bucket.entries[0][2]]
    if state.claims:
        take_ready_claim(state, [entry[2] for entry in bucket.entries[:CLAIMS_AHEAD]], now)
    result = check(state, request, bucket.cells, now)
    if isinstance(result, Fit):
        passed = _passed(state, bucket, order, result.cell, now)
        grant(state, request, result, now, passed=passed, first_by=first_by)
        return True
    bucket.blocked = _ask_back(state, request, result, now)
    bucket.owed, bucket.short = result.owed, result.shortage > 0
    if request.id in state.claims:
        _ask_back_more(state, bucket, now)
    if bucket.blocked.code in GENERAL:
        state.general[bucket.key] = None
    else:
        state.general.pop(bucket.key, None)
    if bucket.blocked.until is not None and bucket.blocked.code == "BudgetSpent":
        _retry_at(state, bucket, bucket.blocked.until)
    if result.rank in (CEILING, PLACEMENT):
        reserve(state, request, result, now)
        due = request.submitted_at + state.policy.ordering.reserve_after
        if due > now:
            _retry_at(state, bucket, due)
    if not request.reasons or request.reasons[0].code != bucket.blocked.code:
        noted = replace(bucket.blocked, since=now)
        state.emit(
            now, "request.waiting", replace(request, reasons=(noted,)), why=bucket.blocked.code
        )
    return False


def _retry_at(state: State, bucket: Bucket, due: int) -> None:
    """Look at a line again at a time; asking for the same time again changes nothing."""
    _, sequence, _ = bucket.entries[0]
    if bucket.retry != (due, sequence):
        bucket.retry = (due, sequence)
        # An amended request is in another line at the same place: keys with None have no order.
        heapq.heappush(state.retries, (due, sequence, repr(bucket.key), bucket.key))


GENERAL = frozenset(
    {
        "UserLimitReached", "ApprovalPending", "HeldForPriority", "BudgetSpent", "NoQuota",
        "GrantsPaused", "Reconciling", "BackendUnreachable", "CeilingReached",
        "EnvironmentPreparing",
    }
)  # fmt: skip
"""Reasons that the end of any lease, or a word of a person, may lift."""

PASSING = frozenset({"Reconciling", "BackendUnreachable"})
"""Reasons that say nothing about the demand: what was asked back for it goes on to return."""


def _ask_back(state: State, request: Request, blocked: Blocked, now: int) -> Reason:
    """Keep, make or renew the claim of a request that its guarantee covers, or whose class may
    take from lower ones, and say its reason.
    """
    mine = state.claims.get(request.id)
    preempts = bool(state.policy.classes[request.class_].preempts) if blocked.cell else False
    if blocked.cell is not None and (blocked.owed or preempts):
        if mine is not None and claim_holds(state, mine):
            return waiting_for_return(state, request)
        plan = None
        if blocked.owed:
            plan = plan_return(state, request, blocked.cell, blocked.shortage, now)
        if plan is None and preempts:
            plan = plan_preemption(state, request, blocked.cell, now)
        if plan is not None and plan.victims:
            end_reservation(state, request.id, now, "what it waits for is asked back")
            make_claim(state, request, blocked.cell, plan, now)
            return waiting_for_return(state, request)
    if mine is not None and not (blocked.reason.code in PASSING and claim_holds(state, mine)):
        end_claim(state, request.id, now, f"cannot be served now: {blocked.reason.code}")
    return blocked.reason


def _ask_back_more(state: State, bucket: Bucket, now: int) -> None:
    """What the guarantee owes to those further back in a line is asked back at once too, and not
    one by one: all of it is there within one notice.
    """
    for _, _, request_id in bucket.entries[1:CLAIMS_AHEAD]:
        request = state.requests[request_id]
        mine = state.claims.get(request_id)
        if mine is not None and claim_holds(state, mine):
            continue
        result = check(state, request, bucket.cells, now)
        if isinstance(result, Fit) or not result.owed:
            return
        if _ask_back(state, request, result, now).code != "WaitingForReturn":
            return


def _passed(state: State, bucket: Bucket, order: OrderKey, cell: Cell, now: int) -> tuple[str, ...]:
    """The requests earlier in line for the same devices that this grant goes past."""
    key = (cell.group, cell.flavor)
    return tuple(
        sorted(
            other.entries[0][2]
            for other in lines_in_front(state, key, order, now)
            if other is not bucket and other.blocked is not None
        )
    )


# -- settling --------------------------------------------------------------------------------


def _check_claims(state: State, now: int) -> None:
    """End the claims whose request no longer waits; work out anew those that cannot be served."""
    if not state.recheck_claims:
        return
    doubtful, state.recheck_claims = sorted(state.recheck_claims), set()
    for request_id in doubtful:
        request = state.requests.get(request_id)
        if request is None or request.state != "queued":
            end_claim(state, request_id, now, "the request no longer waits")
        elif request_id in state.claims and not claim_holds(state, state.claims[request_id]):
            state.dirty[bucket_key(state.policy, request)] = None


def claim_holds(state: State, claim: Claim) -> bool:
    """Whether a claim will be served: somebody is still to go, and no device has failed."""
    waiting = False
    for lease_id in claim.victims:
        lease = state.leases.get(lease_id)
        if lease is None:
            continue
        waiting = True
        # Guaranteed leases are taken only of the claimant's own tenant: a higher class of it.
        if not ends_anyway(lease) and not lease.lenders and lease.tenant != claim.tenant:
            return False
    return waiting and state.all_serve(claim.devices)
