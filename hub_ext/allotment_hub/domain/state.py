"""The world that decisions read: records by id, and indices that are derived from them alone.

A state changes only by :meth:`State.emit`, which applies an event and keeps it in the journal
for whoever commits it. :meth:`State.fork` gives an independent copy for looking ahead: records
are immutable and shared, only the indices are copied.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from .cells import Cell, CellKey, add_to
from .events import (
    Claim,
    Event,
    Grant,
    NodeRecord,
    PolicyVersion,
    Record,
    Reservation,
    Spent,
    Switch,
)  # fmt: skip
from .inventory import Device, Node, flavor_of, group_of, group_of_pool, slot_capacity
from .leases import Lease
from .lines import Bucket, bucket_key, candidate_cells
from .policy import Policy, Quota
from .records import replace
from .requests import Pass, Request, RequestState
from .states import LEASE_EDGES, REQUEST_EDGES, check_edge
from .stock import Stock
from .times import counts_alike, ends_anyway, lease_due


class State:
    """See the module. Attributes are for reading; only this class and its events write them."""

    def __init__(self) -> None:
        self.journal: list[Event] = []
        self.version = PolicyVersion(number=0, policy=Policy(), by="", at=0)
        self.nodes: dict[str, Node] = {}
        self.requests: dict[str, Request] = {}
        self.leases: dict[str, Lease] = {}
        self.claims: dict[str, Claim] = {}
        self.reservations: dict[str, Reservation] = {}
        self.switches: dict[str, Switch] = {}
        self.people: dict[str, Grant] = {}
        self.spent: dict[tuple[str, int], int] = {}
        self.passes: dict[str, dict[tuple[str, str], int]] = {}
        self.presence: dict[tuple[str, str], int] = {}
        self.sequence = 0
        self.fence = 0
        self.placement = "best-fit"
        self._clear_indices()

    # -- reading -----------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        return self.version.policy

    def on(self, switch: str) -> bool:
        known = self.switches.get(switch)
        return known is not None and known.on

    def cell(self, pool: str, flavor: str) -> Cell:
        """The counters of a pool and flavor; made on first use."""
        key = (pool, flavor)
        cell = self.cells.get(key)
        if cell is None:
            known = pool in self.policy.pools
            group = group_of_pool(self.policy, pool) if known else pool
            cell = self.cells[key] = Cell(pool, flavor, group)
        return cell

    def stock(self, pool: str, flavor: str) -> Stock | None:
        return self.stocks.get((self.cell(pool, flavor).group, flavor))

    def leases_of(self, user: str, server: str | None) -> Iterator[Lease]:
        for lease in self.leases.values():
            if lease.user == user and lease.server == server:
                yield lease

    def present(self, request: Request, now: int) -> bool:
        """Whether the owner has been looking at this request within the last minute and a half."""
        seen = self.presence.get((request.user, request.id))
        return seen is not None and now - seen <= 90_000

    def all_serve(self, devices: Iterable[tuple[str, int]]) -> bool:
        """Whether each device of a claim or reservation is in service on a node that takes work."""
        for uuid, _ in devices:
            place = self.places.get(uuid)
            if place is None:
                return False
            node, key, position = place
            shelf = self.stocks[key].shelves[node]
            if shelf.devices[position].health != "ok" or not shelf.node.serves:
                return False
        return True

    def passed_by(self, request_id: str) -> tuple[Pass, ...]:
        passes = self.passes.get(request_id, {})
        return tuple(
            Pass(request=who, times=times, why=why) for (who, why), times in passes.items()
        )

    # -- writing -----------------------------------------------------------------------------

    def emit(
        self, at: int, what: str, record: Record, actor: str = "governor", why: str = ""
    ) -> None:
        """Apply a change and keep it for the commit."""
        event = Event(at, what, record, actor, why)
        self.apply(event)
        self.journal.append(event)

    def take_journal(self) -> list[Event]:
        """The events since the last call: to be committed together."""
        taken, self.journal = self.journal, []
        return taken

    def apply(self, event: Event) -> None:
        """Replace the record that the event carries. The only way in which a state changes."""
        record = event.record
        if isinstance(record, Lease):
            self._put_lease(record)
        elif isinstance(record, Request):
            self._put_request(record)
        else:
            self._put_other(record)

    def load(self, records: Iterable[Record]) -> None:
        """Take over stored records (of live things), in any order, and build the indices once."""
        for record in records:
            if isinstance(record, Request):
                self.sequence = max(self.sequence, record.sequence)
                if record.live:
                    self.requests[record.id] = record
            elif isinstance(record, Lease):
                self.fence = max(self.fence, record.fence)
                if record.live:
                    self.leases[record.id] = record
                    self._count_passes(record)
            elif isinstance(record, PolicyVersion):
                if record.number >= self.version.number:
                    self.version = record
            elif isinstance(record, NodeRecord):
                self._keep_node(record)
            else:
                self._put_other(record)
        self.reindex()

    def _put_other(self, record: Record) -> None:
        if isinstance(record, Claim):
            self._put_claim(record)
        elif isinstance(record, Reservation):
            self._put_reservation(record)
        elif isinstance(record, PolicyVersion):
            self.version = record
            self.reindex()
        elif isinstance(record, NodeRecord):
            self._put_node(record)
        elif isinstance(record, Switch):
            self.switches[record.name] = record
            self.dirty_general = True
        elif isinstance(record, Grant):
            self.people[record.id] = record
            self.dirty_general = True
        elif isinstance(record, Spent):
            self.spent[record.tenant, record.period_starts_at] = record.amount

    def _put_claim(self, new: Claim) -> None:
        old = self.claims.pop(new.request, None)
        if old is not None:
            self._index_claim(old, -1)
        if new.active:
            self.claims[new.request] = new
            self._index_claim(new, 1)

    def _index_claim(self, claim: Claim, sign: int) -> None:
        add_to(self.claimed, (claim.tenant, claim.pool, claim.flavor), sign * claim.gpus)
        add_to(self.coming, (claim.tenant, claim.pool, claim.flavor), sign * claim.gpus)
        self.cell(claim.pool, claim.flavor).totals = None
        for uuid, _ in claim.devices:
            if sign > 0:
                self.held[uuid] = claim.request
            elif self.held.get(uuid) == claim.request:
                del self.held[uuid]
        for lease_id in claim.victims:
            if sign > 0:
                self._count_coming(lease_id, 1 if lease_id not in self.claim_of else 0)
                self.claim_of[lease_id] = claim.request
                self.watch_victim(lease_id)
            elif self.claim_of.get(lease_id) == claim.request:
                self._count_coming(lease_id, -1)
                lease = self.leases.get(lease_id)
                if lease is not None:  # it may be its tenant's own again
                    self.touched.setdefault((lease.pool, lease.flavor), False)
                del self.claim_of[lease_id]
        if sign < 0 and not self._granted(claim.request):
            self._wake(claim.pool, claim.flavor)

    def _count_coming(self, lease_id: str, sign: int) -> None:
        """Count the loan of a lease that is asked back: it is on its way to its owner."""
        lease = self.leases.get(lease_id)
        if lease is not None:
            add_to(self.loans_coming, (lease.pool, lease.flavor), sign * lease.borrowed)

    def watch_victim(self, lease_id: str) -> None:
        """Look at a lease that is claimed when its protected period is over."""
        lease = self.leases.get(lease_id)
        if lease is not None and lease.state in ("granted", "preparing", "active"):
            due = lease.protected_until
            if lease.state == "granted":
                due = max(due, lease.term_ends_at)
            heapq.heappush(self.victim_due, (due, lease_id))

    def _put_reservation(self, new: Reservation) -> None:
        old = self.reservations.pop(new.request, None)
        if old is not None:
            self._index_reservation(old, -1)
        if new.active:
            self.reservations[new.request] = new
            self._index_reservation(new, 1)

    def _index_reservation(self, kept: Reservation, sign: int) -> None:
        """What a guarantee owes to a reservation is as good as used: nobody may borrow it."""
        if kept.owed:
            add_to(self.claimed, (kept.tenant, kept.pool, kept.flavor), sign * kept.kept)
            self.cell(kept.pool, kept.flavor).totals = None
        for uuid, _ in kept.devices:
            if sign > 0:
                self.reserved[uuid] = (kept.request, kept.starts_at)
            else:
                self.reserved.pop(uuid, None)
        if sign < 0 and not self._granted(kept.request):
            self._wake(kept.pool, kept.flavor)

    def _granted(self, request_id: str) -> bool:
        """Whether what was kept for a request is in its use by now, and thus free for nobody."""
        request = self.requests.get(request_id)
        return request is not None and request.state == "granted"

    def _put_node(self, record: NodeRecord) -> None:
        name = record.node.name
        last = not record.gone and (not self.nodes or name > max(self.nodes))
        self._keep_node(record)
        if not last or self.leases or self.queue:
            self.reindex()
        else:  # an inventory is being read: its nodes come in the order of their names
            self._stock_node(name)

    def _keep_node(self, record: NodeRecord) -> None:
        if record.gone:
            self.nodes.pop(record.node.name, None)
        else:
            self.nodes[record.node.name] = record.node

    def _put_request(self, new: Request) -> None:
        old = self.requests.get(new.id)
        if old is not None:
            check_edge(REQUEST_EDGES, f"request {new.id}", old.state, new.state)
            if old.state == "queued":
                if (
                    new.state == "queued"
                    and bucket_key(self.policy, new) == bucket_key(self.policy, old)
                    and new.submitted_at == old.submitted_at
                ):
                    self.requests[new.id] = new  # the same place in the same line
                    return
                self._dequeue(old)
            self.parked -= old.state == "parked"
            if new.id in self.claims and new.state != "queued":
                self.recheck_claims.add(new.id)
        self.sequence = max(self.sequence, new.sequence)
        if new.live:
            self.requests[new.id] = new
            self.parked += new.state == "parked"
            if new.state == "queued":
                self._enqueue(new)
        else:
            self.requests.pop(new.id, None)
            self.passes.pop(new.id, None)
            self.presence.pop((new.user, new.id), None)

    def _put_lease(self, new: Lease) -> None:
        old = self.leases.get(new.id)
        if old is not None:
            check_edge(LEASE_EDGES, f"lease {new.id}", old.state, new.state)
            self._change_of_claimed(old, new)
        claimed = new.id in self.claim_of
        if claimed:
            self._count_coming(new.id, -1)
        same = old is not None and new.live and counts_alike(old, new)
        if old is not None and not same:
            self._count(old, -1, devices=not new.live)
        self.fence = max(self.fence, new.fence)
        if new.live:
            self.leases[new.id] = new
            if not same:
                self._count(new, 1, devices=old is None)
            if old is not None and old.lenders != new.lenders:
                self.dirty_stocks.setdefault(
                    (self.cell(new.pool, new.flavor).group, new.flavor), ()
                )
            due = lease_due(new)
            if due is not None:
                heapq.heappush(self.due, (due, new.id))
        else:
            self.leases.pop(new.id, None)
            self.dirty_general = True
            claimant = self.requests.get(self.claim_of.get(new.id, ""))
            if claimant is not None and claimant.state == "queued":
                self.dirty[bucket_key(self.policy, claimant)] = None
        if claimed:
            self._count_coming(new.id, 1)
        if old is None:
            if new.lenders:
                self.dirty_loans[self.cell(new.pool, new.flavor).group, new.flavor] = None
            self._count_passes(new)

    def _count_passes(self, lease: Lease) -> None:
        for passed in lease.passed:
            passes = self.passes.setdefault(passed, {})
            key = (lease.request, lease.passed_why)
            passes[key] = passes.get(key, 0) + 1

    def _change_of_claimed(self, old: Lease, new: Lease) -> None:
        request = self.claim_of.get(new.id)
        if request is None:
            return
        if bool(old.lenders) != bool(new.lenders):
            self.recheck_claims.add(request)
        if old.state == "granted" and new.state in ("preparing", "active"):
            heapq.heappush(self.victim_due, (new.protected_until, new.id))

    def _count(self, lease: Lease, sign: int, *, devices: bool) -> None:
        self.cell(lease.pool, lease.flavor).count(lease, sign)
        key = (lease.pool, lease.flavor)
        self.touched.setdefault(key, False)
        self._count_offer(lease, key, sign)
        add_to(self.used_by_user, (lease.tenant, lease.user), sign * lease.gpus)
        add_to(self.used_by_tenant, lease.tenant, sign * lease.gpus)
        add_to(self.running, lease.class_, sign)
        members = self.by_cell.setdefault(key, {})
        if sign > 0:
            members[lease.id] = None
        elif devices:
            members.pop(lease.id, None)
        if not devices:
            return
        if lease.devices:
            on_one = len(lease.devices) // len(lease.nodes)
            mix = self.shapes.setdefault((self.cells[key].group, lease.flavor), {})
            add_to(mix, (lease.devices[0].share, on_one, lease.cpus), sign)
        for device in lease.devices:
            add_to(self.taken, device.uuid, sign * device.share)
            place = self.places.get(device.uuid)
            if place is not None:
                node, stock_key, position = place
                self.stocks[stock_key].change(node, position, sign * device.share)
                if sign < 0:
                    freed = self.dirty_stocks.get(stock_key, ())
                    self.dirty_stocks[stock_key] = (
                        (*freed, device.uuid) if freed is not None else None
                    )
        for node in lease.nodes if lease.cpus or lease.memory else ():
            cpus, memory = self.host_used.get(node, (0, 0))
            self.host_used[node] = (cpus + sign * lease.cpus, memory + sign * lease.memory)

    def _count_offer(self, lease: Lease, key: CellKey, sign: int) -> None:
        """Which leases may be asked back or end anyway, and which borrow."""
        if lease.lenders or ends_anyway(lease):
            add_to(self.takeable, (self.cells[key].group, lease.flavor), sign * lease.gpus)
            offers = self.offers.setdefault(key, {})
            if sign > 0:
                offers[lease.id] = None
            else:
                del offers[lease.id]
        if lease.lenders:
            entry = (lease.granted_at, lease.fence, lease.id)
            line = self.borrowers.setdefault(key, [])
            if sign > 0:
                insort(line, entry)
            else:
                del line[bisect_left(line, entry)]

    def _wake(self, pool: str, flavor: str) -> None:
        """What this pool and flavor blocked may fit now: look at it again."""
        self.dirty_stocks[self.cell(pool, flavor).group, flavor] = None

    # -- the queue ---------------------------------------------------------------------------

    def _enqueue(self, request: Request) -> None:
        key = bucket_key(self.policy, request)
        bucket = self.queue.get(key)
        if bucket is None:
            bucket = self.queue[key] = Bucket(key, request)
            bucket.cells = candidate_cells(self.policy, request)
            bucket.stocks = tuple(
                dict.fromkeys(
                    (self.cell(pool, flavor).group, flavor) for pool, flavor in bucket.cells
                )
            )
            for stock_key in bucket.stocks:
                self.lines.setdefault(stock_key, {})[key] = None
        entry = (request.submitted_at, request.sequence, request.id)
        if not bucket.entries or entry < bucket.entries[0]:
            bucket.blocked = None
            self.dirty[key] = None
        elif bucket.owed:
            self.dirty[key] = None  # what is owed to it may be asked back at once
        insort(bucket.entries, entry)
        add_to(self.queued_by_user, (request.tenant, request.user), 1)

    def _dequeue(self, request: Request) -> None:
        key = bucket_key(self.policy, request)
        bucket = self.queue[key]
        entry = (request.submitted_at, request.sequence, request.id)
        at = bisect_left(bucket.entries, entry)
        del bucket.entries[at]
        if not bucket.entries:
            del self.queue[key]
            self.dirty.pop(key, None)
            self.general.pop(key, None)
            for stock_key in bucket.stocks:
                self.lines[stock_key].pop(key, None)
        elif at == 0:
            bucket.blocked = None
            self.dirty[key] = None
        add_to(self.queued_by_user, (request.tenant, request.user), -1)

    # -- indices -----------------------------------------------------------------------------

    def _clear_indices(self) -> None:
        self.cells: dict[CellKey, Cell] = {}
        self.stocks: dict[tuple[str, str], Stock] = {}
        self.places: dict[str, tuple[str, tuple[str, str], int]] = {}
        self.taken: dict[str, int] = {}
        self.host_used: dict[str, tuple[int, int]] = {}
        self.by_cell: dict[CellKey, dict[str, None]] = {}
        self.shapes: dict[tuple[str, str], dict[tuple[int, int, int], int]] = {}
        self.offers: dict[CellKey, dict[str, None]] = {}
        self.borrowers: dict[CellKey, list[tuple[int, int, str]]] = {}
        self.used_by_user: dict[tuple[str, str], int] = {}
        self.used_by_tenant: dict[str, int] = {}
        self.queued_by_user: dict[tuple[str, str], int] = {}
        self.running: dict[str, int] = {}
        self.queue: dict[tuple[object, ...], Bucket] = {}
        self.due: list[tuple[int, str]] = []
        self.quotas: dict[tuple[str, str, str], Quota] = {}
        self.owners: dict[CellKey, list[tuple[str, Quota]]] = {}
        self.covered: dict[tuple[str, str], int] = {}
        for name, tenant in self.policy.tenants.items():
            for quota in tenant.quotas:
                self.quotas[name, quota.pool, quota.flavor] = quota
                self.owners.setdefault((quota.pool, quota.flavor), []).append((name, quota))
                if quota.pool in self.policy.pools:
                    group = group_of_pool(self.policy, quota.pool)
                    add_to(self.covered, (group, quota.flavor), quota.guarantee)
        self.parked = 0
        self.held: dict[str, str] = {}
        self.reserved: dict[str, tuple[str, int]] = {}
        self.claimed: dict[tuple[str, str, str], int] = {}
        self.coming: dict[tuple[str, str, str], int] = {}
        self.loans_coming: dict[CellKey, int] = {}
        self.claim_of: dict[str, str] = {}
        self.victim_due: list[tuple[int, str]] = []
        self.recheck_claims: set[str] = set()
        self.takeable: dict[tuple[str, str], int] = {}
        # What has changed since admission last looked. Lines that are blocked are looked at again
        # only where one of these says that the answer may be another.
        self.lines: dict[tuple[str, str], dict[tuple[object, ...], None]] = {}
        self.dirty: dict[tuple[object, ...], None] = {}
        self.general: dict[tuple[object, ...], None] = {}
        self.dirty_stocks: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self.dirty_loans: dict[tuple[str, str], None] = {}
        self.dirty_general = True
        self.retries: list[tuple[int, int, str, tuple[object, ...]]] = []
        self.touched: dict[CellKey, bool] = {}

    def reindex(self) -> None:
        """Build every index anew from the records: after loading, a new policy or other nodes."""
        self._clear_indices()
        for lease in self.leases.values():
            for device in lease.devices:
                add_to(self.taken, device.uuid, device.share)
        self._stock_nodes()
        for lease in self.leases.values():
            self._count_without_devices(lease)
        for request in sorted(self.requests.values(), key=lambda r: r.sequence):
            self.parked += request.state == "parked"
            if request.state == "queued":
                self._enqueue(request)
        for claim in self.claims.values():
            self._index_claim(claim, 1)
        for kept in self.reservations.values():
            self._index_reservation(kept, 1)
        self.recheck_claims = set(self.claims)
        self.touched = dict.fromkeys(self.touched, True)

    def _stock_nodes(self) -> None:
        for name in sorted(self.nodes):
            self._stock_node(name)

    def _stock_node(self, name: str) -> None:
        node = self.nodes[name]
        group = group_of(self.policy, node)
        by_flavor: dict[str, list[Device]] = {}
        for device in node.devices:
            flavor = flavor_of(self.policy, node, device)
            if flavor is not None:
                by_flavor.setdefault(flavor, []).append(device)
        for flavor, devices in by_flavor.items():
            key = (group, flavor)
            stock = self.stocks.get(key)
            if stock is None:
                capacity = slot_capacity(self.policy, flavor)
                stock = self.stocks[key] = Stock(group, flavor, capacity)
            for position, device in enumerate(devices):
                self.places[device.uuid] = (name, key, position)
            stock.add(node, tuple(devices), self.taken)

    def _count_without_devices(self, lease: Lease) -> None:
        taken, places = self.taken, self.places
        self.taken, self.places = {}, {}
        self._count(lease, 1, devices=True)
        self.taken, self.places = taken, places
        due = lease_due(lease)
        if due is not None:
            heapq.heappush(self.due, (due, lease.id))

    def fork(self) -> State:
        """An independent copy with an empty journal: what is done to it leaves no trace here."""
        other = State.__new__(State)
        other.journal = []
        for name, value in self.__dict__.items():
            if name == "journal":
                continue
            if name in ("cells", "stocks", "queue"):
                value = {key: part.copy() for key, part in value.items()}
            elif name == "borrowers":
                value = {key: line.copy() for key, line in value.items()}
            elif name in ("by_cell", "lines", "offers", "passes", "shapes"):
                value = {key: dict(part) for key, part in value.items()}
            elif isinstance(value, (dict, list, set)):
                value = value.copy()
            setattr(other, name, value)
        return other


def with_state(request: Request, state: RequestState, now: int, **changes: Any) -> Request:
    """The request in another state since ``now``."""
    return replace(request, state=state, state_since=now, **changes)
