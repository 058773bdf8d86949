"""Asking borrowed leases back for a request that its tenant's guarantee covers.

One claim per request: the set of leases asked back and the placement they make. The set is the
cheapest whose end lets the request start: what ends anyway costs nothing; then leases beyond
their protected period before those within it, lower classes first, the youngest first (the least
work lost), and no lease whose end would not help. The placement is worked out before anybody is
told (a claim that could not be placed asks nobody).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cells import Cell
from .events import Claim
from .inventory import group_of_pool
from .leases import Lease, LeasedDevice, Reclaim
from .placement import Usable, Want, leased_device, node_suits, pick, usable, usable_of
from .reasons import reason
from .records import replace
from .requests import Reason, Request
from .state import State
from .stock import Shelf, Stock
from .timers import undo
from .times import ends_anyway

Cost = tuple[int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who would be asked back, for which placement, and when it is complete at the latest."""

    victims: tuple[Lease, ...]
    devices: tuple[LeasedDevice, ...]
    ready_at: int


def ends_by(lease: Lease, now: int) -> int:
    """When a lease is gone at the latest if it is asked back now."""
    if lease.state == "stopping":
        return now + lease.stop_grace
    if lease.state in ("noticed", "frozen") and lease.reclaim is not None:
        return min(lease.reclaim.step_ends_at, lease.term_ends_at) + lease.stop_grace
    asked = max(now, lease.protected_until) + lease.notice
    if lease.active_at is not None:  # before that, the end is that of preparing, and moves
        asked = min(asked, max(now, lease.term_ends_at))
    return asked + lease.stop_grace


def cost(lease: Lease, now: int) -> Cost:
    """What it costs to take a lease: smallest first."""
    if ends_anyway(lease):
        return (0, ends_by(lease, now), 0, 0, lease.id)
    protected = 2 if lease.protected_until > now else 1
    wait = ends_by(lease, now) if protected == 2 else 0
    return (protected, wait, lease.priority, -lease.granted_at, lease.id)


def candidates(state: State, request: Request, cell: Cell, now: int) -> list[Lease]:
    """Leases on the same kind of device that may be taken for a request, cheapest first.

    Only borrowed ones, and those that end anyway; never of work declared as not interruptible,
    never one that another claim counts on. Where loans are kept (a switch, for comparisons), only
    those that end anyway.
    """
    found = []
    kept = state.on("loans-kept")
    for pool in state.policy.pools:
        if group_of_pool(state.policy, pool) != cell.group:
            continue
        for lease_id in state.offers.get((pool, cell.flavor), ()):
            lease = state.leases[lease_id]
            if state.claim_of.get(lease.id, request.id) != request.id:
                continue
            borrowed = lease.lenders and lease.interruptible != "no" and not kept
            if borrowed or ends_anyway(lease):
                found.append(lease)
    return sorted(found, key=lambda lease: cost(lease, now))


def plan_return(state: State, request: Request, cell: Cell, shortage: int, now: int) -> Plan | None:
    """The cheapest return that lets a request start, or None where none would."""
    stock = state.stock(cell.pool, cell.flavor)
    if stock is None:
        return None
    if stock.free + state.takeable.get((cell.group, cell.flavor), 0) < request.ask.gpus:
        return None
    offered = candidates(state, request, cell, now)
    if not offered:
        return None
    # Devices come back at different times; a reservation of somebody else is kept throughout.
    want = Want(request.ask, request.id, max(ends_by(lease, now) for lease in offered), owed=True)
    if shortage:
        lent = _on_what_is_lent(state, stock, cell, want, offered, shortage, now)
        if lent is not None:
            return lent
    placed = plan_devices(state, stock, want, offered, now)
    if placed is None:
        return None
    victims = _cover_shortage(cell, placed[0], offered, shortage)
    if victims is None:
        return None
    ready_at = max((ends_by(lease, now) for lease in victims), default=now)
    return Plan(tuple(victims), tuple(placed[1]), ready_at)


