"""The one who decides: applies commands, runs the rules, commits, and only then answers.

Everything that changes the state goes through :meth:`Governor.execute`. Between the change and
its commit nothing is told to anybody and nothing is acted upon: readers and the actor wait on
:meth:`Governor.settled`. What was answered is durable; what was not durable was never answered.

A failed commit, or a fault of the program in the middle of a change, leaves a state in memory that
the ledger does not know. It is never used again: the governor *fails*, refuses everything from
then on, and whoever runs it loads a new one from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..clock import Clock
from ..domain.admission import decide, next_due
from ..domain.commands import Refusal
from ..domain.events import Event
from ..domain.leases import Lease
from ..domain.requests import Request
from ..domain.state import State
from .ports import Journal

log = logging.getLogger("allotment.governor")

T = TypeVar("T")
Command = Callable[[State, int], T]
Watcher = Callable[[Sequence[Event]], None]

SHORTEST_TIMER_S = 0.005
STUCK_AFTER = 50
"""Timers in a row that were due and changed nothing: the rules and ``next_due`` disagree."""


class NotDeciding(Exception):
    """No change is possible now: the governor is closing or has failed."""


class Governor:
    """See the module.

    Parameters
    ----------
    state : State
        As loaded; from now on nobody else changes it.
    clock : Clock
    journal : Journal
        Commits; a failure of it ends this governor.
    """

    def __init__(self, state: State, clock: Clock, journal: Journal) -> None:
        self.state = state
        self.clock = clock
        self._journal = journal
        self._watchers: list[Watcher] = []
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._commits: dict[asyncio.Task[Any], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticking: asyncio.Task[Any] | None = None
        self._timed = False
        self._barren = 0
        self.closing = False
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()

    # -- changing ----------------------------------------------------------------------------

    async def execute(self, command: Command[T], **with_commit: Any) -> T:
        """Apply a command, decide, commit, and return what the command returned.

        Parameters
        ----------
        command : callable
            Takes the state and the time; changes the state by its events only.
        **with_commit
            Goes to the journal with the events, such as an idempotency key.

        Raises
        ------
        Refusal
            The command says no. What it recorded about that is committed all the same.
        NotDeciding
            The governor is closing or has failed; nothing was changed.
        """
        self._check_deciding()
        refusal: Refusal | None = None
        broken = False
        now = self.clock.now_ms()
        try:
            try:
                result = command(self.state, now)
            except Refusal as error:
                refusal = error
            except Exception:
                if self.state.journal:
                    raise
                # Nothing was changed yet: a fault, but of this one call.
                broken = True
                raise
            decide(self.state, now)
        except BaseException as error:
            if not broken:
                self._fail(error)
            raise
        await self._commit(self.state.take_journal(), {} if refusal else with_commit)
        if refusal is not None:
            raise refusal
        return result

    async def tick(self) -> None:
        """Do what fell due, as the timer does."""
        await self.execute(lambda _state, _now: None)

    async def _commit(self, events: list[Event], with_commit: dict[str, Any]) -> None:
        if not events and not with_commit:
            # Nothing of its own to keep; yet what it has read may be another's, still under way.
            self._arm()
            await self.settled()
            return
        # Not cancelled with its caller: the state is changed, the ledger has to follow.
        task = asyncio.ensure_future(self._write(events, with_commit))
        self._commits[task] = None
        task.add_done_callback(self._forget)
        self._arm()
        await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._commits.pop(task, None)
        if not task.cancelled():
            task.exception()  # seen: the failure is kept in `failure` for whoever comes later

    async def _write(self, events: list[Event], with_commit: dict[str, Any]) -> None:
        try:
            await self._journal.commit(events, **with_commit)
        except BaseException as error:
            self._fail(error)
            raise
        self._committed(events)

    def _committed(self, events: list[Event]) -> None:
        for event in events:
            record = event.record
            if isinstance(record, (Request, Lease)):
                for future in self._waiting.pop(record.id, ()):
                    if not future.done():
                        future.set_result(None)
        for watcher in self._watchers:
            try:
                watcher(events)
            except Exception:
                # Whoever only looks on must not be able to stop who decides.
                log.exception("a watcher of committed events failed")

    def _check_deciding(self) -> None:
        if self.failure is not None:
            raise NotDeciding("the governor lost its ledger and is being loaded again")
        if self.closing:
            raise NotDeciding("the governor is closing")

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            log.error("the governor cannot go on: %s: %s", type(error).__name__, error)
            self.failure = error
            self.failed.set()
            self._stop_timer()
            for futures in self._waiting.values():
                for future in futures:
                    if not future.done():
                        future.set_result(None)

    # -- watching ----------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` with each batch of events once it is durable, in their order."""
        self._watchers.append(watcher)

    async def settled(self) -> None:
        """Return when everything that the state says now is durable.

        Raises
        ------
        NotDeciding
            It never will be.
        """
        pending = list(self._commits)
        if pending:
            await asyncio.wait(pending)
        if self.failure is not None:
            raise NotDeciding("the governor lost its ledger and is being loaded again")

    async def changed(self, id: str, timeout_s: float) -> bool:
        """Wait until a change of one request or lease is durable; False when none came in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(id, set())
        waiting.add(future)
        try:
            await asyncio.wait_for(future, timeout_s)
        except asyncio.TimeoutError:
            return False
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(id) is waiting:
                del self._waiting[id]
        return True

    # -- time --------------------------------------------------------------------------------

    def start_timer(self) -> None:
        """From now on do what falls due when it falls due."""
        self._timed = True
        self._arm()

    def _arm(self) -> None:
        """One timer, at the next thing that falls due; none while nothing will."""
        self._stop_timer()
        if not self._timed or self.closing or self.failure is not None:
            return
        now = self.clock.now_ms()
        due = next_due(self.state, now)
        if due is None:
            return
        wait_s = max(SHORTEST_TIMER_S, (due - now) / 1000)
        if self._barren >= STUCK_AFTER:
            wait_s = max(wait_s, 1.0)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        before = self.clock.now_ms()
        due = next_due(self.state, before)
        try:
            await self.tick()
        except NotDeciding:
            return
        except Exception:
            log.exception("what fell due could not be done")
            return
        after = next_due(self.state, before)
        if due is not None and due <= before and after == due:
            self._barren += 1
            if self._barren == STUCK_AFTER:
                log.error("something is due at %d again and again and nothing comes of it", due)
        else:
            self._barren = 0
        self._arm()

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Take no more commands, finish the transactions under way. Closing twice is harmless."""
        self.closing = True
        self._stop_timer()
        pending = list(self._commits)
        if pending:
            await asyncio.wait(pending)
        if self._ticking is not None:
            await asyncio.wait([self._ticking])
