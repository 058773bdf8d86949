"""Keeping devices together for a request that is first in line and does not fit yet.

One reservation per stock: the first in line that placement blocks, once it has waited
``ordering.reserve_after``. It names the devices that come back first by the terms of the leases
on them, and the time when the last of them is back at the latest. Until then others may use them
only where they are certain to end before (EASY backfilling: Lifka 1995; with terms in place of
estimates, so that the time is a bound and not a guess). A renewal that would reach into it is
refused.

A reservation binds work of its own class's priority and below. One of a request that would borrow
never stands in the way of a guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .cells import Cell
from .checks import CEILING, Blocked
from .events import Reservation
from .inventory import group_of_pool
from .leases import Lease, LeasedDevice
from .placement import Want, node_suits
from .records import replace
from .requests import Request
from .returns import plan_anywhere, plan_node
from .state import State
from .stock import Stock
from .times import gone_by


@dataclass(frozen=True, slots=True)
class Slot:
    """Devices, and when the last of them is free at the latest."""

    devices: tuple[LeasedDevice, ...]
    starts_at: int


def earliest_slot(state: State, request: Request, cell: Cell, now: int) -> Slot | None:
    """The first moment, by the terms of the running leases, at which a request fits; None where
    it would not fit even then (devices out of service or held for a claim).
    """
    stock = state.stock(cell.pool, cell.flavor)
    if stock is None:
        return None
    running = [
        state.leases[lease_id]
        for pool in state.policy.pools
        if group_of_pool(state.policy, pool) == cell.group
        for lease_id in state.by_cell.get((pool, cell.flavor), ())
    ]
    ends = {lease.id: gone_by(state.policy, lease, now) for lease in running}
    running.sort(key=lambda lease: (ends[lease.id], lease.id))
    latest = max(ends.values(), default=now)
    want = Want(request.ask, request.id, latest, owed=True)
    if not request.ask.same_node and request.ask.nodes == 1:
        found = plan_anywhere(state, stock, want, running)
        if found is None:
            return None
        return Slot(tuple(found[1]), max((ends[x.id] for x in found[0]), default=now))
    return _on_nodes(state, stock, want, running, ends, now)


def _on_nodes(
    state: State,
    stock: Stock,
    want: Want,
    running: Sequence[Lease],
    ends: dict[str, int],
    now: int,
) -> Slot | None:
    by_node: dict[str, list[Lease]] = {}
    for lease in running:
        for name in lease.nodes:
            by_node.setdefault(name, []).append(lease)
    options = []
    for name, shelf in stock.shelves.items():
        if not node_suits(state, shelf.node, want.ask, empty=True):
            continue
        planned = plan_node(state, stock, shelf, want, by_node.get(name, ()))
        if planned is not None:
            taken, devices = planned
            starts = max((ends[lease.id] for lease in taken), default=now)
            options.append((starts, len(taken), name, devices))
    options.sort(key=lambda option: option[:3])
    chosen = options[: want.ask.nodes]
    if len(chosen) < want.ask.nodes:
        return None
    return Slot(tuple(d for option in chosen for d in option[3]), max(o[0] for o in chosen))


def reserve(state: State, request: Request, blocked: Blocked, now: int) -> None:
    """Make, move or leave the reservation of a request that placement blocks."""
    cell = blocked.cell
    if cell is None or request.id in state.claims:
        return
    mine = state.reservations.get(request.id)
    if mine is None and (
        now - request.submitted_at < state.policy.ordering.reserve_after
        or _somebody_has(state, request, cell, blocked)
    ):
        return
    if mine is not None and mine.starts_at > now and state.all_serve(mine.devices):
        kept = _kept(state, request, mine.devices)
        if mine.kept != kept:
            state.emit(
                now, "reservation.moved", replace(mine, kept=kept), why="its own use changed"
            )
        return
    if blocked.rank == CEILING:
        slot = _below_ceiling(state, request, cell, now)
    else:
        slot = earliest_slot(state, request, cell, now)
    if slot is not None and blocked.shortage:
        slot = _after_loans(state, cell, slot, blocked.shortage, now)
    if slot is None:
        if mine is not None:
            end_reservation(state, request.id, now, "no device of it will come back")
        return
    devices = tuple((device.uuid, device.share) for device in slot.devices)
    made = Reservation(
        request=request.id,
        tenant=request.tenant,
        gpus=request.ask.gpus,
        pool=cell.pool,
        flavor=cell.flavor,
        priority=state.policy.classes[request.class_].priority,
        kept=_kept(state, request, devices) if blocked.owed else 0,
        devices=devices,
        starts_at=slot.starts_at,
        made_at=mine.made_at if mine is not None else now,
        owed=blocked.owed,
    )
    if made != mine:
        what = "reservation.made" if mine is None else "reservation.moved"
        state.emit(now, what, made, why=f"first in line for {cell.pool}/{cell.flavor}")


def _after_loans(state: State, cell: Cell, slot: Slot, shortage: int, now: int) -> Slot | None:
    """The slot, not before as much of what is lent has ended by its terms as the owner lacks."""
    loans = [
        state.leases[lease_id]
        for lease_id in state.by_cell.get((cell.pool, cell.flavor), ())
        if state.leases[lease_id].lenders
    ]
    loans.sort(key=lambda lease: (gone_by(state.policy, lease, now), lease.id))
    for lease in loans:
        shortage -= lease.borrowed
        if shortage <= 0:
            return replace(slot, starts_at=max(slot.starts_at, gone_by(state.policy, lease, now)))
    return None


def _somebody_has(state: State, request: Request, cell: Cell, blocked: Blocked) -> bool:
    """Whether another reservation stands already: one for devices a stock, one for room below the
    ceiling a tenant.
    """
    for other in state.reservations.values():
        if blocked.rank == CEILING:
            where = (other.tenant, other.pool, other.flavor)
            if where == (request.tenant, cell.pool, cell.flavor):
                return True
        elif other.devices and _key(state, other) == (cell.group, cell.flavor):
            return True
    return False


def _kept(state: State, request: Request, devices: tuple[tuple[str, int], ...]) -> int:
    """What of the guarantee has to stay unused: the rest is freed by the tenant's own leases."""
    reserved = {uuid for uuid, _ in devices}
    own = sum(
        device.share
        for lease in state.leases.values()
        if lease.tenant == request.tenant and not lease.lenders
        for device in lease.devices
        if device.uuid in reserved
    )
    return max(0, request.ask.gpus - own)


