"""What people, servers and backends ask of a lease."""

from __future__ import annotations

from .amounts import HOUR
from .budget import budget_state
from .leases import Lease, Reclaim, Trigger
from .records import replace
from .requests import Request, RequestState
from .shapes import Refusal
from .state import State, with_state
from .timers import charge, stop

MAX_ATTEMPTS = 3
"""Starts that may fail for reasons of the infrastructure before a request is given up."""


def same_server(state: State, request: Request) -> list[Request]:
    """What the same user's server of that name has in the queue."""
    if request.server is None:
        return []
    return [
        other
        for other in state.requests.values()
        if other.user == request.user
        and other.server == request.server
        and other.state in ("queued", "parked")
    ]


def end_request(
    state: State, request: Request, to: RequestState, now: int, actor: str, why: str
) -> None:
    """Bring a request to one of its last states."""
    ended = with_state(request, to, now)
    state.emit(now, f"request.{to}", ended, actor, why)


def renew(state: State, now: int, lease_id: str, actor: str) -> Lease:
    """Extend a lease by its term, from the end of the present one. Refused where no renewal is
    left, where the lease is asked back by its owner, or where somebody has the devices next.
    """
    lease = _lease(state, lease_id, "active", "noticed")
    if lease.reclaim is not None and lease.reclaim.trigger not in ("term", "idle", "unused"):
        raise Refusal("Conflict", f"lease {lease_id} is being taken back: {lease.reclaim.trigger}")
    if lease.renewals_left <= 0:
        raise Refusal("NoRenewalLeft", f"lease {lease_id} has no renewal left")
    if lease.lenders and _budget_forbids(state, lease, now):
        raise Refusal("BudgetSpent", "the budget is spent: borrowed leases are not renewed")
    longest = (
        state.policy.classes[lease.class_].duration.max
        if lease.class_ in state.policy.classes
        else lease.term
    )
    ends = lease.term_ends_at + lease.term
    if not lease.lenders and lease.active_at is not None:
        ends = min(ends, lease.active_at + max(longest, lease.term))
    for device in lease.devices:
        kept = state.reserved.get(device.uuid)
        if kept is not None and ends + lease.stop_grace > kept[1]:
            raise Refusal(
                "HeldForLargerRequest",
                f"{kept[0]} has the devices next, from a time before that end",
            )
    renewed = replace(
        lease, state="active", term_ends_at=ends, reclaim=None,
        state_since=lease.state_since if lease.state == "active" else now,
        renewals_left=lease.renewals_left - 1, renewed=lease.renewed + 1,
    )  # fmt: skip
    state.emit(now, "lease.renewed", renewed, actor)
    return renewed


def _budget_forbids(state: State, lease: Lease, now: int) -> bool:
    budget = budget_state(state, lease.tenant, now)
    return budget is not None and budget.spent_up and budget.rule.when_spent != "warn"


def keep(state: State, now: int, lease_id: str, actor: str) -> Lease:
    """Undo a reclaim that the owner may undo by saying so."""
    lease = _lease(state, lease_id, "noticed", "frozen")
    if lease.reclaim is None or "keep" not in lease.reclaim.undo:
        trigger = lease.reclaim.trigger if lease.reclaim is not None else "none"
        raise Refusal("Conflict", f"a lease taken back for {trigger} cannot be kept by its user")
    if lease.keeps_left <= 0:
        raise Refusal("NoKeepLeft", f"lease {lease_id} has been kept as often as the rule allows")
    kept = replace(
        lease, state="active", state_since=now, reclaim=None, keeps_left=lease.keeps_left - 1
    )
    state.emit(now, "lease.kept", kept, actor)
    return kept


def release(state: State, now: int, lease_id: str, actor: str, why: str = "released") -> None:
    """Give a lease back. Its devices are free when their absence is confirmed; a lease whose
    server was never started is free at once. Releasing twice equals once.
    """
    lease = state.leases.get(lease_id)
    if lease is None or lease.state == "stopping":
        return
    trigger: Trigger = "owner" if actor == f"user:{lease.user}" else "admin"
    if actor == "governor":
        trigger = "replaced"
    if lease.state == "granted" and lease.held_until is not None:
        _released(state, lease, now, actor, why)
    else:
        stop(state, lease, now, trigger, why, actor)


def preparing(state: State, now: int, lease_id: str) -> Lease:
    """The runtime has begun to start the server of a lease."""
    lease = _lease(state, lease_id, "granted", "preparing")
    if lease.state == "preparing":
        return lease
    begun = replace(
        lease, state="preparing", state_since=now, preparing_at=now, held_until=None,
        term_ends_at=prepare_end(state, lease, now),
    )  # fmt: skip
    state.emit(now, "lease.preparing", begun)
    return begun


