"""Reading what is past: rows that are over, from the ledger, beside its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..domain.leases import Lease
from ..domain.requests import Request
from ..ledger import LeaseFilter, Ledger, RequestFilter
from .governor import NotDeciding
from .life import Life

T = TypeVar("T")


class Archive:
    """The half of the service that only reads. ``life`` is None while there is no ledger."""

    life: Life | None = None

    async def query(self, question: Callable[[Ledger], T]) -> T:
        """Ask the ledger, beside its writer."""
        if self.life is None:
            raise NotDeciding("the ledger is not open")
        return await self.life.committer.query(question)

    async def past_request(self, id: str) -> Request | None:
        """A request that is not in the state any more."""
        found = await self.query(lambda ledger: ledger.get("Request", id))
        return found if isinstance(found, Request) else None

    async def past_lease(self, id: str) -> Lease | None:
        """A lease that is not in the state any more."""
        found = await self.query(lambda ledger: ledger.get("Lease", id))
        return found if isinstance(found, Lease) else None

    async def past_requests(
        self, *, states: frozenset[str], tenant: str | None, user: str | None, limit: int
    ) -> list[Request]:
        """Requests of some states, newest first."""
        chosen = RequestFilter(states=tuple(sorted(states)), tenant=tenant, user=user)
        return await self.query(
            lambda ledger: ledger.query_requests(chosen, limit=limit, newest_first=True)
        )

    async def past_leases(
        self, *, states: frozenset[str], tenant: str | None, user: str | None, limit: int
    ) -> list[Lease]:
        """Leases of some states, newest first."""
        chosen = LeaseFilter(states=tuple(sorted(states)), tenant=tenant, user=user)
        return await self.query(
            lambda ledger: ledger.query_leases(chosen, limit=limit, newest_first=True)
        )