def _below_ceiling(state: State, request: Request, cell: Cell, now: int) -> Slot | None:
    """When the tenant's own leases leave room for a request below its ceiling, by their terms."""
    quota = state.quotas.get((request.tenant, cell.pool, cell.flavor))
    own = [
        state.leases[lease_id]
        for lease_id in state.by_cell.get((cell.pool, cell.flavor), ())
        if state.leases[lease_id].tenant == request.tenant
    ]
    over = sum(lease.gpus for lease in own) + request.ask.gpus - (quota.most if quota else 0)
    for lease in sorted(own, key=lambda lease: (gone_by(state.policy, lease, now), lease.id)):
        over -= lease.gpus
        if over <= 0:
            return Slot((), gone_by(state.policy, lease, now))
    return None


def _key(state: State, kept: Reservation) -> tuple[str, str]:
    return state.cell(kept.pool, kept.flavor).group, kept.flavor


def end_reservation(state: State, request_id: str, now: int, why: str) -> None:
    """Give the devices of a reservation back to everybody."""
    kept = state.reservations.get(request_id)
    if kept is not None:
        state.emit(now, "reservation.ended", replace(kept, active=False), why=why)


def check_reservations(state: State, now: int) -> None:
    """End the reservations of requests that no longer wait."""
    for request_id in sorted(state.reservations):
        request = state.requests.get(request_id)
        if request is None or request.state != "queued":
            end_reservation(state, request_id, now, "the request no longer waits")
