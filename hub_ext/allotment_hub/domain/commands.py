"""What people, servers and backends ask of the pool. Each is checked whole before it changes
anything; what is not possible raises :class:`Refusal` and leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .amounts import show_duration
from .events import Grant
from .lease_commands import (
    confirm,
    end_request,
    gone,
    keep,
    prepare_end,
    preparing,
    release,
    renew,
    same_server,
    start_failed,
    started,
    to_start,
    to_stop,
)
from .leases import Lease
from .pool_commands import drain, exempt, set_device, set_node, set_nodes, set_policy, switch
from .records import replace
from .requests import Request, RequestKind
from .returns import end_claim
from .shapes import Refusal, refused_for, shape_of
from .state import State, with_state

__all__ = [
    "Refusal",
    "amend",
    "approve",
    "cancel",
    "claim",
    "confirm",
    "drain",
    "exempt",
    "gone",
    "keep",
    "preparing",
    "presence",
    "release",
    "renew",
    "set_device",
    "set_node",
    "set_nodes",
    "set_policy",
    "start_failed",
    "started",
    "submit",
    "switch",
    "to_start",
    "to_stop",
    "wants_of",
]


# -- requests --------------------------------------------------------------------------------


def submit(
    state: State,
    now: int,
    *,
    id: str,
    kind: RequestKind,
    user: str,
    groups: Iterable[str],
    wants: Mapping[str, Any],
    server: str | None = None,
    actor: str = "",
    options: tuple[tuple[str, object], ...] = (),
) -> Request:
    """Take a request into the queue, or refuse it for good (state ``rejected`` with reasons).

    Parameters
    ----------
    id : str
        A fresh id, chosen by the caller (this layer has no randomness).
    wants : mapping
        The keys of contract.md, 2, quantities already as integers of :mod:`.amounts`.
    server : str or None
        Name of the server that a session is for. What the same user's server of that name had in
        the queue is replaced; the new request keeps its age where it asks for no more.

    Raises
    ------
    Refusal
        For input that is wrong in itself; nothing is recorded.
    """
    if id in state.requests:
        raise Refusal("Conflict", f"request {id} exists already", "id")
    groups = tuple(sorted(set(groups)))
    tenant, class_, ask = shape_of(state, kind, groups, wants)
    request = Request(
        id=id, sequence=state.sequence + 1, kind=kind, user=user, tenant=tenant, class_=class_,
        ask=ask, state="queued", submitted_at=now, asked_at=now, server=server, groups=groups,
        state_since=now, options=options,
    )  # fmt: skip
    actor = actor or f"user:{user}"
    waiting = same_server(state, request)
    refusal = refused_for(state, request, replaces=waiting[0] if waiting else None)
    if refusal is not None:
        rejected = replace(request, state="rejected", reasons=(replace(refusal, since=now),))
        state.emit(now, "request.rejected", rejected, actor, refusal.code)
        return rejected
    for old in waiting:
        if asks_no_more(state, old, request):
            request = replace(request, submitted_at=min(request.submitted_at, old.submitted_at))
        end_claim(state, old.id, now, f"replaced by {id}")
        end_request(state, old, "cancelled", now, actor, f"replaced by {id}")
    held = _live_lease(state, request)
    if held is not None:
        request = replace(request, waits_for=held.id)
    state.emit(now, "request.queued", request, actor)
    if held is not None and held.state != "stopping":
        release(state, now, held.id, "governor", f"the same server was asked for again as {id}")
    state.presence[user, id] = now  # who has just asked is looking
    return request


def _live_lease(state: State, request: Request) -> Lease | None:
    if request.server is None:
        return None
    return next(state.leases_of(request.user, request.server), None)


def asks_no_more(state: State, old: Request, new: Request) -> bool:
    """Whether a changed request asks for at most what it asked for before, and thus keeps its
    age: the same tenant, class, pool and flavor, and no larger in any respect. A duration that is
    not said is the default of the class.
    """
    a, b = old.ask, new.ask
    same = (
        (old.tenant, old.class_, old.kind) == (new.tenant, new.class_, new.kind)
        and a.pool in (None, b.pool)
        and a.flavor in (None, b.flavor)
    )
    smaller = (
        b.gpus <= a.gpus
        and _length(state, new) <= _length(state, old)
        and (b.min_memory or 0) <= (a.min_memory or 0)
        and (a.nvlink or not b.nvlink)
        and (b.cpus or 0) <= (a.cpus or 0)
        and (b.memory or 0) <= (a.memory or 0)
        and (not a.same_node or b.same_node or b.devices <= a.devices)
    )
    return same and smaller


def _length(state: State, request: Request) -> int:
    """How long a request is for, in milliseconds."""
    class_ = state.policy.classes.get(request.class_)
    return request.ask.duration or (0 if class_ is None else class_.duration.default)


def amend(
    state: State, now: int, request_id: str, changes: Mapping[str, Any], actor: str
) -> Request:
    """Change what a waiting request asks for. It keeps its age when it only asks for less."""
    old = _request(state, request_id, "queued", "parked")
    wants = {**wants_of(old), **changes}
    if "gpus" in changes and "devices" not in changes:
        wants.pop("devices", None)
    tenant, class_, ask = shape_of(state, old.kind, old.groups, wants)
    new = replace(old, tenant=tenant, class_=class_, ask=ask, reasons=())
    if not asks_no_more(state, old, new):
        new = replace(new, submitted_at=now)
    refusal = refused_for(state, new, replaces=old)
    if refusal is not None:
        raise Refusal(
            refusal.code, f"the changed request can never start: {refusal.code}", reason=refusal
        )
    end_claim(state, request_id, now, "the request was changed")
    why = (
        "asks for less, keeps its age" if new.submitted_at == old.submitted_at else "asks for more"
    )
    state.emit(now, "request.amended", new, actor, why)
    if actor == f"user:{new.user}":
        state.presence[new.user, new.id] = now
    return new


def wants_of(request: Request) -> dict[str, Any]:
    """The keys of contract.md, 2 that give this request again."""
    ask = request.ask
    names = (
        "gpus", "devices", "flavor", "pool", "nodes", "min_memory", "min_driver", "same_node",
        "nvlink", "duration", "interruptible", "borrow", "start", "cpus", "memory", "tolerations",
    )  # fmt: skip
    wants: dict[str, Any] = {name: getattr(ask, name) for name in names}
    wants = {key: value for key, value in wants.items() if value is not None}
    return {**wants, "tenant": request.tenant, "class": request.class_}


def cancel(state: State, now: int, request_id: str, actor: str) -> None:
    """Leave the line. A granted one is released; repeating it changes nothing."""
    request = state.requests.get(request_id)
    if request is None:
        return
    if request.state == "granted" and request.lease in state.leases:
        release(state, now, request.lease, actor)
        return
    end_claim(state, request_id, now, "the request was cancelled")
    end_request(state, request, "cancelled", now, actor, "cancelled")


def claim(state: State, now: int, request_id: str, actor: str) -> None:
    """The owner is there: a granted session starts, a parked ticket is in line again."""
    request = _request(state, request_id, "queued", "parked", "granted")
    state.presence[request.user, request.id] = now
    if request.state == "parked":
        state.emit(now, "request.queued", with_state(request, "queued", now), actor, "claimed")
    elif request.state == "granted" and request.lease in state.leases:
        lease = state.leases[request.lease]
        if lease.state == "granted" and lease.held_until is not None:
            ready = prepare_end(state, lease, now)
            claimed = replace(lease, held_until=None, term_ends_at=ready)
            state.emit(now, "lease.claimed", claimed, actor)


def presence(
    state: State, now: int, user: str, request_id: str | None = None, server: str | None = None
) -> None:
    """Somebody is looking at the waiting room of a request (or of all of a server's)."""
    for request in list(state.requests.values()):
        if request.user != user:
            continue
        if request_id is not None and request.id != request_id:
            continue
        if request_id is None and server is not None and request.server != server:
            continue
        state.presence[user, request.id] = now
        if request.state in ("granted", "parked"):
            claim(state, now, request.id, f"user:{user}")


def _request(state: State, request_id: str, *states: str) -> Request:
    request = state.requests.get(request_id)
    if request is None:
        raise Refusal("NotFound", f"there is no waiting or running request {request_id}")
    if request.state not in states:
        wanted = " or ".join(states)
        raise Refusal("Conflict", f"request {request_id} is {request.state}, not {wanted}")
    return request


def approve(
    state: State, now: int, request_id: str, by: str, reason: str = "", valid_for: int | None = None
) -> Request:
    """Approve the use of a class by a request, for as long as the class says or shorter."""
    request = _request(state, request_id, "queued", "parked")
    approval = state.policy.classes[request.class_].approval
    if approval is None:
        raise Refusal("Conflict", f"class {request.class_} needs no approval")
    longest = approval.valid_for
    if valid_for is not None and valid_for > longest:
        raise Refusal(
            "TooLong", f"an approval is valid for at most {show_duration(longest)}", "valid_for"
        )
    until = now + (valid_for or longest)
    grant = Grant(
        id=f"approval-{state.sequence}-{now}", kind="approval", subject=f"request:{request_id}",
        by=by, reason=reason, starts_at=now, ends_at=until,
    )  # fmt: skip
    state.emit(now, "approval.given", grant, by, reason)
    approved = replace(request, approved_until=until)
    state.emit(now, "request.approved", approved, by, reason)
    return approved
