"""What is granted: devices for a term, on a recorded basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .policy import Interruptible, Kind

LeaseState = Literal["granted", "preparing", "active", "noticed", "frozen", "stopping", "released"]
Trigger = Literal[
    "idle", "unused", "stale", "term", "return", "preemption", "drain", "admin", "owner",
    "budget", "failed", "replaced",
]  # fmt: skip

UNASSIGNED = "unassigned"
"""The lender of capacity that no tenant's guarantee covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedDevice:
    """A device, or ``share`` milli-GPUs of it."""

    node: str
    uuid: str
    index: int
    flavor: str
    share: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """Why and how a lease is being taken back. ``for_request`` is the demand behind it."""

    trigger: Trigger
    step: Literal["notice", "freeze", "stop"]
    step_ends_at: int
    started_at: int
    evidence: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    for_request: str | None = None
    confirmed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A grant. ``lenders`` empty is *guaranteed*; else *borrowed*, and the sum over the lenders
    is the part beyond the tenant's guarantee.

    ``fence`` rises strictly over all grants: an act that carries an older one is refused.
    ``passed`` names the requests earlier in line that this grant went past, and why it might.
    Before the server answers, ``term_ends_at`` is the end of the claim window or of the time
    allowed for preparing; from ``active_at`` on it is the end of the term.
    """

    id: str
    request: str
    fence: int
    kind: Literal["session", "job", "service"]
    class_kind: Kind
    user: str
    tenant: str
    class_: str
    pool: str
    flavor: str
    gpus: int
    devices: tuple[LeasedDevice, ...]
    state: LeaseState
    rule: str
    policy_version: int
    granted_at: int
    term: int
    term_ends_at: int
    interruptible: Interruptible
    lenders: tuple[tuple[str, int], ...] = ()
    borrowed_at_grant: bool = False
    state_since: int = 0
    preparing_at: int | None = None
    active_at: int | None = None
    released_at: int | None = None
    renewals_left: int = 0
    renewed: int = 0
    keeps_left: int = 0
    protected: int = 0
    protected_until: int = 0
    notice: int = 0
    stop_grace: int = 0
    held_until: int | None = None
    reclaim: Reclaim | None = None
    server: str | None = None
    cpus: int = 0
    memory: int = 0
    priority: int = 0
    end_reason: str = ""
    passed: tuple[str, ...] = ()
    passed_why: str = ""

    @property
    def live(self) -> bool:
        return self.state != "released"

    @property
    def borrowed(self) -> int:
        """Milli-GPUs beyond the tenant's guarantee."""
        return sum(amount for _, amount in self.lenders)

    @property
    def basis(self) -> Literal["guaranteed", "borrowed"]:
        return "borrowed" if self.lenders else "guaranteed"

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({device.node for device in self.devices}))
