"""What falls due by time: claim windows, preparing, terms, notices, waits that have a limit."""

from __future__ import annotations

import heapq

from .budget import charges
from .events import Spent
from .leases import Lease, LeaseState, Reclaim, Trigger
from .records import replace
from .requests import Request
from .state import State, with_state
from .times import lease_due


def expire(state: State, now: int) -> None:
    """Let everything happen that is due at ``now``, in the order of time and id."""
    while state.due and state.due[0][0] <= now:
        due, lease_id = heapq.heappop(state.due)
        lease = state.leases.get(lease_id)
        if lease is not None and lease_due(lease) == due:
            _lease_due(state, lease, now)
    if state.parked or any(c.max_wait is not None for c in state.policy.classes.values()):
        _requests_due(state, now)


def _lease_due(state: State, lease: Lease, now: int) -> None:
    if lease.state == "granted" and lease.held_until is not None:
        park(state, lease, now)
    elif lease.state in ("granted", "preparing"):
        stop(state, lease, now, "failed", "did not start within the time allowed for preparing")
    elif lease.state == "active":
        notice_of_term(state, lease, now)
    elif lease.term_ends_at <= now:
        stop(state, lease, now, "term", "the term ended")
    elif lease.reclaim is not None and not still_asked(state, lease):
        undo(state, lease, now, "what it was asked back for is gone")
    elif lease.reclaim is not None:
        stop(state, lease, now, lease.reclaim.trigger, "the notice ended")


def still_asked(state: State, lease: Lease) -> bool:
    """Whether the trigger of a reclaim holds: looked at right before it acts."""
    reclaim = lease.reclaim
    if reclaim is None or reclaim.trigger not in ("return", "preemption"):
        return True
    claim = state.claims.get(reclaim.for_request or "")
    if claim is None or lease.id not in claim.victims:
        return False
    return bool(lease.lenders) or reclaim.trigger == "preemption"


def undo(state: State, lease: Lease, now: int, why: str) -> None:
    """Take a notice back: the lease goes on as before it."""
    back: LeaseState = "active" if lease.active_at is not None else "preparing"
    kept = replace(lease, state=back, state_since=now, reclaim=None)
    state.emit(now, "lease.kept", kept, why=why)


def park(state: State, lease: Lease, now: int) -> None:
    """Nobody came for a granted session: the next in line gets the devices, the ticket keeps its
    age. No server was started, so that nothing has to be proved.
    """
    released = replace(
        lease, state="released", state_since=now, released_at=now, end_reason="not claimed in time"
    )
    state.emit(now, "lease.released", released, why="the claim window ended")
    charge(state, released, now)
    request = state.requests[lease.request]
    parked = with_state(request, "parked", now, lease=None)
    state.emit(now, "request.parked", parked, why="the claim window ended")


def notice_of_term(state: State, lease: Lease, now: int) -> None:
    """Tell the holder that the term ends, while there is time to renew."""
    undo = ("renew",) if lease.renewals_left else ()
    reclaim = Reclaim(
        trigger="term",
        step="notice",
        step_ends_at=lease.term_ends_at,
        started_at=now,
        evidence=("the term of the lease ends",),
        undo=undo,
    )
    noticed = replace(lease, state="noticed", state_since=now, reclaim=reclaim)
    state.emit(now, "lease.noticed", noticed, why="the term of the lease ends")


def stop(
    state: State, lease: Lease, now: int, trigger: Trigger, why: str, actor: str = "governor"
) -> None:
    """Begin to stop a lease. Its devices stay taken until their absence is confirmed."""
    old = lease.reclaim
    reclaim = Reclaim(
        trigger=trigger,
        step="stop",
        step_ends_at=now + lease.stop_grace,
        started_at=old.started_at if old is not None else now,
        evidence=old.evidence if old is not None else (why,),
        for_request=old.for_request if old is not None else None,
    )
    stopping = replace(lease, state="stopping", state_since=now, reclaim=reclaim, end_reason=why)
    state.emit(now, "lease.stopping", stopping, actor, why)


def charge(state: State, released: Lease, now: int) -> None:
    """Book what a released lease has cost its tenant, split at the ends of periods."""
    tenant = state.policy.tenants.get(released.tenant)
    if tenant is None or tenant.budget is None:
        return
    for begins, amount in charges(released, tenant.budget.per, now).items():
        total = state.spent.get((released.tenant, begins), 0) + amount
        spent = Spent(tenant=released.tenant, period_starts_at=begins, amount=total)
        state.emit(now, "budget.charged", spent, why=released.id)


def _requests_due(state: State, now: int) -> None:
    for request in list(state.requests.values()):
        class_ = state.policy.classes.get(request.class_)
        if class_ is None:
            continue
        if request.state == "parked" and request.state_since + class_.parked_for <= now:
            _expire(state, request, now, "not fetched in time")
        elif (
            request.state == "queued"
            and class_.max_wait is not None
            and request.submitted_at + class_.max_wait <= now
        ):
            _expire(state, request, now, "waited as long as its class allows")


def _expire(state: State, request: Request, now: int, why: str) -> None:
    state.emit(now, "request.expired", with_state(request, "expired", now), why=why)
