"""The full explanation of a waiting request: place, reasons with numbers, and what would help.

Worked out on demand from the state by the same checks that decide, so that what is said is what
is done. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .amounts import MILLI
from .checks import Blocked, Fit, check, holder_of
from .leases import Lease
from .lines import Bucket, bucket_key, candidate_cells
from .ordering import position
from .reasons import reason
from .records import replace
from .requests import Ask, Reason, Request
from .returns import plan_return, waiting_for_return
from .shapes import refused_for, tainted
from .state import State
from .stock import Stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """A change of the request that would start it sooner. ``starts_at`` None: not known."""

    change: Mapping[str, Any]
    code: str
    starts_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a waiting person is told. ``position`` 1 is the next of ``in_line``."""

    position: int | None = None
    in_line: int = 0
    reasons: tuple[Reason, ...] = ()
    helps: tuple[Help, ...] = field(default=())


def explain(state: State, request: Request, now: int, *, helps: bool = True) -> Explanation:
    """Explain a request; one that is no longer waiting has the reasons of its end, if any."""
    if request.state == "granted":
        return Explanation(reasons=_claim_window(state, request))
    if request.state == "parked":
        text = reason("ClaimWindow", "claim_window", since=request.state_since, note="parked")
        return Explanation(reasons=(text,))
    if request.state != "queued":
        return Explanation(reasons=request.reasons)
    bucket = state.queue[bucket_key(state.policy, request)]
    place_, in_line = position(state, request, bucket, now)
    return Explanation(
        position=place_,
        in_line=in_line,
        reasons=reasons_of(state, request, bucket, now),
        helps=tuple(helps_of(state, request, now)) if helps else (),
    )


def _claim_window(state: State, request: Request) -> tuple[Reason, ...]:
    lease = state.leases.get(request.lease or "")
    if lease is None or lease.held_until is None:
        return ()
    return (reason("ClaimWindow", "claim_window", since=lease.granted_at, until=lease.held_until),)


def reasons_of(state: State, request: Request, bucket: Bucket, now: int) -> tuple[Reason, ...]:
    """The reasons of a queued request: first the one that binds it.

    For who is not the first of its line that is being behind, followed by what blocks the first.
    """
    first = state.requests[bucket.entries[0][2]]
    blocking = _blocking(state, first, bucket, now)
    if first.id == request.id:
        return blocking
    ahead = position(state, request, bucket, now)[0] - 1
    behind = reason(
        "BehindInQueue", "ordering", since=request.submitted_at, ahead=ahead,
        flavor=request.ask.flavor,
    )  # fmt: skip
    return (behind, *blocking)


def _blocking(state: State, first: Request, bucket: Bucket, now: int) -> tuple[Reason, ...]:
    since = first.state_since
    if first.reasons:
        since = first.reasons[0].since
    result = check(state, first, bucket.cells, now)
    if isinstance(result, Fit):
        # It would fit: it is between two cycles, or behind a line that is looked at before.
        return (reason("BehindInQueue", "ordering", since=since),)
    if first.id in state.claims:
        return (waiting_for_return(state, first),)
    found = result.reason
    if result.cell is not None and found.code in ("AllInUse", "Fragmented", "HeldForLargerRequest"):
        stock = state.stock(result.cell.pool, result.cell.flavor)
        if stock is not None:
            found = tainted(state, first, result.cell) or occupied(
                state, first, result, stock, bucket, now
            )
    return (replace(found, since=found.since or since),)


def occupied(
    state: State, request: Request, blocked: Blocked, stock: Stock, bucket: Bucket, now: int
) -> Reason:
    """Why devices of a flavor cannot be had although the quota allows it, in numbers."""
    ask = request.ask
    free = {
        name: len(shelf.free) * stock.capacity + sum(shelf.part.values())
        for name, shelf in stock.shelves.items()
        if shelf.free or shelf.part
    }
    ending = _next_end(state, stock)
    common: dict[str, Any] = {
        "asked": ask.gpus,
        "flavor": stock.flavor,
        "free": stock.free,
        "in_service": stock.in_service,
        "returns_at": ending.term_ends_at if ending is not None else None,
        "returns": ending.gpus if ending is not None else None,
    }
    since = blocked.reason.since
    if stock.free >= ask.gpus:
        holder = holder_of(state, request, stock)
        if holder is not None:
            return reason(
                "HeldForLargerRequest", "reservation", since=since, request=holder, **common
            )
        unhealthy = _unhealthy_nodes(stock)
        return reason(
            "Fragmented", "placement", since=since, free_by_node=tuple(sorted(free.items())),
            largest=max(free.values(), default=0), nodes=unhealthy or None, **common,
        )  # fmt: skip
    out = sum(1 for s in stock.shelves.values() for d in s.devices if d.health != "ok")
    code = "NodeUnhealthy" if stock.in_service < ask.gpus else "AllInUse"
    return reason(
        code, "placement", since=since, in_use=stock.in_service - stock.free,
        out_of_service=out * stock.capacity or None, nodes=_unhealthy_nodes(stock) or None,
        **common,
    )  # fmt: skip


