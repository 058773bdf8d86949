"""The ledger itself: opened by address, led by one process, written in batches."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import DBAPIError

from allotment_hub.domain.events import Event, PolicyVersion

from . import reading, schema, writing
from .batch import IdempotencyKey, Tail, Unit, build
from .connect import MOUNTS, WRITER, Place, connect, locate, make_private
from .errors import AlreadyLed, CannotOpen, Holder, LostLeadership, NotLeading
from .leadership import lock_for
from .reader import Reader
from .reading import Loaded
from .tables import REVISION, leader

log = logging.getLogger(__name__)


class Ledger(Reader):
    """See :mod:`allotment_hub.ledger`. Made by :meth:`open`.

    Reading is allowed from any thread and without leadership (in memory: from the thread that
    writes). Writing is for one thread of the leader.
    """

    def __init__(self, place: Place, engine: Engine) -> None:
        super().__init__(place, engine)
        self._lock = lock_for(place, engine)
        self._writer: Connection | None = None
        self._tail: Tail | None = None
        self._epoch = 0

    # -- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls, address: str, *, create: bool = True, allow_network: bool = False,
        mounts: Path = MOUNTS,
    ) -> Ledger:  # fmt: skip
        """Open a ledger; a new one is made where there is none.

        Parameters
        ----------
        address : str
            As in :func:`.connect.locate`.
        create : bool
            False refuses an address at which there is no ledger yet.
        allow_network : bool
            Put up with a network file system, without the write-ahead log.
        mounts : Path
            The list of mounted file systems.

        Raises
        ------
        CannotOpen
            Its subclass :class:`RevisionMismatch` when the database is of another version.
        """
        place = locate(address, allow_network=allow_network, mounts=mounts)
        if place.path is not None and not place.path.exists():
            if not create:
                raise CannotOpen(f"there is no ledger at {place}")
            make_private(place.path)
        engine = connect(place)
        try:
            _prepare(engine, place, create)
        except DBAPIError as error:
            engine.dispose()
            raise CannotOpen(f"ledger {place} cannot be opened: {error.orig}") from error
        except BaseException:
            engine.dispose()
            raise
        return cls(place, engine)

    def close(self) -> None:
        """Step down and close every connection."""
        self.step_down()
        self._engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- leadership ----------------------------------------------------------------------------

    def lead(self, *, since: int, pid: int | None = None, host: str | None = None) -> Holder:
        """Become the one process that decides, without waiting.

        Parameters
        ----------
        since : int
            Now, UTC in milliseconds since 1970, for whoever asks who leads.
        pid, host : int, str or None
            Who we are; None finds out.

        Raises
        ------
        AlreadyLed
            Naming the process that leads. A standby tries again later.
        """
        me = Holder(pid=pid or os.getpid(), host=host or socket.gethostname(), since=since)
        try:
            return self._take_over(me)
        except DBAPIError as error:
            self._lock.release()
            raise CannotOpen(f"ledger {self.place} cannot be led: {error.orig}") from error

    def _take_over(self, me: Holder) -> Holder:
        if not self._lock.acquire(me):
            raise AlreadyLed(str(self.place), self.leader())
        try:
            connection = self._engine.connect().execution_options(**{WRITER: True})
            with connection.begin():
                before = connection.scalar(select(leader.c.epoch).with_for_update())
                epoch = (before or 0) + 1
                taken = {"epoch": epoch, "pid": me.pid, "host": me.host, "since": me.since}
                connection.execute(update(leader).values(**taken))
        except BaseException:
            self._lock.release()
            raise
        self._writer, self._epoch = connection, epoch
        self._resume()
        return Holder(pid=me.pid, host=me.host, since=me.since, epoch=epoch)

    def leader(self) -> Holder | None:
        """Who took the ledger over last; it may have ended since. None when nobody ever did."""
        return self._lock.holder() or self._leader_row()

    @property
    def epoch(self) -> int:
        """The number of our leadership; 0 before there was one."""
        return self._epoch

    def leads(self) -> bool:
        """Whether the lock is still ours. That a commit succeeds is decided by the epoch."""
        return self._writer is not None and self._lock.held()

    def step_down(self) -> None:
        """Give leadership up, so that a standby may take over."""
        if self._writer is not None:
            with contextlib.suppress(DBAPIError):
                self._writer.close()
        self._writer = self._tail = None
        self._lock.release()

    # -- writing -------------------------------------------------------------------------------

    def commit(
        self,
        events: Sequence[Event] = (),
        *,
        offset_ms: int,
        idempotency: Sequence[IdempotencyKey] = (),
        meta: Mapping[str, str] | None = None,
    ) -> int:
        """Make events durable in one transaction; the place of the last one.

        Parameters
        ----------
        events : sequence of Event
            In the order in which they happened.
        offset_ms : int
            UTC minus steady time, from the clock.
        idempotency : sequence of IdempotencyKey
            Answers to keep with them.
        meta : mapping or None
            Values to keep beside the records.

        Raises
        ------
        NotLeading, LostLeadership, CommitFailed, CodecError
            Nothing was written, and nothing can be until :meth:`load` has been called.
        """
        unit = Unit(events=events, keys=idempotency, meta=meta or {})
        return self.commit_all([unit], offset_ms=offset_ms)

    def commit_all(self, units: Iterable[Unit], *, offset_ms: int) -> int:
        """Make several units durable in one transaction; see :meth:`commit`."""
        if self._writer is None or self._tail is None:
            raise NotLeading("this process does not lead the ledger; call lead(), then load()")
        tail, self._tail = self._tail, None  # stays None, unless all goes well
        batch = build(units, tail, offset_ms)
        try:
            statements = writing.statements_for(self._engine.dialect)
            writing.write(self._writer, statements, batch, self._epoch)
        except writing.EpochEnded:
            raise LostLeadership(str(self.place), self._epoch, self._leader_row()) from None
        self._tail = batch.tail
        return batch.tail.position

    def load(self) -> Loaded:
        """The present, for a new state. A leader whose commit failed may commit again after it.

        Raises
        ------
        LostLeadership
            When another governor has taken over since :meth:`lead`.
        """
        self._resume()
        return super().load()

    def _resume(self) -> None:
        if self._writer is None:
            return
        with self._writer.begin():
            holder = reading.get_leader(self._writer)
            if holder is None or holder.epoch != self._epoch:
                raise LostLeadership(str(self.place), self._epoch, holder)
            tail = writing.read_tail(self._writer)
            policies = reading.find_records(self._writer, "PolicyVersion", limit=1)
        if policies and isinstance(policies[0], PolicyVersion):
            tail.policy = policies[0].policy
        self._tail = tail


def _prepare(engine: Engine, place: Place, create: bool) -> None:
    with engine.connect() as connection:
        empty = schema.is_empty(connection)
    if empty and create:
        log.info("making a new ledger at %s, schema revision %s", place, REVISION)
        schema.migrate(engine)
    elif empty:
        raise CannotOpen(f"there is no ledger at {place}")
    schema.check_revision(engine, place)
