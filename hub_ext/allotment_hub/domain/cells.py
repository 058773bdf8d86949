"""Who uses how much of one flavor in one pool: counters by tenant."""

from __future__ import annotations

from typing import Any

from .leases import Lease

CellKey = tuple[str, str]
"""(pool, flavor)."""


class Cell:
    """Who uses how much of one flavor in one pool, in milli-GPUs, by tenant.

    ``totals`` are sums over all owners that :mod:`.quota` keeps here until a count changes.
    """

    __slots__ = ("borrowed", "flavor", "group", "lent", "pool", "totals", "used")

    def __init__(self, pool: str, flavor: str, group: str) -> None:
        self.pool, self.flavor, self.group = pool, flavor, group
        self.used: dict[str, int] = {}
        self.borrowed: dict[str, int] = {}
        self.lent: dict[str, int] = {}
        self.totals: tuple[int, int, int, int] | None = None

    def copy(self) -> Cell:
        other = Cell(self.pool, self.flavor, self.group)
        other.used = self.used.copy()
        other.borrowed = self.borrowed.copy()
        other.lent = self.lent.copy()
        return other

    def count(self, lease: Lease, sign: int) -> None:
        self.totals = None
        add_to(self.used, lease.tenant, sign * lease.gpus)
        for lender, amount in lease.lenders:
            add_to(self.borrowed, lease.tenant, sign * amount)
            add_to(self.lent, lender, sign * amount)


def add_to(table: dict[Any, int], key: Any, amount: int) -> None:
    """Add to a counter that has no entry at zero: an absent tenant and a zero are the same."""
    total = table.get(key, 0) + amount
    if total:
        table[key] = total
    else:
        table.pop(key, None)
