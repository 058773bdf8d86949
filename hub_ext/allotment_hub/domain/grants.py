"""Turning a fit into a lease."""

from __future__ import annotations

from . import quota
from .checks import Fit, interruptible_of
from .leases import Lease
from .loans import move_loans
from .requests import Request
from .reservations import end_reservation
from .returns import (
    end_claim,
)
from .state import State, with_state


def grant(
    state: State,
    request: Request,
    fit: Fit,
    now: int,
    passed: tuple[str, ...] = (),
    first_by: str = "",
) -> Lease:
    """Turn a fit into a lease. The grant, and what it changes for others, are one batch."""
    class_ = state.policy.classes[request.class_]
    watched = (
        request.kind != "session" or request.ask.start == "always" or state.present(request, now)
    )
    held_until = None if watched else now + class_.claim_window
    lease = _lease(state, request, fit, now, held_until, passed)
    state.emit(now, "lease.granted", lease, why=fit.rule)
    granted = with_state(
        request, "granted", now, lease=lease.id, grants=request.grants + 1, reasons=()
    )
    why = f"{fit.rule}; first by rule {first_by}" if first_by else fit.rule
    state.emit(now, "request.granted", granted, why=why)
    end_claim(state, request.id, now, "granted")
    end_reservation(state, request.id, now, "granted")
    if quota.spare(state, fit.cell, request.tenant) < 0:
        move_loans(state, fit.cell, now)
    return lease


def _lease(
    state: State, request: Request, fit: Fit, now: int, held_until: int | None,
    passed: tuple[str, ...],
) -> Lease:  # fmt: skip
    policy, cell = state.policy, fit.cell
    class_ = policy.classes[request.class_]
    terms = policy.terms(request.tenant, request.class_)
    rule = policy.reclaim_rule(
        class_=request.class_, flavor=cell.flavor, tenant=request.tenant, user=request.user
    )
    borrowed = bool(fit.lenders)
    longest = max(class_.duration.max, fit.term)
    # A guaranteed lease may be renewed up to the longest duration of its class.
    renewals = (terms.renewals or 0) if borrowed else -(-(longest - fit.term) // max(1, fit.term))
    protected = (terms.protected or 0) if borrowed else 0
    return Lease(
        id=f"{request.id}.{request.grants + 1}",
        request=request.id,
        fence=state.fence + 1,
        kind=request.kind,
        class_kind=class_.kind,
        user=request.user,
        tenant=request.tenant,
        class_=request.class_,
        pool=cell.pool,
        flavor=cell.flavor,
        gpus=request.ask.gpus,
        devices=fit.devices,
        state="granted",
        rule=fit.rule,
        policy_version=state.version.number,
        granted_at=now,
        term=fit.term,
        term_ends_at=held_until if held_until is not None else now + class_.prepare_within,
        interruptible=interruptible_of(state, request),
        lenders=fit.lenders,
        borrowed_at_grant=borrowed,
        state_since=now,
        renewals_left=renewals,
        keeps_left=rule.keep.times,
        protected=protected,
        protected_until=now + protected,
        notice=(terms.notice or 0) if borrowed else rule.notice,
        stop_grace=rule.stop_grace,
        held_until=held_until,
        server=request.server,
        cpus=(request.ask.cpus or 0) // request.ask.nodes,
        memory=(request.ask.memory or 0) // request.ask.nodes,
        priority=class_.priority,
        passed=passed,
        passed_why="fits where they do not" if passed else "",
    )
