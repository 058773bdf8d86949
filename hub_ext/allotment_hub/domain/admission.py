"""What happens next: timers that fell due, then grants in order, until nothing changes any more.

``decide`` mutates the state it is given through events; fork the state first to look ahead. It
terminates: each pass grants, ends or moves at least one record along a declared edge, or stops.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from . import quota
from .checks import CEILING, PLACEMENT, Blocked, Fit, check, interruptible_of
from .events import Claim
from .leases import UNASSIGNED, Lease
from .ordering import OrderKey, bucket_order, decisive, lines_in_front
from .preemption import plan_preemption
from .records import replace
from .requests import Reason, Request
from .reservations import check_reservations, end_reservation, reserve
from .returns import (
    claims_due,
    end_claim,
    make_claim,
    plan_return,
    serve_claims,
    take_ready_claim,
    waiting_for_return,
)
from .state import Bucket, Cell, State, bucket_key, ends_anyway, lease_due, with_state
from .timers import expire, still_asked, undo

MAX_PASSES = 1000
"""A bound on the passes of one cycle, so that a fault in a rule cannot stop the governor."""


def decide(state: State, now: int) -> None:
    """Bring a state to rest at ``now``."""
    for _ in range(MAX_PASSES):
        before = len(state.journal)
        expire(state, now)
        _check_claims(state, now)
        check_reservations(state, now)
        serve_claims(state, now)
        _settle(state, now)
        _admit(state, now)
        if len(state.journal) == before:
            return


CLAIMS_AHEAD = 64
"""How deep into one line leases are asked back at the same time."""


def next_due(state: State, now: int) -> int | None:
    """When ``decide`` has to run again if nothing happens before; None: not by time."""
    while state.due:
        due, lease_id = state.due[0]
        lease = state.leases.get(lease_id)
        if lease is not None and lease_due(lease) == due:
            break
        heapq.heappop(state.due)
    times = [state.due[0][0]] if state.due else []
    claim = claims_due(state)
    if claim is not None:
        times.append(claim)
    if state.retries:
        times.append(state.retries[0][0])
    times += request_dues(state)
    return max(now, min(times)) if times else None


def request_dues(state: State) -> list[int]:
    """When requests that may wait only so long come to their end."""
    dues = []
    limits = {
        name: (class_.max_wait, class_.parked_for) for name, class_ in state.policy.classes.items()
    }
    waiting = any(limit is not None for limit, _ in limits.values())
    for request in state.requests.values() if waiting or state.parked else ():
        longest, parked_for = limits.get(request.class_, (None, None))
        if request.state == "parked" and parked_for is not None:
            dues.append(request.state_since + parked_for)
        elif request.state == "queued" and longest is not None:
            dues.append(request.submitted_at + longest)
    return dues


# -- grants ----------------------------------------------------------------------------------


def _admit(state: State, now: int) -> None:
    """One pass, in order, over the lines whose answer may have changed since the last."""
    heap: list[tuple[OrderKey, int, Bucket]] = []
    rooms = _lines_to_try(state, now)
    for number, key in enumerate(rooms):
        bucket = state.queue.get(key)
        if bucket is not None:
            heap.append((bucket_order(state, bucket, now), number, bucket))
    heapq.heapify(heap)
    while heap:
        order, number, bucket = heapq.heappop(heap)
        if not bucket.entries or state.queue.get(bucket.key) is not bucket:
            continue
        room = rooms[bucket.key]
        if room is not None and not room.may_still_fit(bucket):
            continue  # those in front have taken what had come free
        fresh = bucket_order(state, bucket, now)
        if fresh > order:
            heapq.heappush(heap, (fresh, number, bucket))
            continue
        first_by = decisive(fresh, heap[0][0]) if heap else ""
        if _try(state, bucket, fresh, now, first_by) and bucket.entries:
            heapq.heappush(heap, (bucket_order(state, bucket, now), number, bucket))


def _lines_to_try(state: State, now: int) -> dict[tuple[object, ...], _Room | None]:
    """The lines to look at: new ones, those that wait for what has been freed or lent, and those
    whose time has come. Takes note that they have been looked at. A line that is looked at only
    for what has come free comes with it.
    """
    keys: dict[tuple[object, ...], _Room | None] = dict.fromkeys(state.dirty)
    if state.dirty_general:
        keys.update(state.general)
    for stock_key, freed in state.dirty_stocks.items():
        room = _Room(state, stock_key, freed)
        for key in state.lines.get(stock_key, ()):
            if keys.get(key, room) is not None and room.may_fit(state.queue[key]):
                keys[key] = None if key in keys else room
    for stock_key in state.dirty_loans:
        for key in state.lines.get(stock_key, ()):
            line = state.queue[key]
            if line.owed and line.entries[0][2] not in state.claims:
                keys[key] = None
    while state.retries and state.retries[0][0] <= now:
        keys[heapq.heappop(state.retries)[-1]] = None
    state.dirty, state.dirty_stocks, state.dirty_loans = {}, {}, {}
    state.dirty_general = False
    return keys


class _Room:
    """What has come free in a stock, held against many lines: figures that they share are worked
    out once. A yes may be wrong, since the checks look again; a no must not.
    """

    def __init__(
        self, state: State, stock_key: tuple[str, str], freed: tuple[str, ...] | None
    ) -> None:
        self.state, self.stock_key = state, stock_key
        # None: not only devices have come free, but what was kept of those that were.
        self.fresh = freed is None or any(uuid not in state.held for uuid in freed)
        self._stock = state.stocks.get(stock_key)
        self._held = _held_free(state, stock_key)
        self._look()

    def _look(self) -> None:
        self.free = self._stock.free if self._stock is not None else 0
        self.open = self.free - self._held
        self._left: dict[tuple[str, tuple[str, str]], int] = {}
        self._loans: dict[tuple[str, str], int] = {}
        self._over: dict[tuple[str, str], int] = {}

    def may_still_fit(self, line: Bucket) -> bool:
        """As :meth:`may_fit`, after others may have taken some of it."""
        if self._stock is not None and self._stock.free != self.free:
            self._look()
        return self.may_fit(line)

    def may_fit(self, line: Bucket) -> bool:
        """Whether the answer for a line may have changed. Who has a claim is looked at when its
        devices come back; sooner only where enough is free that is held for nobody, and was not
        already when it was last looked at.
        """
        if line.blocked is None:
            return True
        gpus, tenant = line.sample.ask.gpus, line.sample.tenant
        if line.owed:
            first = line.entries[0][2]
            if first not in self.state.claims:
                return True
            return (
                self.open >= gpus
                and (self.fresh or line.short)
                and any(self._owned(key, tenant, gpus, first) for key in line.cells)
            )
        nothing = line.blocked.code in ("NothingToBorrow", "LendLimitReached")
        for key in line.cells:
            left = self.left(key, tenant)
            if left >= gpus:
                return True  # its guarantee covers it by now
            if (key[1] != self.stock_key[1]) or self.free < gpus:
                continue
            if not nothing or gpus - max(0, left) <= self.loans(key):
                return True
        return False

    def left(self, key: tuple[str, str], tenant: str) -> int:
        """What a tenant has left of its guarantee."""
        known = self._left.get((tenant, key))
        if known is None:
            known = self._left[tenant, key] = quota.room(self.state, self.state.cell(*key), tenant)
        return known

    def loans(self, key: tuple[str, str]) -> int:
        """What could be lent beside what is lent."""
        known = self._loans.get(key)
        if known is None:
            cell = self.state.cell(*key)
            lend, _, lent, over = quota.totals(self.state, cell)
            known = lend + quota.unassigned(self.state, cell) - lent - over
            self._loans[key], self._over[key] = known, over
        return known

    def _owned(self, key: tuple[str, str], tenant: str, gpus: int, request: str) -> bool:
        """Whether loans leave a guarantee whole as it is, with nothing more coming back."""
        lack = -self.loans(key)
        if lack > self.state.loans_coming.get(key, 0) + self._over.get(key, 0):
            return False
        return not quota.shortage(self.state, self.state.cell(*key), tenant, gpus, 0, request)


def _held_free(state: State, stock_key: tuple[str, str]) -> int:
    """What is free of a stock but held for claims."""
    held = 0
    for uuid in state.held:
        place = state.places.get(uuid)
        if place is not None and place[1] == stock_key:
            stock = state.stocks[stock_key]
            shelf, position = stock.shelves[place[0]], place[2]
            held += stock.capacity if position in shelf.free else shelf.part.get(position, 0)
    return held


def _try(state: State, bucket: Bucket, order: OrderKey, now: int, first_by: str = "") -> bool:
    """Grant the first of a line, or note what blocks it. True when it was granted."""
    request = state.requests[bucket.entries[0][2]]
    if state.claims:
        take_ready_claim(state, [entry[2] for entry in bucket.entries[:CLAIMS_AHEAD]], now)
    result = check(state, request, bucket.cells, now)
    if isinstance(result, Fit):
        passed = _passed(state, bucket, order, result.cell, now)
        grant(state, request, result, now, passed=passed, first_by=first_by)
        return True
    bucket.blocked = _ask_back(state, request, result, now)
    bucket.owed, bucket.short = result.owed, result.shortage > 0
    if request.id in state.claims:
        _ask_back_more(state, bucket, now)
    if bucket.blocked.code in GENERAL:
        state.general[bucket.key] = None
    else:
        state.general.pop(bucket.key, None)
    if bucket.blocked.until is not None and bucket.blocked.code == "BudgetSpent":
        _retry_at(state, bucket, bucket.blocked.until)
    if result.rank in (CEILING, PLACEMENT):
        reserve(state, request, result, now)
        due = request.submitted_at + state.policy.ordering.reserve_after
        if due > now:
            _retry_at(state, bucket, due)
    if not request.reasons or request.reasons[0].code != bucket.blocked.code:
        noted = replace(bucket.blocked, since=now)
        state.emit(
            now, "request.waiting", replace(request, reasons=(noted,)), why=bucket.blocked.code
        )
    return False


def _retry_at(state: State, bucket: Bucket, due: int) -> None:
    """Look at a line again at a time; asking for the same time again changes nothing."""
    _, sequence, _ = bucket.entries[0]
    if bucket.retry != (due, sequence):
        bucket.retry = (due, sequence)
        # An amended request is in another line at the same place: keys with None have no order.
        heapq.heappush(state.retries, (due, sequence, repr(bucket.key), bucket.key))


GENERAL = frozenset(
    {
        "UserLimitReached", "ApprovalPending", "HeldForPriority", "BudgetSpent", "NoQuota",
        "GrantsPaused", "Reconciling", "BackendUnreachable", "CeilingReached",
        "EnvironmentPreparing",
    }
)  # fmt: skip
"""Reasons that the end of any lease, or a word of a person, may lift."""

PASSING = frozenset({"Reconciling", "BackendUnreachable"})
"""Reasons that say nothing about the demand: what was asked back for it goes on to return."""


def _ask_back(state: State, request: Request, blocked: Blocked, now: int) -> Reason:
    """Keep, make or renew the claim of a request that its guarantee covers, or whose class may
    take from lower ones, and say its reason.
    """
    mine = state.claims.get(request.id)
    preempts = bool(state.policy.classes[request.class_].preempts) if blocked.cell else False
    if blocked.cell is not None and (blocked.owed or preempts):
        if mine is not None and claim_holds(state, mine):
            return waiting_for_return(state, request)
        plan = None
        if blocked.owed:
            plan = plan_return(state, request, blocked.cell, blocked.shortage, now)
        if plan is None and preempts:
            plan = plan_preemption(state, request, blocked.cell, now)
        if plan is not None and plan.victims:
            end_reservation(state, request.id, now, "what it waits for is asked back")
            make_claim(state, request, blocked.cell, plan, now)
            return waiting_for_return(state, request)
    if mine is not None and not (blocked.reason.code in PASSING and claim_holds(state, mine)):
        end_claim(state, request.id, now, f"cannot be served now: {blocked.reason.code}")
    return blocked.reason


def _ask_back_more(state: State, bucket: Bucket, now: int) -> None:
    """What the guarantee owes to those further back in a line is asked back at once too, and not
    one by one: all of it is there within one notice.
    """
    for _, _, request_id in bucket.entries[1:CLAIMS_AHEAD]:
        request = state.requests[request_id]
        mine = state.claims.get(request_id)
        if mine is not None and claim_holds(state, mine):
            continue
        result = check(state, request, bucket.cells, now)
        if isinstance(result, Fit) or not result.owed:
            return
        if _ask_back(state, request, result, now).code != "WaitingForReturn":
            return


def _passed(state: State, bucket: Bucket, order: OrderKey, cell: Cell, now: int) -> tuple[str, ...]:
    """The requests earlier in line for the same devices that this grant goes past."""
    key = (cell.group, cell.flavor)
    return tuple(
        sorted(
            other.entries[0][2]
            for other in lines_in_front(state, key, order, now)
            if other is not bucket and other.blocked is not None
        )
    )


def grant(
    state: State,
    request: Request,
    fit: Fit,
    now: int,
    passed: tuple[str, ...] = (),
    first_by: str = "",
) -> Lease:
    """Turn a fit into a lease. The grant, and what it changes for others, are one batch."""
    class_ = state.policy.classes[request.class_]
    watched = (
        request.kind != "session" or request.ask.start == "always" or state.present(request, now)
    )
    held_until = None if watched else now + class_.claim_window
    lease = _lease(state, request, fit, now, held_until, passed)
    state.emit(now, "lease.granted", lease, why=fit.rule)
    granted = with_state(
        request, "granted", now, lease=lease.id, grants=request.grants + 1, reasons=()
    )
    why = f"{fit.rule}; first by rule {first_by}" if first_by else fit.rule
    state.emit(now, "request.granted", granted, why=why)
    end_claim(state, request.id, now, "granted")
    end_reservation(state, request.id, now, "granted")
    if quota.spare(state, fit.cell, request.tenant) < 0:
        _move_loans(state, fit.cell, now)
    return lease


def _lease(
    state: State, request: Request, fit: Fit, now: int, held_until: int | None,
    passed: tuple[str, ...],
) -> Lease:  # fmt: skip
    policy, cell = state.policy, fit.cell
    class_ = policy.classes[request.class_]
    terms = policy.terms(request.tenant, request.class_)
    rule = policy.reclaim_rule(
        class_=request.class_, flavor=cell.flavor, tenant=request.tenant, user=request.user
    )
    borrowed = bool(fit.lenders)
    longest = max(class_.duration.max, fit.term)
    # A guaranteed lease may be renewed up to the longest duration of its class.
    renewals = (terms.renewals or 0) if borrowed else -(-(longest - fit.term) // max(1, fit.term))
    protected = (terms.protected or 0) if borrowed else 0
    return Lease(
        id=f"{request.id}.{request.grants + 1}",
        request=request.id,
        fence=state.fence + 1,
        kind=request.kind,
        class_kind=class_.kind,
        user=request.user,
        tenant=request.tenant,
        class_=request.class_,
        pool=cell.pool,
        flavor=cell.flavor,
        gpus=request.ask.gpus,
        devices=fit.devices,
        state="granted",
        rule=fit.rule,
        policy_version=state.version.number,
        granted_at=now,
        term=fit.term,
        term_ends_at=held_until if held_until is not None else now + class_.prepare_within,
        interruptible=interruptible_of(state, request),
        lenders=fit.lenders,
        borrowed_at_grant=borrowed,
        state_since=now,
        renewals_left=renewals,
        keeps_left=rule.keep.times,
        protected=protected,
        protected_until=now + protected,
        notice=(terms.notice or 0) if borrowed else rule.notice,
        stop_grace=rule.stop_grace,
        held_until=held_until,
        server=request.server,
        cpus=(request.ask.cpus or 0) // request.ask.nodes,
        memory=(request.ask.memory or 0) // request.ask.nodes,
        priority=class_.priority,
        passed=passed,
        passed_why="fits where they do not" if passed else "",
    )


# -- settling --------------------------------------------------------------------------------


def _settle(state: State, now: int) -> None:
    """Where a tenant's guarantee has freed, its borrowed leases become guaranteed, oldest first;
    where an owner uses what it had lent, the loan moves to an owner with something to spare.
    """
    touched, state.touched = state.touched, {}
    for key, rebuilt in touched.items():
        cell = state.cells[key]
        if not cell.borrowed:
            continue
        for tenant in sorted(cell.borrowed):
            room = quota.room(state, cell, tenant)
            if room > 0:
                _promote(state, cell, tenant, room, now)
                rebuilt = True
        if rebuilt:  # else nobody can have lent too much: grants see to that themselves
            _move_loans(state, cell, now)


def _borrowers(state: State, cell: Cell, *, youngest: bool = False) -> Iterator[Lease]:
    """The leases that borrow in a cell, oldest first or youngest first."""
    line = state.borrowers.get((cell.pool, cell.flavor), [])
    return (state.leases[lease_id] for _, _, lease_id in (line[::-1] if youngest else line[:]))


def _promote(state: State, cell: Cell, tenant: str, room: int, now: int) -> None:
    for lease in _borrowers(state, cell):
        if room <= 0:
            return
        # What is asked back goes as announced, and its owner has it by then. Where the devices that
        # have freed serve the owner as well, the claim ends, and the lease is promoted after that.
        if lease.tenant != tenant or lease.id in state.claim_of:
            continue
        lenders, left = [], room
        for name, amount in reversed(lease.lenders):
            part = min(left, amount)
            left -= part
            if amount > part:
                lenders.append((name, amount - part))
        changed = replace(lease, lenders=tuple(reversed(lenders)))
        if not changed.lenders:
            changed = replace(changed, rule=f"guarantee:{tenant}/{cell.pool}/{cell.flavor}")
        room = left
        what = "lease.guaranteed" if not changed.lenders else "lease.loan_reduced"
        state.emit(now, what, changed, why=f"the guarantee of {tenant} has freed")
        if not changed.lenders and lease.state == "noticed" and not still_asked(state, changed):
            undo(state, changed, now, "the lease has become guaranteed")


def _move_loans(state: State, cell: Cell, now: int) -> None:
    if not any(quota.spare(state, cell, name) < 0 for name in cell.lent):
        return
    spare: dict[str, int] = {}
    excess: dict[str, int] = {}
    owners = state.owners.get((cell.pool, cell.flavor), ())
    for name in (UNASSIGNED, *(name for name, _ in owners), *cell.lent):
        room = quota.spare(state, cell, name)
        (spare if room >= 0 else excess)[name] = abs(room)
    if not any(spare.values()):
        return
    for lease in _borrowers(state, cell, youngest=True):
        if not any(excess.values()):
            break
        if not any(excess.get(name) for name, _ in lease.lenders):
            continue
        lenders = _moved(lease, excess, spare)
        if lenders != lease.lenders:
            changed = replace(lease, lenders=lenders)
            state.emit(now, "lease.loan_moved", changed, why="an owner uses what it had lent")


def _moved(
    lease: Lease, excess: dict[str, int], spare: dict[str, int]
) -> tuple[tuple[str, int], ...]:
    """The lenders of a lease after moving what its lenders have lent too much; both tables are
    brought up to date. A tenant never lends to itself.
    """
    amounts = dict(lease.lenders)
    for name in list(amounts):
        over = min(amounts[name], excess.get(name, 0))
        for other in sorted(spare, key=lambda n: (n != UNASSIGNED, -spare[n], n)):
            part = min(over, spare[other])
            if part <= 0 or other in (lease.tenant, name):
                continue
            amounts[name] -= part
            amounts[other] = amounts.get(other, 0) + part
            excess[name] -= part
            spare[other] -= part
            over -= part
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def _check_claims(state: State, now: int) -> None:
    """End the claims whose request no longer waits; work out anew those that cannot be served."""
    if not state.recheck_claims:
        return
    doubtful, state.recheck_claims = sorted(state.recheck_claims), set()
    for request_id in doubtful:
        request = state.requests.get(request_id)
        if request is None or request.state != "queued":
            end_claim(state, request_id, now, "the request no longer waits")
        elif request_id in state.claims and not claim_holds(state, state.claims[request_id]):
            state.dirty[bucket_key(state.policy, request)] = None


def claim_holds(state: State, claim: Claim) -> bool:
    """Whether a claim will be served: somebody is still to go, and no device has failed."""
    waiting = False
    for lease_id in claim.victims:
        lease = state.leases.get(lease_id)
        if lease is None:
            continue
        waiting = True
        # Guaranteed leases are taken only of the claimant's own tenant: a higher class of it.
        if not ends_anyway(lease) and not lease.lenders and lease.tenant != claim.tenant:
            return False
    return waiting and state.all_serve(claim.devices)