def _on_what_is_lent(
    state: State,
    stock: Stock,
    cell: Cell,
    want: Want,
    offered: Sequence[Lease],
    shortage: int,
    now: int,
) -> Plan | None:
    """A return of what the owner has lent, on the very devices that come back: what is free
    besides may be the guarantee of somebody who does not lend.
    """
    victims = _cover_shortage(cell, [], offered, shortage)
    if victims is None:
        return None
    devices = frozenset(device.uuid for lease in victims for device in lease.devices)
    placed = plan_devices(state, stock, replace(want, only=devices), victims, now)
    if placed is None:
        return None
    ready_at = max(ends_by(lease, now) for lease in victims)
    return Plan(tuple(victims), tuple(placed[1]), ready_at)


def _cover_shortage(
    cell: Cell, victims: list[Lease], offered: Sequence[Lease], shortage: int
) -> list[Lease] | None:
    """Add borrowers of the cell until as much comes back as the owner lacks."""

    def gives(lease: Lease) -> int:
        # The end of a lease gives back the loan itself; its tenant's own part frees besides, but
        # that is its tenant's again and not the claimant's.
        return lease.borrowed if (lease.pool, lease.flavor) == (cell.pool, cell.flavor) else 0

    chosen = list(victims)
    missing = shortage - sum(gives(lease) for lease in chosen)
    for lease in offered:
        if missing <= 0:
            break
        if lease not in chosen and gives(lease) > 0:
            chosen.append(lease)
            missing -= gives(lease)
    if missing > 0:
        return None
    for lease in list(chosen):
        # No victim whose stop would not help: what a dearer one gives may make a cheaper one idle.
        if lease not in victims and missing + gives(lease) <= 0:
            chosen.remove(lease)
            missing += gives(lease)
    return chosen


def plan_devices(
    state: State, stock: Stock, want: Want, offered: Sequence[Lease], now: int
) -> tuple[list[Lease], list[LeasedDevice]] | None:
    """The cheapest of the offered leases whose end makes room for a shape, and the room."""
    by_node: dict[str, list[Lease]] = {}
    for lease in offered:
        for node in lease.nodes:
            by_node.setdefault(node, []).append(lease)
    if not want.ask.same_node and want.ask.nodes == 1:
        return plan_anywhere(state, stock, want, offered)
    options = []
    for name, shelf in stock.shelves.items():
        if name not in by_node and len(shelf.free) + len(shelf.part) < want.per_node:
            continue
        if not node_suits(state, shelf.node, want.ask):
            continue
        planned = plan_node(state, stock, shelf, want, by_node.get(name, ()))
        if planned is not None:
            victims, devices = planned
            options.append((_cost_of(victims, now), name, victims, devices))
    options.sort(key=lambda option: option[:2])
    if len(options) < want.ask.nodes:
        return None
    chosen = options[: want.ask.nodes]
    victims = list(dict.fromkeys(lease for option in chosen for lease in option[2]))
    return victims, [device for option in chosen for device in option[3]]


def _cost_of(victims: Iterable[Lease], now: int) -> tuple[int, int, int, int]:
    """Asked back at all, then when the last is gone, how much is taken, what work is lost."""
    victims = list(victims)
    taken = [lease for lease in victims if not ends_anyway(lease)]
    return (
        sum(1 for lease in taken if lease.protected_until > now),
        sum(lease.gpus for lease in taken),
        max((ends_by(lease, now) for lease in victims), default=now),
        sum(now - lease.granted_at for lease in taken),
    )


def plan_node(
    state: State, stock: Stock, shelf: Shelf, want: Want, offered: Sequence[Lease]
) -> tuple[list[Lease], list[LeasedDevice]] | None:
    """The cheapest leases of one node whose end makes room there, and the room."""
    needed = want.per_node * want.ask.per_device
    name = shelf.node.name
    room = len(shelf.free) * stock.capacity + sum(shelf.part.values())
    gives = [sum(d.share for d in lease.devices if d.node == name) for lease in offered]
    if room + sum(gives) < needed:
        return None
    check = usable(state, want)
    taken: list[Lease] = []
    fit = _fit(stock, shelf, want, taken, check) if room >= needed else None
    for lease, amount in zip(offered, gives, strict=True):
        if fit is not None:
            break
        taken.append(lease)
        room += amount
        if room >= needed:
            fit = _fit(stock, shelf, want, taken, check)
    if fit is None:
        return None
    for lease in list(taken) if len(taken) > 1 else ():
        # No victim whose stop would not help: the dearest are looked at last and stay if needed.
        fewer = [other for other in taken if other is not lease]
        better = _fit(stock, shelf, want, fewer, check)
        if better is not None:
            taken, fit = fewer, better
    return taken, fit


