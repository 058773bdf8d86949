"""Compares the leases with what really runs: once before the first grant, then every minute.

A lease is ended here only on the backend's word, given twice, that its server is not there; a
server that runs for no lease is not touched but shown as unmanaged. What is counted is counted
anew from what runs each time, so no missed message can let the books drift for longer than a
round; each difference is logged, and one that is still there a round later is logged as an alert.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..domain import commands
from ..domain.leases import Lease
from ..domain.state import State
from ..runtime.errors import RuntimeFault, Unreachable
from .actor import PACE, Pace, pause
from .backend import Backend
from .governor import Governor, NotDeciding
from .ports import SESSIONS, Pause, Runtime, Sighting, server_of

log = logging.getLogger("allotment.governor")

RECONCILING = "reconciling"
"""The switch of the state."""

EVERY_MS = 60_000
WHILE_UNREACHABLE_MS = 5_000
LONGEST_FIRST_MS = 3_000
WITH_SERVER = ("preparing", "active", "noticed", "frozen", "stopping")

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmanaged:
    """A server that runs with devices of this pool and belongs to no live lease."""

    user: str
    server: str
    lease: str
    seen_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What one round found: leases without a server, servers up that count as not yet up,
    servers without a lease.
    """

    missing: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    unmanaged: tuple[Unmanaged, ...] = ()


def compare(
    state: State, seen: Sequence[Sighting], now: int, kinds: frozenset[str] = SESSIONS
) -> Drift:
    """Where the leases and what runs differ. A lease that is only granted needs no server yet."""
    by_key: dict[Key, Sighting] = {(s.user, s.server): s for s in seen}
    missing, ready = [], []
    for lease in state.leases.values():
        if lease.kind not in kinds:
            continue
        server = by_key.get((lease.user, server_of(lease)))
        if lease.state == "granted":
            if server is not None and server.lease == lease.id and server.state == "ready":
                ready.append(lease.id)
            continue
        if server is None or not _may_be(server, lease):
            missing.append(lease.id)
        elif server.state == "ready" and lease.state == "preparing":
            ready.append(lease.id)
    unmanaged = tuple(
        Unmanaged(user=s.user, server=s.server, lease=s.lease, seen_at=now)
        for s in seen
        if s.lease is not None and s.lease not in state.leases
    )
    return Drift(missing=tuple(missing), ready=tuple(ready), unmanaged=unmanaged)


def _may_be(seen: Sighting, lease: Lease) -> bool:
    """Whether a server that is there may be that of a lease: one that comes up, or that is not
    known, has no mark yet; one that is up without a mark belongs to no lease.
    """
    return seen.lease == lease.id or (seen.lease is None and seen.state in ("pending", "unknown"))


class Reconciler:
    """See the module.

    Parameters
    ----------
    governor, runtime
    pace : Pace
        Its ``agree_after`` lies between two looks that have to agree.
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
        self._task: asyncio.Task[None] | None = None
        self._persisting: frozenset[str] = frozenset()
        self.unmanaged: tuple[Unmanaged, ...] = ()
        self.rounds = 0
        self.after_round: Callable[[], None] = lambda: None
        self.alerts: Callable[[str], None] = lambda _text: None

    async def first(self) -> None:
        """Before anything is granted: compare until the backend has answered once.

        The switch ``reconciling`` is on in the state meanwhile, which every waiting request shows
        as its reason.
        """
        await self._switch(True, "the leases are being compared with what runs")
        retry = self._pace.first_retry
        while not await self.round("ended while the governor or the hub was down"):
            await self._pause(retry)
            # A hub starts its services before it answers itself: it will be there any moment.
            retry = min(retry * 2, self._pace.last_retry, LONGEST_FIRST_MS)
        await self._switch(False, "")

    def go_on(self) -> None:
        """Compare again and again from now on."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop comparing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._governor.closing and self._governor.failure is None:
            await self._pause(EVERY_MS if self._backend.reachable else WHILE_UNREACHABLE_MS)
            try:
                await self.round("its server ended by itself")
            except NotDeciding:
                return
            except Exception:
                log.exception("a round of reconciling failed; the next one follows")

    async def round(self, why: str) -> bool:
        """One comparison; False when the backend gave no answer and nothing was concluded.

        Parameters
        ----------
        why : str
            What is recorded at a lease whose server is found gone.
        """
        await self._governor.settled()
        try:
            seen = await self._runtime.active()
        except Unreachable as error:
            await self._backend.failed(error)
            return False
        await self._backend.answered()
        now = self._governor.clock.now_ms()
        drift = compare(self._governor.state, seen, now, self._kinds)
        self.unmanaged = drift.unmanaged
        self._report(drift)
        for lease_id in drift.ready:
            await self._tell(lease_id, commands.started)
        for lease_id in drift.missing:
            await self._settle_missing(lease_id, why)
        self.rounds += 1
        self.after_round()
        return True

    def _report(self, drift: Drift) -> None:
        found = frozenset(drift.missing) | {f"{u.user}/{u.server}" for u in drift.unmanaged}
        if drift.missing:
            log.warning("leases without a server: %s", ", ".join(drift.missing))
        for other in drift.unmanaged:
            log.warning(
                "the server %r of %r runs for lease %s, which is not live: shown as unmanaged",
                other.server, other.user, other.lease,
            )  # fmt: skip
        for stuck in sorted(found & self._persisting):
            self.alerts(stuck)
            log.error("%s differs from what runs for two rounds", stuck)
        self._persisting = found

    async def _settle_missing(self, lease_id: str, why: str) -> None:
        """End a lease whose server is not there, once two more looks agree."""
        lease = None
        for again in (False, True):
            if again:
                await self._pause(self._pace.agree_after)
            lease = self._governor.state.leases.get(lease_id)
            if lease is None or lease.state not in WITH_SERVER or not await self._absent(lease):
                return
        # A start that was cut off is no end of the work: the ticket keeps its age.
        if lease is not None and lease.state == "preparing":
            await self._tell(lease_id, commands.start_failed, why, retry=True)
        else:
            await self._tell(lease_id, commands.gone, why)

    async def _absent(self, lease: Lease) -> bool:
        try:
            seen = await self._runtime.look(lease.user, server_of(lease))
        except RuntimeFault:
            return False
        if seen.state == "unknown":
            return False
        return seen.state == "absent" or not _may_be(seen, lease)

    async def _tell(
        self, lease_id: str, command: Callable[..., object], *details: str, **more: bool
    ) -> None:
        try:
            await self._governor.execute(
                lambda state, now: command(state, now, lease_id, *details, **more)
            )
        except commands.Refusal as refusal:
            log.info("lease %s: %s", lease_id, refusal)

    async def _switch(self, on: bool, text: str) -> None:
        await self._governor.execute(
            lambda state, now: commands.switch(state, now, RECONCILING, on, "governor", text)
        )
