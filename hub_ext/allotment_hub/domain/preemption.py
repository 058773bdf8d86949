"""Taking from lower classes of the same tenant, where the policy says that a class may.

A class that ``preempts`` others may have their leases stopped for its own work, with the notice
of those leases: only of its own tenant, only within the tenant's guarantee (what is borrowed goes
back by :mod:`.returns`), never within a protected period, never work that cannot be interrupted.
"""

from __future__ import annotations

from . import quota
from .cells import Cell
from .leases import Lease
from .placement import Want
from .requests import Request
from .returns import Plan, cost, ends_by, plan_devices
from .state import State
from .times import ends_anyway


def preemptable(state: State, request: Request, cell: Cell, now: int) -> list[Lease]:
    """Leases of the request's tenant that its class may preempt in a cell, cheapest first."""
    class_ = state.policy.classes[request.class_]
    found = [
        lease
        for lease in (state.leases[i] for i in state.by_cell.get((cell.pool, cell.flavor), ()))
        if lease.tenant == request.tenant
        and (lease.class_ in class_.preempts or ends_anyway(lease))
        and lease.priority < class_.priority
        and lease.interruptible != "no"
        and lease.state != "granted"
        and state.claim_of.get(lease.id, request.id) == request.id
    ]
    return sorted(found, key=lambda lease: cost(lease, now))


def plan_preemption(state: State, request: Request, cell: Cell, now: int) -> Plan | None:
    """The fewest of the cheapest leases whose end lets a request start; None where none would."""
    stock = state.stock(cell.pool, cell.flavor)
    if stock is None or not state.policy.classes[request.class_].preempts:
        return None
    offered = preemptable(state, request, cell, now)
    needed = _needed_for_quota(state, request, cell, offered)
    if needed is None or not offered:
        return None
    ends = max(ends_by(lease, now) for lease in offered)
    want = Want(
        request.ask,
        request.id,
        ends,
        owed=True,
        priority=state.policy.classes[request.class_].priority,
    )
    for count in range(needed, len(offered) + 1):
        placed = plan_devices(state, stock, want, offered[:count], now)
        if placed is not None:
            victims = list(dict.fromkeys([*offered[:needed], *placed[0]]))
            ready_at = max((ends_by(lease, now) for lease in victims), default=now)
            return Plan(tuple(victims), tuple(placed[1]), ready_at)
    return None


def _needed_for_quota(
    state: State, request: Request, cell: Cell, offered: list[Lease]
) -> int | None:
    """How many of the offered leases have to end until guarantee and ceiling leave room."""
    share = quota.share_of(state, cell, request.tenant)
    pending = quota.claimed(state, cell, request.tenant, request.id)
    over_ceiling = share.used + pending + request.ask.gpus - share.ceiling
    over_own = share.own + pending + request.ask.gpus - share.guarantee
    count = 0
    while over_ceiling > 0 or over_own > 0:
        if count == len(offered):
            return None
        lease = offered[count]
        over_ceiling -= lease.gpus
        over_own -= lease.gpus - lease.borrowed
        count += 1
    return count