def _fit(
    stock: Stock, shelf: Shelf, want: Want, gone: Sequence[Lease], check: Usable
) -> list[LeasedDevice] | None:
    """What would fit on a node if certain leases were gone."""
    free, part = list(shelf.free), dict(shelf.part)
    if gone:
        freed: dict[str, int] = {}
        for lease in gone:
            for leased in lease.devices:
                freed[leased.uuid] = freed.get(leased.uuid, 0) + leased.share
        for position, device in enumerate(shelf.devices):
            if device.uuid in freed and device.health == "ok":
                left = part.pop(position, 0) + freed[device.uuid]
                if left >= stock.capacity:
                    free.append(position)
                else:
                    part[position] = left
        free.sort()
    return pick(stock, shelf, want, free, part, check)


def plan_anywhere(
    state: State, stock: Stock, want: Want, offered: Sequence[Lease]
) -> tuple[list[Lease], list[LeasedDevice]] | None:
    """As :func:`plan_node`, for whole devices on any nodes."""
    check = usable(state, want)
    suits = {
        name: shelf for name, shelf in stock.shelves.items()
        if node_suits(state, shelf.node, want.ask)
    }  # fmt: skip
    free = [
        (name, position)
        for name, shelf in suits.items()
        for position in usable_of(shelf, shelf.free, want.ask, check)
    ]

    def gives(lease: Lease) -> list[tuple[str, int]]:
        found = []
        for leased in lease.devices:
            shelf = suits.get(leased.node)
            place = state.places.get(leased.uuid)
            if shelf is None or place is None or leased.share < stock.capacity:
                continue
            if place[1] != (stock.group, stock.flavor):
                continue
            if shelf.devices[place[2]].health == "ok":
                found += [(leased.node, p) for p in usable_of(shelf, [place[2]], want.ask, check)]
        return found

    missing = want.ask.devices - len(free)
    taken: list[tuple[Lease, list[tuple[str, int]]]] = []
    for lease in offered:
        if missing <= 0:
            break
        given = gives(lease)
        if given:
            taken.append((lease, given))
            missing -= len(given)
    if missing > 0:
        return None
    for one in list(taken):
        # No victim whose stop would not help: the dearest are looked at last and stay if needed.
        if missing + len(one[1]) <= 0:
            taken.remove(one)
            missing += len(one[1])
    places = sorted(free + [place for _, given in taken for place in given])
    return [lease for lease, _ in taken], [
        leased_device(stock, stock.shelves[name], position, want.ask.per_device)
        for name, position in places[: want.ask.devices]
    ]


def make_claim(state: State, request: Request, cell: Cell, plan: Plan, now: int) -> None:
    """Record a claim, and tell whoever may be told now."""
    old = state.claims.get(request.id)
    claim = Claim(
        request=request.id,
        tenant=request.tenant,
        pool=cell.pool,
        flavor=cell.flavor,
        gpus=request.ask.gpus,
        victims=tuple(lease.id for lease in plan.victims),
        devices=tuple((device.uuid, device.share) for device in plan.devices),
        until=plan.ready_at,
        made_at=old.made_at if old is not None else now,
    )
    if old is not None and replace(old, until=claim.until) == claim:
        return
    why = f"{request.tenant} asks for {len(claim.devices)} devices of its guarantee"
    state.emit(now, "claim.made", claim, why=why)
    if old is not None:
        _undo(state, set(old.victims) - set(claim.victims), request.id, now)
    serve_claims(state, now)


def serve_claims(state: State, now: int) -> None:
    """Give notice to every lease of a claim whose protected period is over."""
    while state.victim_due and state.victim_due[0][0] <= now:
        _, lease_id = heapq.heappop(state.victim_due)
        claim = state.claims.get(state.claim_of.get(lease_id, ""))
        lease = state.leases.get(lease_id)
        if claim is None or lease is None:
            continue
        if lease.state in ("preparing", "active") and lease.protected_until <= now:
            _notice(state, lease, claim, now)


