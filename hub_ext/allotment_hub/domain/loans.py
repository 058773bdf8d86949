"""Loans after the grant: borrowed leases become guaranteed, loans move between owners."""

from __future__ import annotations

from collections.abc import Iterator

from . import quota
from .cells import Cell
from .leases import UNASSIGNED, Lease
from .records import replace
from .state import State
from .timers import still_asked, undo


def settle(state: State, now: int) -> None:
    """Where a tenant's guarantee has freed, its borrowed leases become guaranteed, oldest first;
    where an owner uses what it had lent, the loan moves to an owner with something to spare.
    """
    touched, state.touched = state.touched, {}
    for key, rebuilt in touched.items():
        cell = state.cells[key]
        if not cell.borrowed:
            continue
        for tenant in sorted(cell.borrowed):
            room = quota.room(state, cell, tenant)
            if room > 0:
                _promote(state, cell, tenant, room, now)
                rebuilt = True
        if rebuilt:  # else nobody can have lent too much: grants see to that themselves
            move_loans(state, cell, now)


def _borrowers(state: State, cell: Cell, *, youngest: bool = False) -> Iterator[Lease]:
    """The leases that borrow in a cell, oldest first or youngest first."""
    line = state.borrowers.get((cell.pool, cell.flavor), [])
    return (state.leases[lease_id] for _, _, lease_id in (line[::-1] if youngest else line[:]))


def _promote(state: State, cell: Cell, tenant: str, room: int, now: int) -> None:
    for lease in _borrowers(state, cell):
        if room <= 0:
            return
        # What is asked back goes as announced, and its owner has it by then. Where the devices that
        # have freed serve the owner as well, the claim ends, and the lease is promoted after that.
        if lease.tenant != tenant or lease.id in state.claim_of:
            continue
        lenders, left = [], room
        for name, amount in reversed(lease.lenders):
            part = min(left, amount)
            left -= part
            if amount > part:
                lenders.append((name, amount - part))
        changed = replace(lease, lenders=tuple(reversed(lenders)))
        if not changed.lenders:
            changed = replace(changed, rule=f"guarantee:{tenant}/{cell.pool}/{cell.flavor}")
        room = left
        what = "lease.guaranteed" if not changed.lenders else "lease.loan_reduced"
        state.emit(now, what, changed, why=f"the guarantee of {tenant} has freed")
        if not changed.lenders and lease.state == "noticed" and not still_asked(state, changed):
            undo(state, changed, now, "the lease has become guaranteed")


def move_loans(state: State, cell: Cell, now: int) -> None:
    """Move what an owner has lent and now uses itself to owners with something to spare."""
    if not any(quota.spare(state, cell, name) < 0 for name in cell.lent):
        return
    spare: dict[str, int] = {}
    excess: dict[str, int] = {}
    owners = state.owners.get((cell.pool, cell.flavor), ())
    for name in (UNASSIGNED, *(name for name, _ in owners), *cell.lent):
        room = quota.spare(state, cell, name)
        (spare if room >= 0 else excess)[name] = abs(room)
    if not any(spare.values()):
        return
    for lease in _borrowers(state, cell, youngest=True):
        if not any(excess.values()):
            break
        if not any(excess.get(name) for name, _ in lease.lenders):
            continue
        lenders = _moved(lease, excess, spare)
        if lenders != lease.lenders:
            changed = replace(lease, lenders=lenders)
            state.emit(now, "lease.loan_moved", changed, why="an owner uses what it had lent")


def _moved(
    lease: Lease, excess: dict[str, int], spare: dict[str, int]
) -> tuple[tuple[str, int], ...]:
    """The lenders of a lease after moving what its lenders have lent too much; both tables are
    brought up to date. A tenant never lends to itself.
    """
    amounts = dict(lease.lenders)
    for name in list(amounts):
        over = min(amounts[name], excess.get(name, 0))
        for other in sorted(spare, key=lambda n: (n != UNASSIGNED, -spare[n], n)):
            part = min(over, spare[other])
            if part <= 0 or other in (lease.tenant, name):
                continue
            amounts[name] -= part
            amounts[other] = amounts.get(other, 0) + part
            excess[name] -= part
            spare[other] -= part
            over -= part
    return tuple((name, amount) for name, amount in amounts.items() if amount)
