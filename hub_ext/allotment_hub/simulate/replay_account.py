"""The account of a replay: who waited how long, what was used, lent, taken back and lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from allotment_hub.domain.leases import Lease
from allotment_hub.domain.lines import candidate_cells
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State

from .traces import Job

End = Literal["finished", "rejected", "term", "taken", "expired"]
"""How a job ended: it had run as long as it really did; it could never start; its term was over
before; it was taken back and does not restart; it waited as long as its class allows."""


@dataclass(slots=True)
class Run:
    """One job of a trace on its way. Times in milliseconds.

    ``left`` is the work that remains, ``inside`` the longest that it waited at a time while its
    tenant's guarantee had room for it.
    """

    job: Job
    left: int
    first_start: int | None = None
    waits_since: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    end: End | None = None
    evictions: int = 0
    inside: int = 0
    mark: int = 0

    @property
    def wait(self) -> int | None:
        """From the request to the first start."""
        return None if self.first_start is None else self.first_start - self.job.submit


@dataclass(slots=True)
class _Room:
    """For how long in all the guarantee has had room for one shape of one tenant."""

    cells: tuple[tuple[str, str, str], ...]
    gpus: int
    open_since: int | None = None
    total: int = 0

    def at(self, now: int) -> int:
        return self.total + (now - self.open_since if self.open_since is not None else 0)


class Inside:
    """When tenants' guarantees had room: worked out from the leases alone, not from what the
    rules say of themselves, so that it can be held against them.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._rooms: dict[tuple[object, ...], _Room] = {}
        self._by_tenant: dict[str, list[_Room]] = {}
        self._touched: set[str] = set()

    def room(self, request: Request, now: int) -> _Room:
        """The room for the shape of a request, followed from now on."""
        cells = candidate_cells(self._state.policy, request)
        key = (request.tenant, cells, request.ask.gpus)
        room = self._rooms.get(key)
        if room is None:
            named = tuple((request.tenant, pool, flavor) for pool, flavor in cells)
            room = self._rooms[key] = _Room(named, request.ask.gpus)
            self._by_tenant.setdefault(request.tenant, []).append(room)
            self._look(room, now)
        return room

    def touch(self, tenant: str) -> None:
        """The use of a tenant has changed."""
        self._touched.add(tenant)

    def look(self, now: int) -> None:
        """Look again at the guarantees of the tenants whose use has changed."""
        for tenant in self._touched:
            for room in self._by_tenant.get(tenant, ()):
                self._look(room, now)
        self._touched.clear()

    def _look(self, room: _Room, now: int) -> None:
        is_open = False
        for cell in room.cells:
            is_open = is_open or self._free(*cell) >= room.gpus
        if is_open and room.open_since is None:
            room.open_since = now
        elif not is_open and room.open_since is not None:
            room.total += now - room.open_since
            room.open_since = None

    def _free(self, tenant: str, pool: str, flavor: str) -> int:
        quota = self._state.quotas.get((tenant, pool, flavor))
        cell = self._state.cell(pool, flavor)
        used = cell.used.get(tenant, 0) - cell.borrowed.get(tenant, 0)
        return (quota.guarantee if quota is not None else 0) - used


@dataclass(slots=True)
class _Held:
    """A live lease: since when it borrows how much."""

    since: int
    granted_at: int
    borrowed: int


class Account:
    """Follows a replay. GPU time is kept in milli-GPU-milliseconds, exactly."""

    def __init__(self, state: State, restart_from_zero: bool, now: int) -> None:
        self._state = state
        self._restart = restart_from_zero
        self.began = self.ended = now
        self.runs: dict[str, Run] = {}
        self.inside = Inside(state)
        self.events = self.decisions = self.evictions = 0
        self.allocated = self.borrowed = self.lost = 0
        self._held: dict[str, _Held] = {}
        self._rooms: dict[str, _Room] = {}
        self.capacity = sum(stock.in_service for stock in state.stocks.values())

    def add(self, job: Job) -> Run:
        """Take a job in."""
        run = self.runs[job.id] = Run(job, job.duration)
        return run

    def queued(self, run: Run, request: Request, now: int) -> None:
        """The job waits, for the first time or again."""
        run.waits_since = now
        room = self._rooms[run.job.id] = self.inside.room(request, now)
        run.mark = room.at(now)

    def lease(self, lease: Lease, now: int) -> None:
        """Follow what a lease borrows."""
        self.inside.touch(lease.tenant)
        held = self._held.get(lease.id)
        if held is None:
            if lease.live:
                self._held[lease.id] = _Held(now, now, lease.borrowed)
            return
        borrowed = lease.borrowed if lease.live else 0
        if borrowed != held.borrowed:
            self.borrowed += held.borrowed * (now - held.since)
            held.since, held.borrowed = now, borrowed

    def started(self, lease: Lease, now: int) -> int:
        """The job starts; when it will have run as long as it really did."""
        run = self.runs[lease.request]
        run.started_at = now
        if run.first_start is None:
            run.first_start = now
        run.inside = max(run.inside, self._rooms.pop(run.job.id).at(now) - run.mark)
        return now + run.left

    def cut_short(self, lease_id: str, now: int) -> bool:
        """Whether the end of a lease that was planned once has been overtaken."""
        lease = self._state.leases[lease_id]
        run = self.runs[lease.request]
        return run.started_at is None or run.started_at + run.left > now

    def released(self, lease: Lease, now: int) -> str:
        """The lease is over: the job is done, waits again, or has been ended."""
        held = self._held.pop(lease.id)
        self.allocated += lease.gpus * (now - held.granted_at)
        run = self.runs[lease.request]
        ran = now - run.started_at if run.started_at is not None else 0
        run.started_at = None
        self.ended = now
        trigger = lease.reclaim.trigger if lease.reclaim is not None else None
        run.left -= ran
        if run.left <= 0:
            run.end, run.ended_at = "finished", now
            return "finished"
        if trigger == "return" or trigger == "preemption":
            self.evictions += 1
            run.evictions += 1
        if lease.request in self._state.requests:
            if self._restart:
                self.lost += lease.gpus * ran
                run.left = run.job.duration
            return "waits again"
        run.end, run.ended_at = "term" if trigger == "term" else "taken", now
        return "ended"

    def close(self, now: int) -> None:
        """Nothing is to come any more: count what is still held."""
        for lease_id, held in self._held.items():
            lease = self._state.leases[lease_id]
            self.allocated += lease.gpus * (now - held.granted_at)
            self.borrowed += held.borrowed * (now - held.since)
        for job_id, room in self._rooms.items():
            run = self.runs[job_id]
            run.inside = max(run.inside, room.at(now) - run.mark)