def take_ready_claim(state: State, line: Sequence[str], now: int) -> None:
    """Let the first of a line have the claim that is complete: requests of one line are alike, so
    that their claims are as good for one as for the other, and first asked is first granted.
    """
    first = state.claims.get(line[0])
    if first is None or _is_ready(state, first):
        return
    for other_id in line[1:]:
        other = state.claims.get(other_id)
        if other is not None and _is_ready(state, other):
            why = "the claim of a request further back is complete first"
            state.emit(now, "claim.ended", replace(first, active=False), why=why)
            state.emit(now, "claim.ended", replace(other, active=False), why=why)
            for claim, owner in ((other, line[0]), (first, other_id)):
                swapped = replace(claim, request=owner)
                state.emit(now, "claim.made", swapped, why=why)
                _name_demand(state, swapped, now)
            return


def _is_ready(state: State, claim: Claim) -> bool:
    return all(lease_id not in state.leases for lease_id in claim.victims)


def _name_demand(state: State, claim: Claim, now: int) -> None:
    """Let the leases of a claim name the request that they now go back for."""
    for lease_id in claim.victims:
        lease = state.leases.get(lease_id)
        if lease is None or lease.reclaim is None or lease.reclaim.for_request is None:
            continue
        reclaim = replace(lease.reclaim, for_request=claim.request)
        state.emit(now, "lease.demand_changed", replace(lease, reclaim=reclaim))


def claims_due(state: State) -> int | None:
    """When the next protected period of a claimed lease ends."""
    return state.victim_due[0][0] if state.victim_due else None


def _notice(state: State, lease: Lease, claim: Claim, now: int) -> None:
    ends = min(now + lease.notice, max(now, lease.term_ends_at))
    returned = bool(lease.lenders) and lease.tenant != claim.tenant
    if returned:
        lenders = ", ".join(name for name, _ in lease.lenders)
        why = f"{claim.tenant} asks for its guarantee"
        evidence: tuple[str, ...] = (why, f"borrowed from {lenders}")
    else:
        why = f"work of a higher class of {claim.tenant} needs the devices"
        evidence = (why,)
    reclaim = Reclaim(
        trigger="return" if returned else "preemption",
        step="notice",
        step_ends_at=ends,
        started_at=now,
        evidence=evidence,
        for_request=claim.request,
    )
    noticed = replace(lease, state="noticed", state_since=now, reclaim=reclaim)
    state.emit(now, "lease.noticed", noticed, why=f"{reclaim.trigger}: {why}")


def end_claim(state: State, request_id: str, now: int, why: str) -> None:
    """End a claim: who has been told and need not go any more stays."""
    claim = state.claims.get(request_id)
    if claim is None:
        return
    state.emit(now, "claim.ended", replace(claim, active=False), why=why)
    _undo(state, set(claim.victims), request_id, now)


def _undo(state: State, victims: set[str], request_id: str, now: int) -> None:
    for lease_id in sorted(victims):
        lease = state.leases.get(lease_id)
        if lease is None or lease.state not in ("noticed", "frozen") or lease.reclaim is None:
            continue
        if lease.reclaim.for_request == request_id:
            undo(state, lease, now, "the demand behind the return is gone")


def waiting_for_return(state: State, request: Request) -> Reason:
    """From whom, how much and until when at the latest a request waits for."""
    claim = state.claims[request.id]
    back: dict[str, int] = {}
    for lease_id in claim.victims:
        lease = state.leases.get(lease_id)
        if lease is not None:
            back[lease.tenant] = back.get(lease.tenant, 0) + lease.gpus
    return reason(
        "WaitingForReturn", f"return:{claim.tenant}/{claim.pool}/{claim.flavor}",
        since=claim.made_at, until=claim.until, asked=request.ask.gpus, flavor=claim.flavor,
        tenant=request.tenant, leases=claim.victims, returns=sum(back.values()),
        from_=tuple(sorted(back.items())),
    )  # fmt: skip
