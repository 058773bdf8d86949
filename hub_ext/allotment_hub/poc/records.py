"""What happened, worked out from the events alone: who held which device when, who waited, what
each grant did to the quotas, what was decided by rule and what a person did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from allotment_hub.domain.events import Claim, Event, Grant, NodeRecord, PolicyVersion, Reservation
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.quota import share_of
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time on one row of a picture. ``kind`` decides how it is drawn."""

    row: str
    begins: int
    ends: int
    kind: str
    tenant: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """What a grant or an end did to a team's use, in milli-GPUs: (own, borrowed, lent)."""

    at: int
    what: str
    tenant: str
    pool: str
    flavor: str
    before: tuple[int, int, int]
    after: tuple[int, int, int]


@dataclass(slots=True)
class Records:
    """Everything recorded of one item. Times are steady milliseconds."""

    begins: int
    ends: int
    requests: dict[str, Request] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    versions: list[PolicyVersion] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    held: list[Bar] = field(default_factory=list)
    waits: list[Bar] = field(default_factory=list)
    quotas: list[QuotaChange] = field(default_factory=list)
    decisions: list[Event] = field(default_factory=list)
    human: list[Event] = field(default_factory=list)


QUIET = frozenset(
    {"request.granted", "lease.preparing", "request.done", "budget.charged", "lease.demand_changed"}
)
"""Events that say nothing that the ones beside them do not say."""


def records_of(events: Sequence[Event], begins: int, ends: int) -> Records:
    """Fold the events of one play."""
    found = Records(begins, ends)
    state = State()
    bars = _Bars(found)
    for event in events:
        record = event.record
        before = _shares(state, record) if isinstance(record, Lease) else {}
        state.apply(event)
        if isinstance(record, Lease):
            found.leases[record.id] = record
            _note_quotas(found, state, event, before)
        elif isinstance(record, Request):
            found.requests[record.id] = record
        elif isinstance(record, PolicyVersion):
            found.versions.append(record)
        bars.follow(event)
        _sort(found, event)
    bars.close()
    found.devices = sorted(
        f"{node.name}/{device.index}" for node in state.nodes.values() for device in node.devices
    )
    return found


def _sort(found: Records, event: Event) -> None:
    if event.actor.startswith("user:"):
        found.human.append(event)
    elif event.actor == "governor" and event.what not in QUIET:
        found.decisions.append(event)


def _shares(state: State, lease: Lease) -> dict[str, tuple[int, int, int]]:
    """Own, borrowed and lent of every tenant that a lease concerns, in its pool and flavor."""
    cell = state.cell(lease.pool, lease.flavor)
    names = {lease.tenant, *state.policy.tenants}
    shares = {name: share_of(state, cell, name) for name in sorted(names)}
    return {name: (share.own, share.borrowed, share.lent) for name, share in shares.items()}


def _note_quotas(
    found: Records, state: State, event: Event, before: dict[str, tuple[int, int, int]]
) -> None:
    lease = event.record
    if not isinstance(lease, Lease):
        return
    for name, after in _shares(state, lease).items():
        if before.get(name, (0, 0, 0)) != after:
            found.quotas.append(QuotaChange(
                at=event.at, what=f"{event.what} {lease.id}", tenant=name, pool=lease.pool,
                flavor=lease.flavor, before=before.get(name, (0, 0, 0)), after=after,
            ))  # fmt: skip


HELD_AS = {
    "granted": "preparing", "preparing": "preparing", "active": "active", "noticed": "noticed",
    "frozen": "noticed", "stopping": "stopping",
}  # fmt: skip


