"""Whether one request could be granted now, and if not, what stands against it.

The checks run in the order of the code below. Each names its rule; the first that fails is the
reason in a cell. Where a request may go to several cells, the reason of the cell in which it got
furthest is its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import quota
from .budget import budget_state
from .cells import Cell
from .events import Reservation
from .leases import LeasedDevice
from .lines import bucket_key
from .placement import Want, place
from .policy import Interruptible, WorkClass
from .reasons import reason
from .requests import Reason, Request
from .state import State
from .stock import Stock
from .times import gone_by

CEILING = 0
"""The rank of a request that its tenant's own use keeps off."""

PLACEMENT = 4
"""The rank of a request that quotas let pass and that no devices could be found for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A grant that could be made: where, on which basis, for how long."""

    cell: Cell
    devices: tuple[LeasedDevice, ...]
    lenders: tuple[tuple[str, int], ...]
    term: int
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Why not. ``rank`` is how many checks were passed. ``shortage`` is what must come back of
    what others borrow before the tenant's guarantee covers the request, ``owed`` whether it lies
    within that guarantee: then borrowed leases may be asked back for it.
    """

    reason: Reason
    rank: int = 0
    cell: Cell | None = None
    owed: bool = False
    shortage: int = 0


def interruptible_of(state: State, request: Request) -> Interruptible:
    """What the request says, else what its class says."""
    if request.ask.interruptible is not None:
        return request.ask.interruptible
    return state.policy.classes[request.class_].interruptible


def declared_term(state: State, request: Request) -> int:
    """The duration asked for, at most what the class allows."""
    rule = state.policy.classes[request.class_].duration
    return min(request.ask.duration or rule.default, rule.max)


def may_borrow(state: State, request: Request, class_: WorkClass) -> bool:
    """Whether a request may go beyond the guarantee at all: the class allows it, the request does
    not forbid it, and the work can be interrupted within the notice.
    """
    return (
        bool(class_.borrow)
        and request.ask.borrow is not False
        and interruptible_of(state, request) != "no"
    )


def check(
    state: State, request: Request, cells: tuple[tuple[str, str], ...], now: int
) -> Fit | Blocked:
    """What would be decided about a queued request if it were its turn now."""
    general = check_general(state, request, now)
    if general is not None:
        return Blocked(reason=general)
    best: Blocked | None = None
    for pool, flavor in cells:
        result = check_cell(state, request, state.cell(pool, flavor), now)
        if isinstance(result, Fit):
            return result
        if best is None or (result.owed, result.rank) > (best.owed, best.rank):
            best = result
    if best is None:
        return Blocked(
            reason=reason(
                "NoQuota", f"tenants.{request.tenant}.quotas", tenant=request.tenant,
                flavor=request.ask.flavor, pool=request.ask.pool,
            )
        )  # fmt: skip
    return best


def check_general(state: State, request: Request, now: int) -> Reason | None:
    """What stands against a request wherever it would be placed."""
    for switch, code in (("reconciling", "Reconciling"), ("paused", "GrantsPaused"),
                         ("unreachable", "BackendUnreachable")):  # fmt: skip
        if state.on(switch):
            known = state.switches[switch]
            return reason(code, switch, since=known.since, detail=known.text or None)
    if request.waits_for is not None and request.waits_for in state.leases:
        return reason(
            "EnvironmentPreparing", "server", leases=(request.waits_for,),
            detail="the server that had this name is still being stopped",
        )  # fmt: skip
    class_ = state.policy.classes.get(request.class_)
    tenant = state.policy.tenants.get(request.tenant)
    if class_ is None or tenant is None or tenant.disabled:
        return reason("NoQuota", f"tenants.{request.tenant}", tenant=request.tenant)
    if class_.approval is not None:
        if request.approved_until is None or request.approved_until <= now:
            return reason(
                "ApprovalPending", f"classes.{request.class_}.approval",
                by=class_.approval.by, class_=request.class_,
            )  # fmt: skip
        most = class_.approval.running_at_once
        if most is not None and state.running.get(request.class_, 0) >= most:
            return reason(
                "HeldForPriority", f"classes.{request.class_}.approval.running_at_once",
                running_at_once=most, class_=request.class_,
            )  # fmt: skip
    limit = tenant.limits.gpus_per_user
    if limit is not None:
        used = state.used_by_user.get((request.tenant, request.user), 0)
        if used + request.ask.gpus > limit:
            return reason(
                "UserLimitReached", f"tenants.{request.tenant}.limits.gpus_per_user",
                limit=limit, used=used, asked=request.ask.gpus, tenant=request.tenant,
            )  # fmt: skip
    return _check_budget(state, request, now)


def _check_budget(state: State, request: Request, now: int) -> Reason | None:
    budget = budget_state(state, request.tenant, now)
    if budget is None or not budget.spent_up or budget.rule.when_spent != "refuse":
        return None
    return reason(
        "BudgetSpent", f"tenants.{request.tenant}.budget", until=budget.renews_at,
        tenant=request.tenant, spent=budget.spent_gpu_hours, budget=budget.rule.gpu_hours,
        per=budget.rule.per, renews_at=budget.renews_at,
    )  # fmt: skip


def check_cell(state: State, request: Request, cell: Cell, now: int) -> Fit | Blocked:
    """What stands against a request in one pool and flavor, or the grant that fits."""
    where = f"{request.tenant}/{cell.pool}/{cell.flavor}"
    amount = request.ask.gpus
    share = quota.share_of(state, cell, request.tenant)
    pending = _pending_claims(state, request, cell)
    if share.used + pending + amount > share.ceiling:
        return Blocked(rank=CEILING, cell=cell, reason=reason(
            "CeilingReached", f"ceiling:{where}", tenant=request.tenant, flavor=cell.flavor,
            pool=cell.pool, ceiling=share.ceiling, used=share.used, asked=amount,
            held=pending or None,
        ))  # fmt: skip
    first = _kept_below_ceiling(state, request, cell, share, now)
    if first is not None:
        return Blocked(rank=1, cell=cell, reason=reason(
            "HeldForLargerRequest", f"ceiling:{where}", tenant=request.tenant, flavor=cell.flavor,
            request=first.request, larger=first.gpus, starts_at=first.starts_at, asked=amount,
        ))  # fmt: skip
    ends_at = None
    if state.reservations:
        ends_at = _ends_at(state, request, _term(state, request, cell, borrowed=False), now)
    own, beyond = quota.split(state, cell, request.tenant, amount, request.id, ends_at)
    if beyond:
        refusal = _check_borrowing(state, request, cell, share, own, beyond, now)
        if refusal is not None:
            return Blocked(rank=2, cell=cell, reason=refusal)
    shortage = quota.shortage(state, cell, request.tenant, own, beyond, request.id)
    if shortage and beyond:
        return Blocked(rank=3, cell=cell, reason=_nothing(state, request, cell, where, beyond))
    stock = state.stock(cell.pool, cell.flavor)
    term = _term(state, request, cell, borrowed=bool(beyond))
    devices = None
    if stock is not None and not shortage:
        want = want_of(state, request, term, now, owed=not beyond)
        devices = place(state, stock, want)
    if devices is None or stock is None:
        return Blocked(
            rank=PLACEMENT, cell=cell, owed=not beyond, shortage=shortage,
            reason=_occupied(state, request, cell, stock),
        )  # fmt: skip
    lenders = quota.choose_lenders(state, cell, request.tenant, beyond) if beyond else ()
    rule = f"borrowing:{where}" if beyond else f"guarantee:{where}"
    return Fit(cell=cell, devices=devices, lenders=lenders, term=term, rule=rule)


def _pending_claims(state: State, request: Request, cell: Cell) -> int:
    """What comes back for other requests of the same tenant, and will count below its ceiling."""
    where = (request.tenant, cell.pool, cell.flavor)
    total = state.coming.get(where, 0)
    own = state.claims.get(request.id) if total else None
    if own is not None and (own.tenant, own.pool, own.flavor) == where:
        total -= own.gpus
    return total


def _kept_below_ceiling(
    state: State, request: Request, cell: Cell, share: quota.Share, now: int
) -> Reservation | None:
    """A reservation of the same tenant that this request would leave no room for below the
    ceiling: it would still run when the reserved one is to start.
    """
    if request.id in state.claims:
        return None  # what is asked back for it was promised before
    for kept in state.reservations.values():
        if kept.request == request.id or kept.tenant != request.tenant:
            continue
        if (kept.pool, kept.flavor) != (cell.pool, cell.flavor):
            continue
        if state.policy.classes[request.class_].priority > kept.priority:
            continue
        holder = state.requests.get(kept.request)
        if holder is not None and _before(state, request, holder, alike=bool(kept.devices)):
            continue  # it was asked for before: room is kept from those behind
        term = _term(state, request, cell, borrowed=False)
        if _ends_at(state, request, term, now) <= kept.starts_at:
            continue
        then = sum(
            lease.gpus
            for lease in (state.leases[i] for i in state.by_cell.get((cell.pool, cell.flavor), ()))
            if lease.tenant == request.tenant and gone_by(state.policy, lease, now) > kept.starts_at
        )
        if then + kept.gpus + request.ask.gpus > share.ceiling:
            return kept
    return None


def _before(state: State, request: Request, holder: Request, *, alike: bool) -> bool:
    """Whether a request is in front of another one, and (``alike``) in the same line."""
    mine, other = (request.submitted_at, request.sequence), (holder.submitted_at, holder.sequence)
    if mine >= other:
        return False
    return not alike or bucket_key(state.policy, request) == bucket_key(state.policy, holder)


def _check_borrowing(
    state: State, request: Request, cell: Cell, share: quota.Share, own: int, beyond: int, now: int
) -> Reason | None:
    class_ = state.policy.classes[request.class_]
    note = None
    if not class_.borrow:
        note = f"class {request.class_} may not borrow"
    elif request.ask.borrow is False:
        note = "the request does not want to borrow"
    elif interruptible_of(state, request) == "no":
        note = "work that cannot be interrupted runs within the guarantee"
    budget = budget_state(state, request.tenant, now)
    if note is None and (
        budget is not None and budget.spent_up and budget.rule.when_spent == "no-borrowing"
    ):
        return reason(
            "BudgetSpent", f"tenants.{request.tenant}.budget", until=budget.renews_at,
            tenant=request.tenant, spent=budget.spent_gpu_hours, budget=budget.rule.gpu_hours,
            per=budget.rule.per, renews_at=budget.renews_at,
        )  # fmt: skip
    if note is None:
        return None
    return reason(
        "BorrowingRefused", f"classes.{request.class_}.borrow", tenant=request.tenant,
        flavor=cell.flavor, guarantee=share.guarantee, used=share.own, asked=request.ask.gpus,
        free_guarantee=own, note=note, class_=request.class_,
    )  # fmt: skip


def _nothing(state: State, request: Request, cell: Cell, where: str, beyond: int) -> Reason:
    """Nothing to borrow: either the owners use their guarantees, or they do not lend the rest."""
    lend, unused, loans, _ = quota.totals(state, cell)
    unused -= max(0, quota.share_of(state, cell, request.tenant).unused)
    free = max(0, unused - loans)
    code = "LendLimitReached" if free >= beyond else "NothingToBorrow"
    return reason(
        code, f"lend:{where}", tenant=request.tenant, flavor=cell.flavor, pool=cell.pool,
        asked=beyond, lend=lend, lent=loans, free_guarantee=free,
    )  # fmt: skip


def want_of(state: State, request: Request, term: int, now: int, *, owed: bool) -> Want:
    """What a placement for a request has to reckon with."""
    class_ = state.policy.classes[request.class_]
    return Want(
        request.ask,
        request.id,
        _ends_at(state, request, term, now),
        owed=owed,
        priority=class_.priority,
    )


def _occupied(state: State, request: Request, cell: Cell, stock: Stock | None) -> Reason:
    ask = request.ask
    if stock is None:
        return reason("NoSuchFlavor", "inventory", flavor=cell.flavor, pool=cell.pool)
    holder = holder_of(state, request, stock)
    if holder is not None:
        return reason(
            "HeldForLargerRequest", "reservation", asked=ask.gpus, free=stock.free,
            flavor=cell.flavor, request=holder,
        )  # fmt: skip
    if stock.free >= ask.gpus:
        return reason(
            "Fragmented", "placement", asked=ask.gpus, free=stock.free, flavor=cell.flavor,
        )  # fmt: skip
    return reason(
        "AllInUse", "placement", asked=ask.gpus, free=stock.free, flavor=cell.flavor,
        in_use=stock.in_service - stock.free, in_service=stock.in_service, pool=cell.pool,
    )  # fmt: skip


def holder_of(state: State, request: Request, stock: Stock) -> str | None:
    """The request that free devices are kept for, where a request would fit but for that."""
    if stock.free < request.ask.gpus or not (state.held or state.reserved):
        return None
    blind = Want(request.ask, request.id, 0, blind=True)
    fit = place(state, stock, blind)
    for device in fit or ():
        holder = state.held.get(device.uuid)
        if holder is None and device.uuid in state.reserved:
            holder = state.reserved[device.uuid][0]
        if holder is not None and holder != request.id:
            return holder
    return None


def _term(state: State, request: Request, cell: Cell, *, borrowed: bool) -> int:
    declared = declared_term(state, request)
    if not borrowed:
        return declared
    terms = state.policy.terms(request.tenant, request.class_)
    return min(declared, terms.term or declared)


def _ends_at(state: State, request: Request, term: int, now: int) -> int:
    """When devices granted now are certain to be free again: claim, preparing, term and stop."""
    class_ = state.policy.classes[request.class_]
    window = class_.claim_window if request.kind == "session" else 0
    rule = state.policy.reclaim_rule(
        class_=request.class_,
        flavor=request.ask.flavor or "",
        tenant=request.tenant,
        user=request.user,
    )
    return now + window + class_.prepare_within + term + rule.stop_grace
