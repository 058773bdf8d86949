"""What has come free in a stock, held against the lines that wait for it."""

from __future__ import annotations

from . import quota
from .lines import Bucket
from .state import State


class Room:
    """What has come free in a stock, held against many lines: figures that they share are worked
    out once. A yes may be wrong, since the checks look again; a no must not.
    """

    def __init__(
        self, state: State, stock_key: tuple[str, str], freed: tuple[str, ...] | None
    ) -> None:
        self.state, self.stock_key = state, stock_key
        # None: not only devices have come free, but what was kept of those that were.
        self.fresh = freed is None or any(uuid not in state.held for uuid in freed)
        self._stock = state.stocks.get(stock_key)
        self._held = _held_free(state, stock_key)
        self._look()

    def _look(self) -> None:
        self.free = self._stock.free if self._stock is not None else 0
        self.open = self.free - self._held
        self._left: dict[tuple[str, tuple[str, str]], int] = {}
        self._loans: dict[tuple[str, str], int] = {}
        self._over: dict[tuple[str, str], int] = {}

    def may_still_fit(self, line: Bucket) -> bool:
        """As :meth:`may_fit`, after others may have taken some of it."""
        if self._stock is not None and self._stock.free != self.free:
            self._look()
        return self.may_fit(line)

    def may_fit(self, line: Bucket) -> bool:
        """Whether the answer for a line may have changed. Who has a claim is looked at when its
        devices come back; sooner only where enough is free that is held for nobody, and was not
        already when it was last looked at.
        """
        if line.blocked is None:
            return True
        gpus, tenant = line.sample.ask.gpus, line.sample.tenant
        if line.owed:
            first = line.entries[0][2]
            if first not in self.state.claims:
                return True
            return (
                self.open >= gpus
                and (self.fresh or line.short)
                and any(self._owned(key, tenant, gpus, first) for key in line.cells)
            )
        nothing = line.blocked.code in ("NothingToBorrow", "LendLimitReached")
        for key in line.cells:
            left = self.left(key, tenant)
            if left >= gpus:
                return True  # its guarantee covers it by now
            if (key[1] != self.stock_key[1]) or self.free < gpus:
                continue
            if not nothing or gpus - max(0, left) <= self.loans(key):
                return True
        return False

    def left(self, key: tuple[str, str], tenant: str) -> int:
        """What a tenant has left of its guarantee."""
        known = self._left.get((tenant, key))
        if known is None:
            known = self._left[tenant, key] = quota.room(self.state, self.state.cell(*key), tenant)
        return known

    def loans(self, key: tuple[str, str]) -> int:
        """What could be lent beside what is lent."""
        known = self._loans.get(key)
        if known is None:
            cell = self.state.cell(*key)
            lend, _, lent, over = quota.totals(self.state, cell)
            known = lend + quota.unassigned(self.state, cell) - lent - over
            self._loans[key], self._over[key] = known, over
        return known

    def _owned(self, key: tuple[str, str], tenant: str, gpus: int, request: str) -> bool:
        """Whether loans leave a guarantee whole as it is, with nothing more coming back."""
        lack = -self.loans(key)
        if lack > self.state.loans_coming.get(key, 0) + self._over.get(key, 0):
            return False
        return not quota.shortage(self.state, self.state.cell(*key), tenant, gpus, 0, request)


def _held_free(state: State, stock_key: tuple[str, str]) -> int:
    """What is free of a stock but held for claims."""
    held = 0
    for uuid in state.held:
        place = state.places.get(uuid)
        if place is not None and place[1] == stock_key:
            stock = state.stocks[stock_key]
            shelf, position = stock.shelves[place[0]], place[2]
            held += stock.capacity if position in shelf.free else shelf.part.get(position, 0)
    return held
