"""Guarantee, ceiling, lent, borrowed, available: arithmetic on the counters of a state.

For a tenant in a cell (pool and flavor): ``used = own + borrowed``; ``own`` is what counts
against its guarantee. What a tenant may lend is the part of its guarantee that it does not use,
up to its lend limit. Capacity that no guarantee covers is lent by nobody's account, named
``unassigned``. A cell is *balanced* when no more is borrowed than is lendable.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cells import Cell
from .leases import UNASSIGNED
from .state import State


def claimed(state: State, cell: Cell, tenant: str, request: str = "") -> int:
    """What a tenant's waiting claims and reservations will take of its guarantee, those of
    ``request`` itself left out.

    Devices that come back for a claim are as good as used: nobody may borrow them meanwhile.
    """
    total = state.claimed.get((tenant, cell.pool, cell.flavor), 0)
    if not total or not request:
        return total
    where = (tenant, cell.pool, cell.flavor)
    kept = state.reservations.get(request)
    if kept is not None and kept.owed and (kept.tenant, kept.pool, kept.flavor) == where:
        total -= kept.kept
    own = state.claims.get(request)
    if own is not None and (own.tenant, own.pool, own.flavor) == where:
        total -= own.gpus
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A tenant's side of one cell, in milli-GPUs."""

    guarantee: int
    ceiling: int
    lend: int
    used: int
    borrowed: int
    lent: int

    @property
    def own(self) -> int:
        """The part of the use that counts against the guarantee."""
        return self.used - self.borrowed

    @property
    def unused(self) -> int:
        """The part of the guarantee that its owner does not use; never negative."""
        return max(0, self.guarantee - self.own)

    @property
    def lendable(self) -> int:
        return min(self.lend, self.unused)


def share_of(state: State, cell: Cell, tenant: str) -> Share:
    """A tenant's share of a cell; zeros where it has no quota."""
    quota = state.quotas.get((tenant, cell.pool, cell.flavor))
    return Share(
        guarantee=quota.guarantee if quota else 0,
        ceiling=quota.most if quota else 0,
        lend=quota.lends if quota else 0,
        used=cell.used.get(tenant, 0),
        borrowed=cell.borrowed.get(tenant, 0),
        lent=cell.lent.get(tenant, 0),
    )


def unassigned(state: State, cell: Cell) -> int:
    """Capacity in service that no guarantee covers and that this cell may use: what other pools
    on the same nodes have taken of it is off. Never negative.
    """
    stock = state.stock(cell.pool, cell.flavor)
    if stock is None:
        return 0
    room = stock.in_service - state.covered.get((cell.group, cell.flavor), 0)
    if room > 0 and len(state.policy.pools) > 1:
        for pool in state.policy.pools:
            other = state.cells.get((pool, cell.flavor))
            if other is not None and other is not cell and other.group == cell.group:
                room -= other.lent.get(UNASSIGNED, 0)
    return max(0, room)


def totals(state: State, cell: Cell) -> tuple[int, int, int, int]:
    """(lendable by owners, unused by owners, borrowed, over) of a cell, kept until it changes.

    *Over* is what tenants use of their own beyond guarantees that were lowered under them: nobody
    lent it, so that it is no loan, but nobody can borrow it either.
    """
    if cell.totals is not None:
        return cell.totals
    lend = unused = over = 0
    for name, quota in state.owners.get((cell.pool, cell.flavor), ()):
        own = cell.used.get(name, 0) - cell.borrowed.get(name, 0)
        room = quota.guarantee - own - claimed(state, cell, name)
        over += max(0, own - quota.guarantee)
        unused += max(0, room)
        lend += max(0, min(quota.lends, room))
    cell.totals = (lend, unused, sum(cell.borrowed.values()), over)
    return cell.totals


def borrowed(state: State, cell: Cell) -> int:
    """All that is borrowed in a cell."""
    return totals(state, cell)[2]


def room(state: State, cell: Cell, tenant: str, request: str = "") -> int:
    """What a tenant has left of its guarantee after its use and its waiting claims (but for that
    of ``request``); below zero where it uses more of its own than a lowered guarantee covers.
    """
    quota = state.quotas.get((tenant, cell.pool, cell.flavor))
    left = (quota.guarantee if quota is not None else 0) - cell.used.get(tenant, 0)
    return left + cell.borrowed.get(tenant, 0) - claimed(state, cell, tenant, request)


