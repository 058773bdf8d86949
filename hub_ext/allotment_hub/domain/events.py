"""What happened. A state is the fold of its events; each carries the whole new record.

That an event holds the record as it is from then on, and not a difference, makes every fold a
plain replacement: no event can be applied wrongly, and the present is the last record of each id.
"""

from __future__ import annotations

from dataclasses import dataclass

from .inventory import Node
from .leases import Lease
from .policy import Policy
from .requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right of one request to the devices of the leases asked back for it.

    ``devices`` is the placement it will get; nobody else is given one of them meanwhile.
    ``active`` False ends the claim.
    """

    request: str
    tenant: str
    pool: str
    flavor: str
    gpus: int
    victims: tuple[str, ...]
    devices: tuple[tuple[str, int], ...]
    until: int
    made_at: int
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Devices kept for a large request at the head from ``starts_at`` on: others may use them
    only where they are certain to end before. ``active`` False ends it.

    It binds work of its own ``priority`` (that of its class) and below.
    ``kept`` is how much of the guarantee has to stay unused for it: what is asked for less what
    its own tenant's leases on these devices will have freed. Without devices it keeps room below
    the tenant's ceiling only.
    """

    request: str
    tenant: str
    pool: str
    flavor: str
    gpus: int
    kept: int
    devices: tuple[tuple[str, int], ...]
    starts_at: int
    made_at: int
    priority: int = 0
    owed: bool = False
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A policy in force since ``at``."""

    number: int
    policy: Policy
    by: str
    at: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node as last seen; ``gone`` when it is no longer in the inventory."""

    node: Node
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A named setting of the whole pool: grants paused, backend unreachable, reconciling."""

    name: str
    on: bool
    text: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A permission by a person: an approval of a class or an exemption from reclaim.

    ``subject`` is ``request:ID``, ``lease:ID``, ``user:NAME`` or ``class:NAME``.
    """

    id: str
    kind: str
    subject: str
    by: str
    reason: str
    starts_at: int
    ends_at: int
    revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Milli-GPU-milliseconds that released leases have cost a tenant in one calendar period."""

    tenant: str
    period_starts_at: int
    amount: int


Record = Request | Lease | Claim | Reservation | PolicyVersion | NodeRecord | Switch | Grant | Spent


@dataclass(frozen=True, slots=True)
class Event:
    """One change: when, what it is called, the record from then on, by whom and why.

    ``why`` is a short plain sentence for the audit; ``actor`` is ``governor``, ``user:NAME`` or
    the name of an outside system.
    """

    at: int
    what: str
    record: Record
    actor: str = "governor"
    why: str = ""
