"""When those who wait start: looked ahead once for all of them, and kept until something changes.

Looking ahead lives the decisions forward, which takes from microseconds in a small pool to seconds
in one of thousands. Few who wait are answered at once; where there are more, a copy of the state is
looked ahead in a thread, and until that is done the last known answer holds. Rest between two looks
keeps their share of the machine small whatever they cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ..clock import stopwatch
from ..domain.events import Event
from ..domain.forecast import Forecast, forecast
from ..domain.state import State
from .governor import Governor

log = logging.getLogger("allotment.governor")

FEW = 20
"""Up to so many who wait, and four times so many leases, are looked ahead for at once."""

REST = 10
"""Rest after a look, in multiples of what it took."""

STEPS_AT_ONCE = 200


class Foresight:
    """See the module.

    Parameters
    ----------
    governor : Governor
        Whose state is looked ahead; what it commits makes the last look stale.
    """

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._known: Mapping[str, Forecast] = {}
        self._stale = True
        self._looking: asyncio.Task[None] | None = None
        self._rests_until_ms = 0
        governor.watch(self._changed)

    def _changed(self, events: Sequence[Event]) -> None:
        self._stale = True

    def start_of(self, request_id: str) -> Forecast | None:
        """What is known of a waiting request's start; None where nobody has looked yet."""
        if self._stale:
            self._look()
        return self._known.get(request_id)

    def _look(self) -> None:
        state = self._governor.state
        waiting = sum(1 for row in state.requests.values() if row.state == "queued")
        if waiting <= FEW and len(state.leases) <= 4 * FEW:
            self._stale = False
            self._known = _ahead(state, self._governor.clock.now_ms())
        elif self._looking is None and self._governor.clock.now_ms() >= self._rests_until_ms:
            self._looking = asyncio.ensure_future(self._look_aside(state.fork()))

    async def _look_aside(self, copy: State) -> None:
        self._stale = False
        clock = self._governor.clock
        took = stopwatch()
        try:
            self._known = await asyncio.to_thread(forecast, copy, clock.now_ms())
        except Exception:
            # Who waits is told less; that is no reason to stop deciding.
            log.exception("looking ahead failed")
        finally:
            self._rests_until_ms = clock.now_ms() + int(took() * 1000 * REST)
            self._looking = None

    async def close(self) -> None:
        """Begin no further look, and wait for one that is under way."""
        self._stale = False
        if self._looking is not None:
            await asyncio.wait([self._looking])


def _ahead(state: State, now: int) -> Mapping[str, Forecast]:
    try:
        return forecast(state, now, max_steps=STEPS_AT_ONCE)
    except Exception:
        log.exception("looking ahead failed")
        return {}