def split(
    state: State,
    cell: Cell,
    tenant: str,
    amount: int,
    request: str = "",
    ends_at: int | None = None,
) -> tuple[int, int]:
    """How a use of ``amount`` more divides into (own, beyond the guarantee).

    What is kept for a reservation may be used by what is certain to end (``ends_at``) before it,
    and by a claim, whose devices were promised already.
    """
    unused = share_of(state, cell, tenant).unused - claimed(state, cell, tenant, request)
    if state.reservations and (ends_at is not None or request in state.claims):
        unused += sum(
            kept.kept
            for kept in state.reservations.values()
            if kept.owed
            and (kept.tenant, kept.pool, kept.flavor) == (tenant, cell.pool, cell.flavor)
            and kept.request != request
            and (request in state.claims or (ends_at or 0) <= kept.starts_at)
        )
    own = min(amount, max(0, unused))
    return own, amount - own


def shortage(
    state: State, cell: Cell, tenant: str, own: int, beyond: int, request: str = ""
) -> int:
    """How much more would be borrowed than is lendable, were ``tenant`` to use ``own`` more of its
    guarantee and borrow ``beyond`` (for ``request``, whose own claim is not counted twice).
    """
    lend, _, loans, over = totals(state, cell)
    quota = state.quotas.get((tenant, cell.pool, cell.flavor))
    if quota is not None and own:
        room = quota.guarantee - cell.used.get(tenant, 0) + cell.borrowed.get(tenant, 0)
        before = room - claimed(state, cell, tenant)
        after = room - claimed(state, cell, tenant, request) - own
        lend -= max(0, min(quota.lends, before)) - max(0, min(quota.lends, after))
    missing = loans + beyond - lend - unassigned(state, cell)
    if missing > 0 and not beyond:
        missing -= coming_back(state, cell, request)
    return max(0, missing + (over if beyond else 0))


def spare(state: State, cell: Cell, name: str) -> int:
    """What a lender could lend beside what it has lent; below zero where it lends too much."""
    lent = cell.lent.get(name, 0)
    if name == UNASSIGNED:
        return unassigned(state, cell) - lent
    quota = state.quotas.get((name, cell.pool, cell.flavor))
    if quota is None:
        return -lent
    unused = quota.guarantee - cell.used.get(name, 0) + cell.borrowed.get(name, 0)
    return max(0, min(quota.lends, unused)) - lent


def coming_back(state: State, cell: Cell, request: str) -> int:
    """What is asked back of a cell's loans for other requests: those claims are counted as used
    already, and the loans they bring back must not be counted against the next owner as well.
    """
    total = state.loans_coming.get((cell.pool, cell.flavor), 0)
    own = state.claims.get(request) if total else None
    mine = [v for v in own.victims if state.claim_of.get(v) == request] if own is not None else ()
    return total - sum(_loans(state, cell, lease_id) for lease_id in mine)


def _loans(state: State, cell: Cell, lease_id: str) -> int:
    lease = state.leases.get(lease_id)
    if lease is None or (lease.pool, lease.flavor) != (cell.pool, cell.flavor):
        return 0
    return lease.borrowed


def choose_lenders(
    state: State, cell: Cell, tenant: str, amount: int
) -> tuple[tuple[str, int], ...]:
    """Who lends ``amount``: nobody's capacity first, then the owners with the most to spare.

    Spreading a loan over the largest reserves first leaves every owner the best chance to use
    its guarantee without asking anything back. Ties go by the order of the policy.
    """
    offers = [(spare(state, cell, UNASSIGNED), 0, UNASSIGNED)]
    rest = []
    for rank, (name, quota) in enumerate(state.owners.get((cell.pool, cell.flavor), ())):
        left = min(quota.lends, room(state, cell, name)) - cell.lent.get(name, 0)
        if name != tenant and left > 0:
            rest.append((left, rank, name))
    offers += sorted(rest, key=lambda item: (-item[0], item[1]))
    lenders = []
    for left, _, name in offers:
        part = min(left, amount)
        if part > 0:
            lenders.append((name, part))
            amount -= part
    return tuple(lenders) if amount <= 0 else ()
