"""Whether the backend answers: counted over all calls, told to the state as a switch."""

from __future__ import annotations

import logging

from ..domain import commands
from ..runtime.errors import Unreachable
from .governor import Governor

log = logging.getLogger("allotment.governor")

UNREACHABLE = "unreachable"
"""The switch of the state."""

UNREACHABLE_AFTER = 3
"""Failed calls in a row after which grants wait: what is granted could not start."""


class Backend:
    """Turns failed and good calls into the switch that the rules read.

    While it is on nothing is granted, so the calls that would turn it off again are those of the
    reconciler, which then looks more often.
    """

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._failures = 0

    @property
    def reachable(self) -> bool:
        """Whether grants may go on as far as the backend is concerned."""
        return not self._governor.state.on(UNREACHABLE)

    async def failed(self, error: Unreachable) -> None:
        """Count a call without an answer."""
        self._failures += 1
        if self._failures >= UNREACHABLE_AFTER and self.reachable:
            log.warning("the backend does not answer, grants wait: %s", error)
            await self._set(True, str(error))

    async def answered(self) -> None:
        """Count a call with an answer, whatever it was."""
        self._failures = 0
        if not self.reachable:
            log.info("the backend answers again, grants go on")
            await self._set(False, "")

    async def _set(self, on: bool, text: str) -> None:
        await self._governor.execute(
            lambda state, now: commands.switch(state, now, UNREACHABLE, on, "governor", text)
        )
