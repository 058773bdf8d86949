"""What all handlers of one process share. Built once, by ``app.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import sentences
from ..clock import Clock, show_time
from ..domain.state import State
from ..views.frame import Frame, Viewer
from .auth import Authenticator
from .limits import Limits
from .problems import Problem

if TYPE_CHECKING:
    from ..governor.governor import Governor
    from ..governor.service import Service


@dataclass
class Site:
    """See the module.

    Parameters
    ----------
    service : Service
        The governor's life: its phase, and the governor while there is one.
    authenticator : Authenticator
    uptime : Clock
        For what is not part of the timeline: rates, how old an identity is.
    prefix : str
        Where the service is mounted, with slashes at both ends.
    gate_token : str
        What the hub proves itself with at the spawner gate; empty closes the gate.
    settings : mapping
        What pages need beside: the hub's own address, its logo.
    """

    service: Service
    authenticator: Authenticator
    uptime: Clock
    prefix: str = "/services/allotment/"
    gate_token: str = ""
    limits: Limits = field(default_factory=Limits)
    open_metrics: bool = False
    streams_per_user: int = 20
    streams: int = 10_000
    settings: dict[str, Any] = field(default_factory=dict)
    shared: dict[tuple[str, str], tuple[State, int, dict[str, Any]]] = field(default_factory=dict)
    """Views that many get alike: of which state, when, what."""

    @property
    def governor(self) -> Governor:
        """The governor, or the 503 that says why there is none."""
        governor = self.service.governor
        if governor is None or governor.failure is not None:
            raise unavailable(self.service.phase, self.service.detail)
        return governor

    @property
    def clock(self) -> Clock:
        """The clock of the governor's timeline."""
        return self.governor.clock

    def wall(self, at: int) -> str:
        """Steady milliseconds as RFC 3339 text."""
        return show_time(at + self.clock.offset_ms())

    def steady(self, wall_ms: int) -> int:
        """UTC milliseconds as steady milliseconds."""
        return wall_ms - self.clock.offset_ms()

    def frame(self, viewer: Viewer, accept_language: str | None = None) -> Frame:
        """The state as somebody may see it, now."""
        return Frame(
            state=self.governor.state,
            now=self.clock.now_ms(),
            wall=self.wall,
            viewer=viewer,
            lang=sentences.choose_language(accept_language),
        )


SENTENCES = {
    "starting": "The governor is starting.",
    "standby": "This governor stands by; another one decides.",
    "reconciling": "The governor compares its leases with what runs.",
    "stopping": "The governor is closing.",
    "failed": "The governor lost its ledger and is being loaded again.",
}


def unavailable(phase: str, detail: str = "") -> Problem:
    """No answer now, and why. Try again soon."""
    sentence = SENTENCES.get(phase, "The governor does not decide at the moment.")
    return Problem(
        503, phase, f"{sentence} {detail}".strip() + " Try again in a few seconds.",
        retry_after_ms=2000, extra={"phase": phase},
    )  # fmt: skip
