"""Everything that a ledger answers without leading it: for REST, audit and the commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine

from allotment_hub.domain.events import Record
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request

from . import backup, chain, checking, reading
from .batch import IdempotencyKey
from .connect import Place
from .errors import Holder
from .reading import EventFilter, LeaseFilter, Loaded, RequestFilter
from .tables import REVISION


class Reader:
    """The reading half of a :class:`~.store.Ledger`.

    Parameters
    ----------
    place : Place
        Where the ledger lies.
    engine : Engine
        Connections to it.
    """

    def __init__(self, place: Place, engine: Engine) -> None:
        self.place = place
        self.revision = REVISION
        self._engine = engine

    def __str__(self) -> str:
        """The address without a password and the revision: a line for the log."""
        return f"{self.place} (schema revision {self.revision})"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        # One snapshot, so that what is read together fits together.
        with self._engine.connect() as connection:
            if not self.place.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    def _leader_row(self) -> Holder | None:
        with self._reading() as connection:
            return reading.get_leader(connection)

    def load(self) -> Loaded:
        """The present, for a new state."""
        with self._reading() as connection:
            return reading.load(connection)

    def fold_events(self) -> Loaded:
        """The same from the event history alone; slow, for checks."""
        with self._reading() as connection:
            return reading.fold(connection)

    def query_requests(
        self, chosen: RequestFilter | None = None, *, limit: int = 100, after: int | None = None,
        newest_first: bool = False,
    ) -> list[Request]:  # fmt: skip
        """A page of requests; ``after`` is the ``sequence`` of the last one seen."""
        with self._reading() as connection:
            return reading.find_requests(
                connection, chosen or RequestFilter(), limit=limit, after=after,
                newest_first=newest_first,
            )  # fmt: skip

    def query_leases(
        self, chosen: LeaseFilter | None = None, *, limit: int = 100, after: int | None = None,
        newest_first: bool = False,
    ) -> list[Lease]:  # fmt: skip
        """A page of leases; ``after`` is the ``fence`` of the last one seen."""
        with self._reading() as connection:
            return reading.find_leases(
                connection, chosen or LeaseFilter(), limit=limit, after=after,
                newest_first=newest_first,
            )  # fmt: skip

    def query_events(
        self, chosen: EventFilter | None = None, *, limit: int = 100, after: int | None = None,
        newest_first: bool = False,
    ) -> list[chain.StoredEvent]:  # fmt: skip
        """A page of the event history; ``after`` is the ``seq`` of the last one seen."""
        with self._reading() as connection:
            return reading.find_events(
                connection, chosen or EventFilter(), limit=limit, after=after,
                newest_first=newest_first,
            )  # fmt: skip

    def iterate_events(
        self, chosen: EventFilter | None = None, *, after: int = 0
    ) -> Iterator[chain.StoredEvent]:
        """All events that are chosen, in one snapshot, however many there are."""
        with self._reading() as connection:
            yield from reading.history(connection, chosen, after)

    def query_records(self, kind: str, *, limit: int = 100) -> list[Record]:
        """Records of a kind other than request and lease (policy versions, say), newest first."""
        with self._reading() as connection:
            return reading.find_records(connection, kind, limit=limit)

    def get(self, kind: str, key: str) -> Record | None:
        """One record by its kind (``"Request"``, ``"Lease"`` …) and key, over or not."""
        with self._reading() as connection:
            return reading.get(connection, kind, key)

    def find_key(self, user: str, key: str) -> IdempotencyKey | None:
        """What a user's idempotency key led to; None when it is new."""
        with self._reading() as connection:
            return reading.find_key(connection, user, key)

    def meta(self, key: str) -> str | None:
        """A value kept beside the records."""
        with self._reading() as connection:
            return reading.get_meta(connection, key)

    def head(self) -> tuple[int, str]:
        """Place and hash of the last event: noted elsewhere, they prove the history up to it."""
        with self._reading() as connection:
            return reading.get_head(connection)

    # -- care ----------------------------------------------------------------------------------

    def verify(self, noted: tuple[int, str] | None = None) -> chain.Verdict:
        """Walk the audit chain in one snapshot.

        Parameters
        ----------
        noted : (int, str) or None
            A place and hash that :meth:`head` once gave: the chain has to lead through it.
        """
        with self._reading() as connection:
            position, head = reading.get_head(connection)
            return chain.verify(reading.history(connection), position, head, noted)

    def differences(self) -> list[str]:
        """Where the projections are not what the history says; empty when all is well."""
        with self._reading() as connection:
            return checking.differences(connection)

    def backup(self, target: Path) -> Path:
        """Copy the ledger into a new file while it is in use; see :func:`.backup.backup`."""
        return backup.backup(self.place, target)
