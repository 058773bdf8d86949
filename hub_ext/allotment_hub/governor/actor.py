"""Makes what was decided happen: servers of granted leases start, those of stopping leases stop.

Level-triggered: each wake-up reads from the state what should be going on and starts what is not
going on yet, so a lost signal or a restart loses nothing. One task a lease; each looks again right
before it acts whether the lease still wants it, under the same fence. Every act may be repeated
without harm. At most ``starts`` servers come up at the same time; the others wait in the order of
their grants, and :meth:`Actor.start_slot` says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..domain import commands
from ..domain.amounts import show_duration, show_gpus, show_memory
from ..domain.events import Event
from ..domain.leases import Lease
from ..domain.requests import Request
from ..gateapi import LEASE_OPTION, OPTION
from ..runtime.errors import Busy, Refused, RuntimeFault, Unreachable
from .backend import Backend
from .governor import Governor, NotDeciding
from .ports import SESSIONS, Pause, Runtime, Sighting, server_of

log = logging.getLogger("allotment.governor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the actor goes, in milliseconds."""

    starts: int = 32
    stops: int = 20
    first_retry: int = 1_000
    last_retry: int = 30_000
    first_look: int = 500
    last_look: int = 10_000
    agree_after: int = 1_000
    """Between two looks that have to agree that a server is not there."""


PACE = Pace()


async def pause(milliseconds: int) -> None:
    """Wait in real time."""
    await asyncio.sleep(milliseconds / 1000)


def options_of(request: Request | None) -> dict[str, Any]:
    """What the hub is asked to start a server with: what the owner once chose, and what was asked
    of the pool, as the gate takes it. The gate finds the lease by the server.
    """
    if request is None:
        return {}
    chosen = {key: value for key, value in request.options if key not in (OPTION, LEASE_OPTION)}
    return {**chosen, OPTION: asked_of(request)}


def asked_of(request: Request) -> dict[str, Any]:
    """A request in the notation in which it is made, without what was left open."""
    ask = request.ask
    shown: dict[str, Any] = {
        "tenant": request.tenant,
        "class": request.class_,
        "pool": ask.pool,
        "flavor": ask.flavor,
        "gpus": show_gpus(ask.gpus),
        "min_memory": None if ask.min_memory is None else show_memory(ask.min_memory),
        "nvlink": ask.nvlink or None,
        "duration": None if ask.duration is None else show_duration(ask.duration),
        "interruptible": ask.interruptible,
        "borrow": ask.borrow,
    }
    return {key: value for key, value in shown.items() if value is not None}


