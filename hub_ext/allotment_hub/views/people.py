"""A tenant's quotas with their use, and what one person sees of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allotment_hub.domain.amounts import HOUR, show_gpus
from allotment_hub.domain.budget import budget_state
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import Quota
from allotment_hub.domain.quota import share_of
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State

from .frame import Frame, gpus
from .leases import lease_view
from .notices import notices_of
from .outlook import outlook_of
from .requests import request_view


def tenant_view(frame: Frame, name: str) -> dict[str, Any]:
    """Show a tenant in the shape of REST.

    What is used without a quota has a line too: use belongs to what runs, not to what is
    configured.
    """
    state = frame.state
    tenant = state.policy.tenants.get(name)
    cells = list(state.cells.values())
    return {
        "name": name,
        "groups": list(tenant.groups) if tenant else [],
        "disabled": tenant.disabled if tenant else True,
        "quotas": [_quota(state, name, quota) for quota in _lines(state, name)],
        "used": gpus(state.used_by_tenant.get(name, 0)),
        "borrowed": gpus(sum(cell.borrowed.get(name, 0) for cell in cells)),
        "lent": gpus(sum(cell.lent.get(name, 0) for cell in cells)),
        "budget": _budget(frame, name),
        "queued": sum(
            1 for request in state.requests.values()
            if request.tenant == name and request.state == "queued"
        ),
        "limits": None if tenant is None else {
            "gpus_per_user": None if tenant.limits.gpus_per_user is None
            else gpus(tenant.limits.gpus_per_user),
            "queued_per_user": tenant.limits.queued_per_user,
        },
    }  # fmt: skip


def _budget(frame: Frame, tenant: str) -> dict[str, Any] | None:
    """GPU-hours of the present period: what running leases have cost so far is in."""
    budget = budget_state(frame.state, tenant, frame.now)
    if budget is None:
        return None
    return {
        "gpu_hours": show_gpus(budget.rule.gpu_hours),
        "per": budget.rule.per,
        "when_spent": budget.rule.when_spent,
        "spent": round(budget.spent / HOUR / 1000, 3),
        "left": round(max(0, budget.limit - budget.spent) / HOUR / 1000, 3),
        "renews_at": frame.time(budget.renews_at),
    }


def _lines(state: State, tenant: str) -> list[Quota]:
    """The quota lines of a tenant, then a line of zeros for each cell used without one."""
    known = state.policy.tenants.get(tenant)
    lines = list(known.quotas) if known else []
    have = {(quota.pool, quota.flavor) for quota in lines}
    for key, cell in state.cells.items():
        if cell.used.get(tenant) and key not in have:
            lines.append(Quota(pool=key[0], flavor=key[1], guarantee=0, ceiling=0, lend=0))
    return lines


def _quota(state: State, tenant: str, quota: Quota) -> dict[str, Any]:
    """One line: ``guarantee = guaranteed + lent + free`` while nothing is over the guarantee.

    ``over`` is what exceeds it without being borrowed (a quota that was lowered).
    """
    cell = state.cell(quota.pool, quota.flavor)
    share = share_of(state, cell, tenant)
    stock = state.stock(quota.pool, quota.flavor)
    most = (
        0
        if stock is None
        else _total(stock.capacity, [len(s.devices) for s in stock.shelves.values()])
    )
    guaranteed = min(share.own, quota.guarantee)
    return {
        "pool": quota.pool,
        "flavor": quota.flavor,
        "guarantee": gpus(quota.guarantee, most),
        "ceiling": gpus(quota.most, most),
        "lend": gpus(quota.lends, most),
        "used": show_gpus(share.used),
        "guaranteed": show_gpus(guaranteed),
        "borrowed": show_gpus(share.borrowed),
        "lent": show_gpus(share.lent),
        "free": show_gpus(max(0, quota.guarantee - guaranteed - share.lent)),
        "over": show_gpus(share.own - guaranteed),
    }


def _total(capacity: int, counts: Iterable[int]) -> int:
    return capacity * sum(counts)


def me_view(
    frame: Frame,
    *,
    groups: Iterable[str],
    requests: Iterable[Request] | None = None,
    leases: Iterable[Lease] | None = None,
) -> dict[str, Any]:
    """Show one person's own: tenants, requests, leases and notices.

    Parameters
    ----------
    groups : iterable of str
        The person's groups: they decide the tenants.
    requests, leases : iterable or None
        The rows to show; None takes the live ones of the state.
    """
    state, name = frame.state, frame.viewer.name
    mine = set(groups)
    own_leases = state.leases.values() if leases is None else leases
    own_requests = state.requests.values() if requests is None else requests
    return {
        "user": name,
        "admin": frame.viewer.admin,
        "owns": sorted(frame.viewer.owns),
        "tenants": [
            tenant_view(frame, tenant)
            for tenant, rules in state.policy.tenants.items()
            if tenant in frame.viewer.owns or not mine.isdisjoint(rules.groups)
        ],
        "requests": [
            request_view(
                frame,
                row,
                lease=state.leases.get(row.lease or ""),
                outlook=outlook_of(frame, row, helps=False),
            )
            for row in own_requests
            if row.user == name
        ],
        "leases": [lease_view(frame, row) for row in own_leases if row.user == name],
        "notices": notices_of(frame, name),
        "policy_version": state.version.number,
    }
