"""The end of a lease's server: made sure of, then reported, whatever happens to the caller.

One :class:`Parting` per lease runs detached in the hub. It is idempotent (a second one for the
same lease is the first), never gives up, and frees nothing by itself: it tells the governor once
the backend has confirmed that nothing is left. If the hub dies first, the lease is still in the
server's stored state and the parting goes on when the hub loads that state again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any, Protocol

from allotment_hub import gateapi
from allotment_hub.gateapi import HeldLease, LeaseCall

from .carriers import end_carriers
from .gate import Gate, GateRefused, GovernorDown
from .sight import Seen, Sight, carrier_uid
from .traits import detach

LONGEST_PAUSE_S = 60.0
TERM_S = 5.0

PARTINGS: dict[str, Parting] = {}
"""Partings under way by lease."""


class Departing(Protocol):
    """What a parting needs of a governed spawner."""

    log: Any
    absence_interval: float
    end_leftovers: bool

    @property
    def key(self) -> str: ...
    @property
    def gate(self) -> Gate: ...
    async def look(self) -> Seen: ...
    async def end_server(self) -> None: ...
    def forget(self, lease: HeldLease, proof: str, *, reported: bool) -> None: ...


class Parting:
    """See the module.

    Parameters
    ----------
    spawner : Departing
    lease : HeldLease
    detail : str
        Why the start failed; empty where the server had been up.
    after : Future or None
        A start that may still bring something up; absence counts only after its end.
    proof : str
        Set where absence is known already and only the report is outstanding.
    """

    def __init__(
        self,
        spawner: Departing,
        lease: HeldLease,
        *,
        detail: str = "",
        after: asyncio.Future[Any] | None = None,
        proof: str = "",
    ) -> None:
        self.spawner = spawner
        self.lease = lease
        self.proof = proof
        self.reported = False
        self.waiting_for = ""
        self._detail = detail
        self._after = after
        self._confirmed = asyncio.Event()
        self._hurry = asyncio.Event()
        PARTINGS[lease.id] = self
        self.task = detach(self._run())

    @property
    def confirmed(self) -> bool:
        """Whether nothing of the lease runs any more."""
        return bool(self.proof)

    async def wait_confirmed(self, seconds: float) -> bool:
        """Wait for a while for the confirmation; says whether it came."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._confirmed.wait(), seconds)
        return self.confirmed

    async def wait_reported(self, seconds: float) -> bool:
        """Have the governor told now rather than at the next repetition; says whether it was."""
        self._hurry.set()
        await asyncio.wait({self.task}, timeout=seconds)
        return self.reported

    async def _run(self) -> None:
        if self._detail:
            call = LeaseCall(lease=self.lease.id, fence=self.lease.fence, detail=self._detail)
            detach(self._tell(gateapi.FAILED, call))
        if not self.proof:
            self.proof = await self._make_sure()
            self.spawner.forget(self.lease, self.proof, reported=False)
        self._confirmed.set()
        call = LeaseCall(lease=self.lease.id, fence=self.lease.fence, proof=self.proof)
        await self._tell(gateapi.ABSENT, call)
        self.reported = True
        PARTINGS.pop(self.lease.id, None)
        self.spawner.forget(self.lease, self.proof, reported=True)

    # -- making sure -------------------------------------------------------------------------

    async def _make_sure(self) -> str:
        if self._after is not None and not self._after.done():
            self._after.cancel()
            await asyncio.wait({self._after})
        pause = 1.0
        while True:
            try:
                proof = await self._try_once()
            except Exception as error:  # the wrapped spawner may raise anything: nothing is known
                self.spawner.log.warning(
                    "allotment: %s: whether the server of lease %s is gone is not known: %s",
                    self.spawner.key, self.lease.id, error,
                )  # fmt: skip
                proof = ""
            if proof:
                return proof
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _try_once(self) -> str:
        seen = await self.spawner.look()
        if seen.sight is Sight.ABSENT:
            return seen.proof
        if seen.sight is Sight.NEGATIVE:
            await asyncio.sleep(self.spawner.absence_interval)
            again = await self.spawner.look()
            if again.sight is Sight.NEGATIVE:
                return "poll"
            return again.proof
        if seen.sight is Sight.RUNNING:
            await self.spawner.end_server()
        elif seen.sight is Sight.ENDED:
            await self._end_leftovers()
        else:
            return ""
        after = await self.spawner.look()
        return after.proof if after.sight is Sight.ABSENT else ""

    async def _end_leftovers(self) -> None:
        uid = carrier_uid(self.spawner)
        if uid is None:
            await self.spawner.end_server()
            return
        if not self.spawner.end_leftovers:
            return
        lease = self.lease.id
        for how in (signal.SIGTERM, signal.SIGKILL):
            found = await asyncio.to_thread(end_carriers, lease, uid, how)
            self.spawner.log.info(
                "allotment: %s: %s to processes %s of lease %s",
                self.spawner.key, how.name, list(found.pids), lease,
            )  # fmt: skip
            for _ in range(int(TERM_S / 0.25)):
                await asyncio.sleep(0.25)
                if (await self.spawner.look()).sight is Sight.ABSENT:
                    return

    # -- reporting ---------------------------------------------------------------------------

    async def _tell(self, path: str, call: LeaseCall) -> None:
        await tell(self.spawner, path, call, hurry=self._hurry)


async def tell(
    spawner: Any,
    path: str,
    call: LeaseCall,
    still: Callable[[], bool] = lambda: True,
    hurry: asyncio.Event | None = None,
) -> bool:
    """Repeat a report until the governor has taken it or said that it does not want it.

    Parameters
    ----------
    still : callable
        Whether the report is still true; ends the repetition.
    hurry : Event or None
        Set by whoever does not want to wait for the next repetition.

    Returns
    -------
    bool
        False when the governor does not know the lease under this fence.
    """
    pause = 0.5
    quiet = 0
    while still():
        try:
            await spawner.gate.post(path, call.to_json())
        except GateRefused as error:
            spawner.log.warning("allotment: %s: %s: %s", spawner.key, path, error)
            return False
        except GovernorDown as error:
            if quiet in (0, 5):
                spawner.log.warning(
                    "allotment: %s: %s of lease %s will be repeated: %s",
                    spawner.key, path, call.lease, error,
                )  # fmt: skip
            quiet += 1
            await _pause(pause, hurry)
            pause = min(pause * 2, 30.0)
        else:
            return True
    return False


async def _pause(seconds: float, hurry: asyncio.Event | None) -> None:
    if hurry is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(hurry.wait(), seconds)
        hurry.clear()
