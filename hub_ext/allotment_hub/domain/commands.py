"""What people, servers and backends ask of the pool. Each is checked whole before it changes
anything; what is not possible raises :class:`Refusal` and leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .amounts import HOUR, show_duration
from .budget import budget_state
from .events import Grant, NodeRecord, PolicyVersion, Switch
from .inventory import Health, Node
from .leases import Lease, Reclaim, Trigger
from .policy import Policy
from .records import replace
from .requests import Request, RequestKind, RequestState
from .returns import end_claim
from .shapes import Refusal, refused_for, shape_of
from .state import State, with_state
from .timers import charge, stop

__all__ = ["Refusal"]

MAX_ATTEMPTS = 3
"""Starts that may fail for reasons of the infrastructure before a request is given up."""


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
    waiting = _same_server(state, request)
    refusal = refused_for(state, request, replaces=waiting[0] if waiting else None)
    if refusal is not None:
        rejected = replace(request, state="rejected", reasons=(replace(refusal, since=now),))
        state.emit(now, "request.rejected", rejected, actor, refusal.code)
        return rejected
    for old in waiting:
        if asks_no_more(state, old, request):
            request = replace(request, submitted_at=min(request.submitted_at, old.submitted_at))
        end_claim(state, old.id, now, f"replaced by {id}")
        _end(state, old, "cancelled", now, actor, f"replaced by {id}")
    held = _live_lease(state, request)
    if held is not None:
        request = replace(request, waits_for=held.id)
    state.emit(now, "request.queued", request, actor)
    if held is not None and held.state != "stopping":
        release(state, now, held.id, "governor", f"the same server was asked for again as {id}")
    state.presence[user, id] = now  # who has just asked is looking
    return request


def _same_server(state: State, request: Request) -> list[Request]:
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
    _end(state, request, "cancelled", now, actor, "cancelled")


def claim(state: State, now: int, request_id: str, actor: str) -> None:
    """The owner is there: a granted session starts, a parked ticket is in line again."""
    request = _request(state, request_id, "queued", "parked", "granted")
    state.presence[request.user, request.id] = now
    if request.state == "parked":
        state.emit(now, "request.queued", with_state(request, "queued", now), actor, "claimed")
    elif request.state == "granted" and request.lease in state.leases:
        lease = state.leases[request.lease]
        if lease.state == "granted" and lease.held_until is not None:
            ready = _prepare_end(state, lease, now)
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


def _end(state: State, request: Request, to: RequestState, now: int, actor: str, why: str) -> None:
    ended = with_state(request, to, now)
    state.emit(now, f"request.{to}", ended, actor, why)


def _request(state: State, request_id: str, *states: str) -> Request:
    request = state.requests.get(request_id)
    if request is None:
        raise Refusal("NotFound", f"there is no waiting or running request {request_id}")
    if request.state not in states:
        wanted = " or ".join(states)
        raise Refusal("Conflict", f"request {request_id} is {request.state}, not {wanted}")
    return request


# -- leases ----------------------------------------------------------------------------------


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
        term_ends_at=_prepare_end(state, lease, now),
    )  # fmt: skip
    state.emit(now, "lease.preparing", begun)
    return begun


def _prepare_end(state: State, lease: Lease, now: int) -> int:
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
    if (again_wanted or lease.end_reason.startswith("retry: ")) and not _same_server(
        state, request
    ):
        again = with_state(request, "queued", now, lease=None, waits_for=None)
        state.emit(now, "request.queued", again, actor, "queued again with its age")
    elif actor == f"user:{lease.user}" and lease.state == "granted":
        _end(state, replace(request, lease=None), "cancelled", now, actor, why)
    else:
        _end(state, request, "done", now, actor, why)


def _lease(state: State, lease_id: str, *states: str) -> Lease:
    lease = state.leases.get(lease_id)
    if lease is None:
        raise Refusal("NotFound", f"there is no live lease {lease_id}")
    if lease.state not in states:
        raise Refusal("Conflict", f"lease {lease_id} is {lease.state}, not {' or '.join(states)}")
    return lease


# -- the pool --------------------------------------------------------------------------------


def set_policy(state: State, now: int, policy: Policy, by: str, note: str = "") -> PolicyVersion:
    """Put a policy in force, whole. Running leases keep what they were granted under."""
    version = PolicyVersion(
        number=state.version.number + 1, policy=policy, by=by, at=now, note=note
    )
    state.emit(now, "policy.applied", version, by, note)
    return version


def set_nodes(state: State, now: int, nodes: Iterable[Node]) -> None:
    """Take over an inventory: changed nodes are replaced, absent ones are gone."""
    fresh = {node.name: node for node in nodes}
    for name in sorted(set(state.nodes) - set(fresh)):
        state.emit(now, "node.gone", NodeRecord(node=state.nodes[name], gone=True), "inventory")
    for name in sorted(fresh):
        old = state.nodes.get(name)
        new = replace(fresh[name], draining=old.draining) if old is not None else fresh[name]
        if old != new:
            what = "node.changed" if old is not None else "node.added"
            state.emit(now, what, NodeRecord(node=new), "inventory")


def set_node(state: State, now: int, name: str, actor: str = "inventory", **changes: Any) -> None:
    """Change what is known of a node: ``health``, ``taints``, ``draining`` and so on."""
    node = state.nodes.get(name)
    if node is None:
        raise Refusal("NotFound", f"there is no node {name}", "node")
    changed = replace(node, **changes)
    if changed != node:
        state.emit(now, "node.changed", NodeRecord(node=changed), actor)


def set_device(state: State, now: int, uuid: str, health: Health, detail: str = "") -> None:
    """Change the health of a device. A device that is not ``ok`` is granted to nobody; the lease
    that holds it is left alone.
    """
    for node in state.nodes.values():
        for device in node.devices:
            if device.uuid == uuid:
                if (device.health, device.detail) == (health, detail):
                    return
                changed = replace(device, health=health, detail=detail, since=now)
                devices = tuple(changed if d.uuid == uuid else d for d in node.devices)
                record = NodeRecord(node=replace(node, devices=devices))
                state.emit(now, "device.changed", record, "inventory", f"{uuid} is {health}")
                return
    raise Refusal("NotFound", f"there is no device {uuid}", "device")


def drain(state: State, now: int, name: str, on: bool, by: str) -> None:
    """Put nothing new on a node (or again)."""
    set_node(state, now, name, by, draining=on)


def switch(state: State, now: int, name: str, on: bool, by: str, text: str = "") -> None:
    """Turn ``paused``, ``reconciling`` or ``unreachable`` on or off for the whole pool."""
    if state.on(name) != on:
        known = Switch(name=name, on=on, text=text, since=now)
        state.emit(now, f"switch.{name}", known, by, text)


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


def exempt(
    state: State, now: int, subject: str, by: str, reason: str, ends_at: int, id: str
) -> Grant:
    """Except a lease, a user or a class from reclaim, with a reason and an end."""
    if not reason.strip():
        raise Refusal("ReasonMissing", "an exemption needs a reason", "reason")
    if ends_at <= now:
        raise Refusal("EndMissing", "an exemption needs an end that lies ahead", "ends_at")
    grant = Grant(
        id=id,
        kind="exemption",
        subject=subject,
        by=by,
        reason=reason,
        starts_at=now,
        ends_at=ends_at,
    )
    state.emit(now, "exemption.given", grant, by, reason)
    return grant


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
