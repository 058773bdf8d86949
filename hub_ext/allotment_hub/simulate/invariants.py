"""What must hold after every step: the invariants that a state and its events can tell.

:class:`Watch` folds the same events into a state of its own and looks at each change as it
happens, so that it sees what a look at the end would miss, and so that the fold itself is
checked (22). The numbers are those of the list of invariants in the design notes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from allotment_hub.domain.events import Event
from allotment_hub.domain.inventory import slot_capacity
from allotment_hub.domain.leases import UNASSIGNED, Lease
from allotment_hub.domain.lines import bucket_key
from allotment_hub.domain.quota import share_of
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from allotment_hub.domain.states import IllegalTransition


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold: its number, when it was seen, and what was seen."""

    number: int
    at: int
    text: str

    def __str__(self) -> str:
        return f"invariant {self.number}: {self.text}"


COUNTERS = (
    "taken", "host_used", "used_by_user", "used_by_tenant", "queued_by_user", "running",
)  # fmt: skip
"""Derived figures of a state that a rebuild has to give again."""


class Watch:
    """Follows a state by its events.

    Parameters
    ----------
    state : State or None
        Where to begin; None is the empty state, from which every event has to be seen.
    """

    def __init__(self, state: State | None = None) -> None:
        self.shadow = state.fork() if state is not None else State()
        self.found: list[Violation] = []
        self.final: set[str] = set()
        self.servers: dict[tuple[str, str], str] = {}

    def follow(self, events: Iterable[Event]) -> list[Violation]:
        """Apply events one by one; return what was found wrong with them."""
        before = len(self.found)
        for event in events:
            self._event(event)
        return self.found[before:]

    def compare(self, state: State, now: int) -> list[Violation]:
        """Compare a state with the fold of its events (22) and its figures with a recount (9)."""
        before = len(self.found)
        for name in ("requests", "leases", "claims", "reservations", "nodes", "people", "spent"):
            if getattr(state, name) != getattr(self.shadow, name):
                self._say(22, now, f"the fold of the events has other {name}")
        self._recount(state, now)
        self._slots(state, now)
        return self.found[before:]

    def _say(self, number: int, at: int, text: str) -> None:
        self.found.append(Violation(number, at, text))

    # -- single changes ----------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        record = event.record
        if isinstance(record, (Request, Lease)):
            self._finals(event, record)
        fresh = record.id not in self.shadow.leases if isinstance(record, Lease) else False
        if isinstance(record, Lease):
            self._lease(event, self.shadow.leases.get(record.id), record)
        try:
            self.shadow.apply(event)
        except IllegalTransition as error:
            self._say(11, event.at, str(error))
            return
        if isinstance(record, Lease) and record.live and fresh:
            self._after_grant(event, record)

    def _finals(self, event: Event, record: Request | Lease) -> None:
        """11: what is final stays as it is. 9: releasing twice equals once."""
        key = f"{type(record).__name__} {record.id}"
        if key in self.final:
            self._say(11, event.at, f"{key} was final and changed again ({event.what})")
        if not record.live:
            self.final.add(key)

    def _lease(self, event: Event, old: Lease | None, new: Lease) -> None:
        if old is None:
            if new.live:
                self._grant(event, new)
            return
        if old.fence != new.fence or old.devices != new.devices or old.gpus != new.gpus:
            self._say(8, event.at, f"lease {new.id} changed its fence or devices after the grant")
        if old.policy_version != new.policy_version:
            self._say(27, event.at, f"lease {new.id} changed the policy version of its grant")
        if not old.lenders and new.lenders:
            self._say(16, event.at, f"guaranteed lease {new.id} became borrowed")
        if new.state == "stopping" and old.state != "stopping":
            self._stop(event, old, new)

    def _grant(self, event: Event, lease: Lease) -> None:
        """6, 8, 12, 14, 24, 27: the right to a grant at the moment of it."""
        state, at = self.shadow, event.at
        if lease.fence <= state.fence:
            self._say(8, at, f"lease {lease.id} has fence {lease.fence}, not above {state.fence}")
        if lease.policy_version != state.version.number:
            self._say(27, at, f"lease {lease.id} names policy version {lease.policy_version}")
        for switch in ("reconciling", "paused"):
            if state.on(switch):
                self._say(24, at, f"lease {lease.id} was granted while {switch}")
        if lease.gpus <= 0 or sum(device.share for device in lease.devices) != lease.gpus:
            self._say(
                26, at, f"lease {lease.id} holds {lease.gpus} on {len(lease.devices)} devices"
            )
        self._authority(event, lease)
        self._in_service(event, lease)
        self._first_come(event, lease)

    def _authority(self, event: Event, lease: Lease) -> None:
        policy = self.shadow.policy
        tenant = policy.tenants.get(lease.tenant)
        request = self.shadow.requests.get(lease.request)
        if tenant is None or tenant.disabled:
            self._say(14, event.at, f"lease {lease.id} went to no enabled tenant: {lease.tenant}")
        elif request is not None and set(request.groups).isdisjoint(tenant.groups):
            self._say(14, event.at, f"{lease.user} is in no group of {lease.tenant}")
        if lease.class_ not in policy.classes or lease.pool not in policy.pools_for(lease.class_):
            self._say(14, event.at, f"class {lease.class_} may not use pool {lease.pool}")
        class_ = policy.classes.get(lease.class_)
        if class_ is None or class_.approval is None or request is None:
            return
        if request.approved_until is None or request.approved_until <= event.at:
            self._say(14, event.at, f"lease {lease.id} has no valid approval")

    def _in_service(self, event: Event, lease: Lease) -> None:
        """2: never a grant on what is out of service."""
        for held in lease.devices:
            node = self.shadow.nodes.get(held.node)
            device = next((d for d in node.devices if d.uuid == held.uuid), None) if node else None
            if node is None or device is None or not node.serves or device.health != "ok":
                self._say(2, event.at, f"lease {lease.id} was granted {held.uuid}, not in service")

    def _first_come(self, event: Event, lease: Lease) -> None:
        """12: within a tenant, same class and shape: first asked, first granted."""
        state = self.shadow
        request = state.requests.get(lease.request)
        bucket = state.queue.get(bucket_key(state.policy, request)) if request else None
        if bucket is None or request is None:
            return
        if request.state == "queued" and bucket.entries[0][2] != request.id:
            self._say(12, event.at, f"{request.id} was granted before {bucket.entries[0][2]}")

    def _after_grant(self, event: Event, lease: Lease) -> None:
        """1, 3, 4, 10 right after a lease was granted."""
        if event.record is not lease or lease.granted_at != event.at or lease.state != "granted":
            return
        state = self.shadow
        cell = state.cell(lease.pool, lease.flavor)
        share = share_of(state, cell, lease.tenant)
        # A lowered guarantee may leave its owner above it; nothing is added to that part.
        over = lease.gpus > lease.borrowed and share.own > share.guarantee
        if over or share.used > share.ceiling:
            self._say(3, event.at, f"{lease.tenant} has {share} after lease {lease.id}")
        for lender, _ in lease.lenders:
            if lender == UNASSIGNED:
                continue
            lent = share_of(state, cell, lender)
            if lent.lent > lent.lendable:
                self._say(4, event.at, f"{lender} lends {lent.lent} of {lent.lendable} lendable")
        if lease.kind == "session" and lease.server is not None:
            for other in state.leases_of(lease.user, lease.server):
                if other.id != lease.id:
                    self._say(
                        10, event.at, f"{lease.user} has two leases for one server: {other.id}"
                    )
        self._slots(state, event.at)

    def _stop(self, event: Event, old: Lease, new: Lease) -> None:
        """16: return and preemption never take what is guaranteed, protected or unstoppable."""
        reclaim = new.reclaim or old.reclaim
        if reclaim is None or reclaim.trigger not in ("return", "preemption"):
            return
        # A lease that became guaranteed is undone; one whose term is over ends by its term.
        if event.at >= old.term_ends_at and old.active_at is not None:
            return
        if not old.lenders and reclaim.trigger == "return":
            self._say(16, event.at, f"guaranteed lease {new.id} was taken for a return")
        if event.at < old.protected_until:
            self._say(16, event.at, f"lease {new.id} was taken within its protected period")
        if old.interruptible == "no":
            self._say(16, event.at, f"lease {new.id} cannot be interrupted and was taken")

    # -- the whole ---------------------------------------------------------------------------

    def _slots(self, state: State, now: int) -> None:
        """1: a slot has at most one live lease; a device is never given beyond its capacity."""
        taken: dict[str, int] = {}
        flavors: dict[str, str] = {}
        for lease in state.leases.values():
            for device in lease.devices:
                taken[device.uuid] = taken.get(device.uuid, 0) + device.share
                flavors[device.uuid] = device.flavor
        for uuid, amount in taken.items():
            if flavors[uuid] not in state.policy.flavors:
                continue  # the flavor was taken out of the policy while the lease runs
            capacity = slot_capacity(state.policy, flavors[uuid])
            if amount > capacity and not self._changed(state, uuid):
                self._say(1, now, f"device {uuid} is leased for {amount} of {capacity}")

    def _changed(self, state: State, uuid: str) -> bool:
        """Whether a device is leased under another policy version than the one in force."""
        return any(
            lease.policy_version != state.version.number
            for lease in state.leases.values()
            if any(device.uuid == uuid for device in lease.devices)
        )

    def _recount(self, state: State, now: int) -> None:
        """9: derived figures equal a recount, and none is negative."""
        fresh = state.fork()
        fresh.reindex()
        for name in COUNTERS:
            if getattr(state, name) != getattr(fresh, name):
                self._say(
                    9, now, f"{name} is {getattr(state, name)}, recounted {getattr(fresh, name)}"
                )
        for key, cell in state.cells.items():
            again = fresh.cell(*key)
            for name in ("used", "borrowed", "lent"):
                if getattr(cell, name) != getattr(again, name):
                    self._say(9, now, f"{name} of {key} is {getattr(cell, name)}")
                if any(amount < 0 for amount in getattr(cell, name).values()):
                    self._say(9, now, f"{name} of {key} is negative: {getattr(cell, name)}")
            if sum(cell.borrowed.values()) != sum(cell.lent.values()):
                self._say(4, now, f"borrowed and lent of {key} differ")
        for key, stock in state.stocks.items():
            if (stock.free, stock.in_service) != (
                fresh.stocks[key].free,
                fresh.stocks[key].in_service,
            ):
                self._say(
                    9, now, f"stock {key} has {stock.free} free, recounted {fresh.stocks[key].free}"
                )


def check_whole(state: State, events: Iterable[Event], now: int) -> list[Violation]:
    """Check a history and the state it led to at once, from the empty state on."""
    watch = Watch()
    watch.follow(events)
    watch.compare(state, now)
    return watch.found