def _unhealthy_nodes(stock: Stock) -> tuple[str, ...]:
    return tuple(
        name
        for name, shelf in sorted(stock.shelves.items())
        if not shelf.node.serves or any(device.health != "ok" for device in shelf.devices)
    )


def _next_end(state: State, stock: Stock) -> Lease | None:
    """The lease on this stock that ends first by its term."""
    ending: Lease | None = None
    for (_, flavor), members in state.by_cell.items():
        if flavor != stock.flavor:
            continue
        for lease_id in members:
            lease = state.leases[lease_id]
            if state.cell(lease.pool, flavor).group != stock.group:
                continue
            if ending is None or (lease.term_ends_at, lease.id) < (ending.term_ends_at, ending.id):
                ending = lease
    return ending


def helps_of(state: State, request: Request, now: int) -> list[Help]:
    """Changes with which the request would be granted at once: another flavor, fewer GPUs, being
    spread over nodes, borrowing allowed. At most four, the least change first.
    """
    found: list[Help] = []
    for code, change in _changes(state, request):
        ask = _changed(state, request, change)
        if ask is None:
            continue
        other = replace(request, ask=ask)
        if refused_for(state, other, replaces=request) is not None:
            continue
        if isinstance(check(state, other, candidate_cells(state.policy, other), now), Fit):
            found.append(Help(change=change, code=code, starts_at=now))
        if len(found) == 4:
            break
    return found


def _changes(state: State, request: Request) -> list[tuple[str, dict[str, Any]]]:
    ask = request.ask
    changes: list[tuple[str, dict[str, Any]]] = []
    whole = ask.gpus % MILLI == 0
    if request.kind == "job" and ask.same_node and ask.nodes == 1 and ask.devices > 1:
        changes.append(("spread", {"same_node": False}))
    if ask.nvlink:
        changes.append(("no_nvlink", {"nvlink": False}))
    if ask.borrow is False:
        changes.append(("borrow", {"borrow": True}))
    tenant = state.policy.tenants.get(request.tenant)
    for quota in tenant.quotas if tenant is not None else ():
        if ask.flavor is not None and quota.flavor != ask.flavor and quota.most > 0:
            changes.append(("flavor", {"flavor": quota.flavor}))
    if whole and ask.gpus > MILLI:
        sizes = sorted({ask.gpus - MILLI, ask.gpus // 2 // MILLI * MILLI, MILLI}, reverse=True)
        changes += [("fewer", {"gpus": size}) for size in sizes if 0 < size < ask.gpus]
    return changes


def _changed(state: State, request: Request, change: Mapping[str, Any]) -> Ask | None:
    ask = replace(request.ask, **change)
    if "gpus" in change:
        ask = replace(ask, devices=max(1, -(-ask.gpus // MILLI)))
    if "flavor" in change:
        sharing = state.policy.flavors[change["flavor"]].sharing
        share = sharing.share if sharing is not None else MILLI
        if ask.per_device % share:
            return None
    if ask.gpus % ask.devices or ask.devices % ask.nodes:
        return None
    return ask


def preview(state: State, request: Request, now: int) -> Fit | Blocked | Reason:
    """What would be decided about a request that is not in the queue, if it were asked now.

    A request of lower order than one that waits for the same devices is decided after it; that it
    fits now is the answer all the same, since the waiting one does not fit.
    """
    refusal = refused_for(state, request)
    if refusal is not None:
        return refusal
    return check(state, request, candidate_cells(state.policy, request), now)


def would_return(state: State, request: Request, blocked: Blocked, now: int) -> int | None:
    """When devices asked back for a request would be there at the latest; None: nothing to ask."""
    if not blocked.owed or blocked.cell is None:
        return None
    plan = plan_return(state, request, blocked.cell, blocked.shortage, now)
    return plan.ready_at if plan is not None else None