def prepare_end(state: State, lease: Lease, now: int) -> int:
    """Until when a server may be prepared that begins to be now."""
    class_ = state.policy.classes.get(lease.class_)
    return now + (class_.prepare_within if class_ is not None else HOUR // 2)


def started(state: State, now: int, lease_id: str) -> Lease:
    """The server answers: the term begins. A notice given meanwhile keeps its deadline."""
    lease = _lease(state, lease_id, "granted", "preparing", "active", "noticed", "frozen")
    if lease.active_at is not None:
        return lease
    running = replace(
        lease, active_at=now, held_until=None, term_ends_at=now + lease.term,
        preparing_at=lease.preparing_at if lease.preparing_at is not None else now,
    )  # fmt: skip
    if lease.state in ("granted", "preparing"):
        running = replace(running, state="active", state_since=now)
    state.emit(now, "lease.active", running)
    return running


def gone(state: State, now: int, lease_id: str, why: str = "", *, forced_by: str = "") -> None:
    """The backend confirms that nothing of a lease runs any more: its devices are free.

    ``forced_by`` names the person who releases without that proof; it is in the audit.
    """
    lease = state.leases.get(lease_id)
    if lease is not None:
        what = why or ("confirmed gone" if lease.state == "stopping" else "ended by itself")
        _released(state, lease, now, forced_by or "governor", what)


def start_failed(state: State, now: int, lease_id: str, why: str, *, retry: bool = False) -> None:
    """A start has failed. ``retry`` for faults of the infrastructure: the request keeps its place
    and is tried again a bounded number of times. What was half started still has to be gone.
    """
    lease = state.leases.get(lease_id)
    if lease is None or lease.state == "stopping":
        return
    request = state.requests.get(lease.request)
    again = retry and request is not None and request.grants < MAX_ATTEMPTS
    stop(state, lease, now, "failed", f"{'retry: ' if again else ''}start failed: {why}")


def _released(state: State, lease: Lease, now: int, actor: str, why: str) -> None:
    trigger = lease.reclaim.trigger if lease.reclaim is not None else None
    released = replace(
        lease, state="released", state_since=now, released_at=now,
        end_reason=lease.end_reason or why,
    )  # fmt: skip
    state.emit(now, "lease.released", released, actor, why)
    charge(state, released, now)
    request = state.requests.get(lease.request)
    if request is None:
        return
    # What ends by itself while a notice runs is done; only what was stopped waits again.
    stopped = lease.state == "stopping" and trigger in ("return", "preemption", "drain")
    again_wanted = stopped and lease.class_kind == "batch" and lease.interruptible != "no"
    if (again_wanted or lease.end_reason.startswith("retry: ")) and not same_server(state, request):
        again = with_state(request, "queued", now, lease=None, waits_for=None)
        state.emit(now, "request.queued", again, actor, "queued again with its age")
    elif actor == f"user:{lease.user}" and lease.state == "granted":
        end_request(state, replace(request, lease=None), "cancelled", now, actor, why)
    else:
        end_request(state, request, "done", now, actor, why)


def _lease(state: State, lease_id: str, *states: str) -> Lease:
    lease = state.leases.get(lease_id)
    if lease is None:
        raise Refusal("NotFound", f"there is no live lease {lease_id}")
    if lease.state not in states:
        raise Refusal("Conflict", f"lease {lease_id} is {lease.state}, not {' or '.join(states)}")
    return lease


def confirm(state: State, now: int, lease_id: str, by: str) -> Lease:
    """A person confirms that a lease may be stopped, where its rule asks for that."""
    lease = _lease(state, lease_id, "noticed", "frozen")
    reclaim: Reclaim | None = lease.reclaim
    if reclaim is None:  # pragma: no cover - these states always carry a reclaim
        raise Refusal("Conflict", f"lease {lease_id} is not being taken back")
    confirmed = replace(lease, reclaim=replace(reclaim, confirmed_by=by))
    state.emit(now, "lease.confirmed", confirmed, by)
    return confirmed


def to_start(state: State, now: int) -> list[Lease]:
    """Leases whose server should be started now, oldest grant first."""
    ready = [
        lease
        for lease in state.leases.values()
        if lease.state == "granted" and lease.held_until is None
    ]
    return sorted(ready, key=lambda lease: lease.fence)


def to_stop(state: State) -> list[Lease]:
    """Leases whose server should be stopped, and their absence confirmed."""
    return sorted(
        (lease for lease in state.leases.values() if lease.state == "stopping"),
        key=lambda lease: lease.fence,
    )