class Actor:
    """See the module.

    Parameters
    ----------
    governor : Governor
    runtime : Runtime
    backend : Backend
        Counts which calls were answered.
    kinds : frozenset of str
        The work that the runtime runs; leases of other work are left alone.
    pace : Pace
    pause : callable
        Waits milliseconds.
    """

    def __init__(
        self,
        governor: Governor,
        runtime: Runtime,
        backend: Backend,
        *,
        kinds: frozenset[str] = SESSIONS,
        pace: Pace = PACE,
        pause: Pause = pause,
    ) -> None:
        self._kinds = kinds
        self._governor = governor
        self._runtime = runtime
        self._backend = backend
        self._pace = pace
        self._pause = pause
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        # What the leases want, kept up with each commit: looking through all leases each time
        # would cost more than the grants.
        self._to_start: dict[str, int] = {}
        self._to_stop: dict[str, int] = {}
        self._preparing: set[str] = set()
        self._waiting: list[str] = []
        self._acting = False
        self._closed = False
        governor.watch(self._committed)

    # -- what should be going on ---------------------------------------------------------------

    def resync(self) -> None:
        """Read anew from all leases what they want, and act on it."""
        self._to_start.clear()
        self._to_stop.clear()
        self._preparing.clear()
        for lease in self._governor.state.leases.values():
            self._note(lease)
        self.wake()

    def _committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event.record, Lease):
                self._note(event.record)
        self.wake()

    def _note(self, lease: Lease) -> None:
        self._to_start.pop(lease.id, None)
        self._to_stop.pop(lease.id, None)
        self._preparing.discard(lease.id)
        if lease.kind not in self._kinds:
            return
        if lease.state == "granted" and lease.held_until is None:
            self._to_start[lease.id] = lease.fence
        elif lease.state == "preparing":
            self._preparing.add(lease.id)
        elif lease.state == "stopping":
            self._to_stop[lease.id] = lease.fence

    def wake(self) -> None:
        """Compare what is wanted with what is under way, and start what is missing."""
        if self._closed or self._governor.closing or self._governor.failure is not None:
            return
        if not self._acting:
            return
        waiting = [i for i in self._in_order(self._to_start) if i not in self._starting]
        while waiting and self._slots_taken() < self._pace.starts:
            self._begin(self._starting, waiting.pop(0), self._start)
        self._waiting = waiting
        for lease_id in self._in_order(self._to_stop):
            if lease_id not in self._stopping and len(self._stopping) < self._pace.stops:
                self._begin(self._stopping, lease_id, self._stop)

    @staticmethod
    def _in_order(wanted: Mapping[str, int]) -> list[str]:
        """The ids in the order of their grants."""
        return sorted(wanted, key=wanted.__getitem__)

    def _slots_taken(self) -> int:
        return len(self._preparing | self._starting.keys())

    def may_start(self, lease_id: str) -> bool:
        """Whether a start that somebody else has begun may go on now, or has to wait its turn."""
        if lease_id in self._starting or lease_id in self._preparing:
            return True
        return not self._waiting and self._slots_taken() < self._pace.starts

    def go(self) -> None:
        """Act from now on: the leases have been compared with what runs."""
        self._acting = True
        self.resync()

    def start_slot(self, lease_id: str) -> Mapping[str, int] | None:
        """For a lease that waits for a start slot: its place and how many start; else None."""
        if lease_id not in self._waiting:
            return None
        return {"position": self._waiting.index(lease_id) + 1, "starting": self._slots_taken()}

    @property
    def busy(self) -> tuple[int, int, int]:
        """How many start, wait for a start slot, and stop."""
        return len(self._starting), len(self._waiting), len(self._stopping)

    def _begin(self, table: dict[str, asyncio.Task[None]], lease_id: str, act: Any) -> None:
        task = asyncio.ensure_future(self._guard(act, lease_id))
        table[lease_id] = task

        def ended(done: asyncio.Task[None]) -> None:
            if table.get(lease_id) is done:
                del table[lease_id]
            self.wake()

        task.add_done_callback(ended)

    async def _guard(self, act: Any, lease_id: str) -> None:
        try:
            await act(lease_id)
        except (NotDeciding, asyncio.CancelledError):
            return
        except Exception:
            log.exception("acting on lease %s failed; it is tried again", lease_id)
            await self._pause(self._pace.last_retry)

    async def _still(self, lease_id: str, state: str) -> Lease | None:
        """The lease, durable and still in this state; None when it no longer is."""
        await self._governor.settled()
        lease = self._governor.state.leases.get(lease_id)
        if lease is None or lease.state != state:
            return None
        return None if state == "granted" and lease.held_until is not None else lease

    # -- starting ------------------------------------------------------------------------------

    async def _start(self, lease_id: str) -> None:
        retry = self._pace.first_retry
        while (lease := await self._still(lease_id, "granted")) is not None:
            try:
                if not await self._entitled(lease):
                    await self._withdraw(lease)
                    return
                await self._runtime.start(lease.user, server_of(lease), self._options(lease))
            except Unreachable as error:
                await self._backend.failed(error)
                await self._pause(retry)
                retry = min(retry * 2, self._pace.last_retry)
                continue
            except Busy as error:
                log.info("the server of lease %s has to wait: %s", lease_id, error)
                await self._pause(retry)
                retry = min(retry * 2, self._pace.last_retry)
                continue
            except Refused as error:
                await self._tell(lease_id, commands.start_failed, str(error))
                return
            await self._backend.answered()
            await self._tell(lease_id, commands.preparing)
            await self._await_ready(lease_id)
            return

    async def _entitled(self, lease: Lease) -> bool:
        """Whether the user belongs to the tenant still: days may lie between asking and grant."""
        tenant = self._governor.state.policy.tenants.get(lease.tenant)
        groups = await self._runtime.groups(lease.user)
        return (
            tenant is not None
            and not tenant.disabled
            and groups is not None
            and not set(groups).isdisjoint(tenant.groups)
        )

    async def _withdraw(self, lease: Lease) -> None:
        why = f"{lease.user} does not belong to {lease.tenant} any more"
        log.warning("lease %s is withdrawn: %s", lease.id, why)
        await self._governor.execute(
            lambda state, now: commands.release(state, now, lease.id, "hub", why)
        )

    def _options(self, lease: Lease) -> dict[str, Any]:
        return options_of(self._governor.state.requests.get(lease.request))

    async def _await_ready(self, lease_id: str) -> None:
        """Hold the start slot until the server is up or is not coming.

        The spawner's own word comes through the gate and wakes this at once; the looks are for
        a word that was lost.
        """
        look, absences = self._pace.first_look, 0
        while True:
            if await self._governor.changed(lease_id, look / 1000):
                absences = 0
            lease = self._governor.state.leases.get(lease_id)
            if lease is None or lease.state not in ("granted", "preparing"):
                return
            look = min(look * 2, self._pace.last_look)
            try:
                seen = await self._runtime.look(lease.user, server_of(lease))
            except RuntimeFault:
                continue
            if not self._ours(seen, lease):
                absences += 1
                if absences >= 3:
                    await self._tell(
                        lease_id, commands.start_failed, "the server did not come up", retry=True
                    )
                    return
            elif seen.state == "ready":
                await self._tell(lease_id, commands.started)
                return
            else:
                absences = 0

    # -- stopping ------------------------------------------------------------------------------

    async def _stop(self, lease_id: str) -> None:
        retry = self._pace.first_retry
        while (lease := await self._still(lease_id, "stopping")) is not None:
            try:
                if await self._is_absent(lease):
                    await self._tell(lease_id, commands.gone, "the server is not there any more")
                    return
                if not self._replaced(lease):
                    await self._runtime.stop(lease.user, server_of(lease))
                await self._backend.answered()
                if await self._await_absence(lease_id):
                    return
            except Unreachable as error:
                await self._backend.failed(error)
            except (Busy, Refused) as error:
                log.warning("the server of lease %s cannot be stopped yet: %s", lease_id, error)
            await self._pause(retry)
            retry = min(retry * 2, self._pace.last_retry)

    async def _await_absence(self, lease_id: str) -> bool:
        """Look until two looks agree that the server is gone; False when the stop must be asked
        for again.
        """
        look = self._pace.first_look
        for _ in range(12):
            await self._governor.changed(lease_id, look / 1000)
            lease = await self._still(lease_id, "stopping")
            if lease is None:
                return True
            if await self._is_absent(lease):
                await self._tell(lease_id, commands.gone, "the server is not there any more")
                return True
            look = min(look * 2, self._pace.last_look)
        return False

    async def _is_absent(self, lease: Lease) -> bool:
        """Whether two looks, a moment apart, agree that the server of a lease is not there."""
        for again in (False, True):
            if again:
                await self._pause(self._pace.agree_after)
            seen = await self._runtime.look(lease.user, server_of(lease))
            if seen.state == "unknown" or self._ours(seen, lease):
                return False
        return True

    def _ours(self, seen: Sighting, lease: Lease) -> bool:
        """Whether what is seen may be the server of this lease: one that comes up has no mark
        yet, one that is up and has none belongs to no lease.
        """
        if seen.state in ("absent", "unknown"):
            return seen.state == "unknown"
        return seen.lease == lease.id or (seen.lease is None and seen.state == "pending")

    def _replaced(self, lease: Lease) -> bool:
        """Whether a younger lease has the same server: then stopping it would stop the wrong
        work.
        """
        return any(
            other.fence > lease.fence
            and other.state in ("preparing", "active", "noticed", "frozen")
            for other in self._governor.state.leases_of(lease.user, lease.server)
        )

    # -- telling the state ---------------------------------------------------------------------

    async def _tell(self, lease_id: str, command: Any, *details: str, **more: bool) -> None:
        try:
            await self._governor.execute(
                lambda state, now: command(state, now, lease_id, *details, **more)
            )
        except commands.Refusal as refusal:
            # It has moved on meanwhile, by the gate or by a person: what is there is right.
            log.info("lease %s: %s: %s", lease_id, command.__name__, refusal)

    # -- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop acting. What was begun goes on in the backend and is found again."""
        self._closed = True
        tasks = [*self._starting.values(), *self._stopping.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
