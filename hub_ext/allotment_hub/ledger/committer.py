"""Group commit: what arrives while a transaction is being written goes into the next one.

Guarantees:

* Events become durable in the order in which :meth:`Committer.commit` was called.
* When a call returns, its events are durable, together with all that was called before.
* One unit is never split over two transactions.
* After a failure nothing is written any more: every waiting and every later call gets an
  exception. The state in memory has events that are not durable; it has to be dropped.

All writing happens in one thread of its own, so that the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from allotment_hub.domain.events import Event

from .batch import IdempotencyKey, Unit
from .errors import LedgerError
from .store import Ledger

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_EVENTS = 5_000
"""Events in one transaction: a bound on how long a grant waits for those of others."""


class CommitterStopped(LedgerError):
    """Nothing is committed any more: it was closed, or an earlier commit failed."""


class Committer:
    """Commits on behalf of the event loop. To be made and used in one running loop.

    Parameters
    ----------
    ledger : Ledger
        One that this process leads.
    offset_ms : callable
        UTC minus steady time in milliseconds, asked once per transaction (``clock.offset_ms``).
    on_failure : callable or None
        Told once, in the event loop, when a commit has failed: time to stop granting.
    """

    def __init__(
        self,
        ledger: Ledger,
        offset_ms: Callable[[], int],
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._offset_ms = offset_ms
        self._on_failure = on_failure
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-writer")
        # A database in memory has one connection: reading and writing take turns on it.
        alone = ledger.place.is_sqlite and ledger.place.path is None
        self._reader = (
            self._writer if alone else ThreadPoolExecutor(2, thread_name_prefix="ledger-reader")
        )
        self._waiting: list[tuple[Unit, asyncio.Future[int]]] = []
        self._task: asyncio.Task[None] | None = None
        self._stopped: BaseException | None = None

    @property
    def stopped(self) -> BaseException | None:
        """Why nothing is committed any more; None while all is well."""
        return self._stopped

    async def commit(
        self,
        events: Sequence[Event] = (),
        *,
        idempotency: Sequence[IdempotencyKey] = (),
        meta: Mapping[str, str] | None = None,
        forget_keys_before: int | None = None,
    ) -> int:
        """Wait until the events are durable; the place (``seq``) of the last of them.

        Cancelling the wait does not take the events back.

        Raises
        ------
        CommitterStopped
            Now or earlier a commit has failed, or the committer was closed.
        LedgerError
            What made the transaction fail, for those whose events were in it.
        """
        unit = Unit(
            events=tuple(events),
            keys=tuple(idempotency),
            meta=meta or {},
            forget_keys_before=forget_keys_before,
        )
        return await self.submit(unit)

    def submit_events(self, events: Sequence[Event]) -> asyncio.Future[int]:
        """Take events into the next transaction at once, without waiting; see :meth:`submit`."""
        return self.submit(Unit(events=tuple(events)))

    def submit(self, unit: Unit) -> asyncio.Future[int]:
        """Take a unit into the next transaction at once; the future tells when it is durable."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Who stops waiting must not make the failure of others an unread exception.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._stopped is not None:
            future.set_exception(_stop_error(self._stopped))
            return future
        self._waiting.append((unit, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return future

    async def query(self, question: Callable[[Ledger], T]) -> T:
        """Ask the ledger something outside the event loop, beside a running commit."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, question, self._ledger)

    async def drain(self) -> None:
        """Wait until everything that was submitted is durable or has failed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Finish what was submitted, then refuse everything. The ledger stays open."""
        await self.drain()
        if self._stopped is None:
            self._stopped = CommitterStopped("the committer has been closed")
        for pool in (self._writer, self._reader):
            pool.shutdown(wait=False)

    async def _work(self) -> None:
        try:
            while self._waiting and self._stopped is None:
                await self._write(self._take())
        finally:
            self._task = None

    async def _write(self, batch: list[tuple[Unit, asyncio.Future[int]]]) -> None:
        units = [unit for unit, _ in batch]
        loop = asyncio.get_running_loop()
        try:
            position = await loop.run_in_executor(self._writer, self._commit_all, units)
        except BaseException as error:
            self._fail(error, batch)
            if not isinstance(error, Exception):
                raise
            return
        position -= sum(len(unit.events) for unit in units)
        for unit, future in batch:
            position += len(unit.events)
            if not future.done():
                future.set_result(position)

    def _commit_all(self, units: list[Unit]) -> int:
        return self._ledger.commit_all(units, offset_ms=self._offset_ms())

    def _take(self) -> list[tuple[Unit, asyncio.Future[int]]]:
        count = events = 0
        for unit, _ in self._waiting:
            events += len(unit.events)
            if count and events > MOST_EVENTS:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _fail(self, error: BaseException, batch: list[tuple[Unit, asyncio.Future[int]]]) -> None:
        log.error("a commit has failed; nothing more is written: %s", error)
        self._stopped = error
        for _, future in batch:
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else _stop_error(error))
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(_stop_error(error))
        self._waiting.clear()
        if self._on_failure is not None:
            self._on_failure(error)


def _stop_error(cause: BaseException) -> CommitterStopped:
    if isinstance(cause, CommitterStopped):
        return CommitterStopped(str(cause))
    stopped = CommitterStopped(f"nothing was written, since an earlier commit failed: {cause}")
    stopped.__cause__ = cause
    return stopped