class _Bars:
    """Stretches of devices and of waits, begun by one event and ended by a later one."""

    def __init__(self, found: Records) -> None:
        self.found = found
        self.open: dict[str, tuple[int, str, Lease]] = {}
        self.waiting: dict[str, tuple[int, str, Request]] = {}
        self.broken: dict[str, tuple[int, str]] = {}

    def follow(self, event: Event) -> None:
        record = event.record
        if isinstance(record, Lease):
            self._lease(event, record)
        elif isinstance(record, Request):
            self._request(event, record)
        elif isinstance(record, NodeRecord):
            self._node(event, record)

    def _lease(self, event: Event, lease: Lease) -> None:
        kind = HELD_AS.get(lease.state, "")
        if kind in ("active", "preparing") and lease.lenders:
            kind = f"{kind} borrowed"
        known = self.open.get(lease.id)
        if known is not None and known[1] == kind:
            return
        if known is not None:
            self._held(known, event.at)
            del self.open[lease.id]
        if kind:
            self.open[lease.id] = (event.at, kind, lease)

    def _held(self, known: tuple[int, str, Lease], ends: int) -> None:
        begins, kind, lease = known
        if ends <= begins:
            return
        for device in lease.devices:
            self.found.held.append(Bar(
                row=f"{device.node}/{device.index}", begins=begins, ends=ends, kind=kind,
                tenant=lease.tenant, label=lease.request,
            ))  # fmt: skip

    def _request(self, event: Event, request: Request) -> None:
        known = self.waiting.pop(request.id, None)
        code = request.reasons[0].code if request.reasons else ""
        if known is not None:
            begins, before, row = known
            if request.state == "queued" and code == before:
                self.waiting[request.id] = known
                return
            self._wait(begins, event.at, before, row)
        if request.state in ("queued", "parked"):
            shown = code if request.state == "queued" else "parked"
            self.waiting[request.id] = (event.at, shown, request)

    def _wait(self, begins: int, ends: int, code: str, request: Request) -> None:
        if ends > begins:
            self.found.waits.append(Bar(
                row=request.id, begins=begins, ends=ends, kind=code or "BehindInQueue",
                tenant=request.tenant, label=request.id,
            ))  # fmt: skip

    def _node(self, event: Event, record: NodeRecord) -> None:
        for device in record.node.devices:
            row = f"{record.node.name}/{device.index}"
            serves = device.health == "ok" and record.node.serves and not record.gone
            known = self.broken.get(row)
            why = "draining" if device.health == "ok" else device.health
            if serves and known is not None:
                self._out(row, known, event.at)
            elif not serves and known is None:
                self.broken[row] = (event.at, why)

    def _out(self, row: str, known: tuple[int, str], ends: int) -> None:
        self.found.held.append(
            Bar(row=row, begins=known[0], ends=ends, kind="out of service", label=known[1])
        )
        del self.broken[row]

    def close(self) -> None:
        """What is still going on lasts to the end of the picture."""
        for known in self.open.values():
            self._held(known, self.found.ends)
        for begins, code, request in self.waiting.values():
            self._wait(begins, self.found.ends, code, request)
        for row, out in list(self.broken.items()):
            self._out(row, out, self.found.ends)


def cost_by_tenant(leases: Iterable[Lease], ends: int) -> dict[str, int]:
    """Milli-GPU-milliseconds that leases held, by the tenant that each names."""
    total: dict[str, int] = {}
    for lease in leases:
        until = lease.released_at if lease.released_at is not None else ends
        total[lease.tenant] = total.get(lease.tenant, 0) + lease.gpus * (until - lease.granted_at)
    return total


def cost_by_device(leases: Iterable[Lease], ends: int) -> int:
    """The same, added up over the shares of devices instead."""
    return sum(
        device.share * ((lease.released_at if lease.released_at is not None else ends)
                        - lease.granted_at)
        for lease in leases
        for device in lease.devices
    )  # fmt: skip


def subject(event: Event) -> str:
    """The name of what an event is about."""
    record = event.record
    if isinstance(record, (Request, Lease, Grant)):
        return record.id
    if isinstance(record, (Claim, Reservation)):
        return record.request
    if isinstance(record, PolicyVersion):
        return f"rules, version {record.number}"
    if isinstance(record, NodeRecord):
        return record.node.name
    return str(getattr(record, "name", ""))
