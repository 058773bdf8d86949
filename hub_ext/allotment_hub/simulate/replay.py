"""Recorded demand against the real decisions, in virtual time.

Every row of a trace becomes a request at its time. What is granted starts at once and ends when
the job has run for as long as it really did; its holder renews a lease while there is work left.
A job that is taken back keeps its progress and its age (or starts from zero, by option) and waits
again. Durations that the trace does not declare are taken to be the longest of the class, so that
no job is cut short for what nobody recorded; a declared one that was too short ends the job at
the term, as the rule says.

The order of what happens at one moment is: ends, then requests in the order of the trace, then
one round of decisions. Nothing here is random and no clock is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide, next_due
from allotment_hub.domain.events import Event
from allotment_hub.domain.inventory import Node
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import Policy
from allotment_hub.domain.requests import Request
from allotment_hub.domain.shapes import KIND_OF
from allotment_hub.domain.state import State

from .clock import Agenda
from .invariants import Violation, Watch
from .replay_account import Account, Run
from .traces import Job, settled, usual_class

Line = Mapping[str, Any]
"""One line of the decision log."""

MAX_ROUNDS = 1000
"""A bound on the rounds at one moment, so that a fault in a rule cannot stop the replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a trace is replayed.

    Parameters
    ----------
    reclaim : bool
        Whether borrowed leases are asked back for their owners.
    restart_from_zero : bool
        Whether a job that is taken back loses what it had done.
    anywhere : bool
        Whether the devices of a job may lie on any nodes: shapes are counted, not placed.
    placement : str
        By which rule devices are chosen.
    check : bool
        Whether the invariants are checked after every step.
    """

    reclaim: bool = True
    restart_from_zero: bool = False
    anywhere: bool = False
    placement: Literal["best-fit", "fragmentation-gradient"] = "best-fit"
    check: bool = False


@dataclass(slots=True)
class Outcome:
    """What a replay came to."""

    account: Account
    violations: list[Violation] = field(default_factory=list)


def replay(
    policy: Policy,
    nodes: Iterable[Node],
    jobs: Iterable[Job],
    options: Options = Options(),
    log: Callable[[Line], None] | None = None,
) -> Outcome:
    """Replay jobs under a policy; ``log`` takes the decisions as they are made."""
    player = Replay(policy, nodes, settled(jobs), options, log)
    player.run()
    return Outcome(player.account, player.violations)


class Replay:
    """One replay: the state, what is to come, and the account of it."""

    def __init__(
        self,
        policy: Policy,
        nodes: Iterable[Node],
        jobs: Sequence[Job],
        options: Options,
        log: Callable[[Line], None] | None,
    ) -> None:
        self.options, self.log = options, log
        self.state = State()
        self.watch = Watch() if options.check else None
        self.violations: list[Violation] = []
        self.now = jobs[0].submit if jobs else 0
        commands.set_policy(self.state, self.now, policy, "replay")
        commands.set_nodes(self.state, self.now, nodes)
        if not options.reclaim:
            commands.switch(self.state, self.now, "loans-kept", True, "replay")
        self.state.placement = options.placement
        self.account = Account(self.state, options.restart_from_zero, self.now)
        self._jobs = iter(jobs)
        self._next: Job | None = next(self._jobs, None)
        self._ends: Agenda[str] = Agenda()
        self._fresh: list[Lease] = []
        self._stopping: list[str] = []
        self._terms: list[str] = []
        self._shapes = _Shapes(self.state, options.anywhere)
        self._lines = 0

    def run(self) -> None:
        """Go from moment to moment until nothing is to come any more."""
        while True:
            moment = self._next_moment()
            if moment is None:
                break
            self.now = moment
            self._end_jobs()
            self._submit_jobs()
            self._settle()
        self.account.close(self.now)
        if self.watch is not None:
            self.violations = self.watch.found + self.watch.compare(self.state, self.now)

    def _next_moment(self) -> int | None:
        times = [self._ends.next_at(), self._next.submit if self._next is not None else None]
        due = next_due(self.state, self.now)
        # What is due now was looked at in the last round and changed nothing.
        times.append(due if due is not None and due > self.now else None)
        return min((at for at in times if at is not None), default=None)

    def _end_jobs(self) -> None:
        for lease_id in self._ends.due(self.now):
            if lease_id in self.state.leases and not self.account.cut_short(lease_id, self.now):
                commands.gone(self.state, self.now, lease_id, "the job has ended")

    def _submit_jobs(self) -> None:
        while self._next is not None and self._next.submit <= self.now:
            job = self._next
            self._next = next(self._jobs, None)
            self._submit(job)

    def _submit(self, job: Job) -> None:
        job = self._shapes.classed(job)
        run = self.account.add(job)
        tenant = self.state.policy.tenants[job.tenant]
        try:
            request = commands.submit(
                self.state, self.now, id=job.id, kind=job.kind, user=job.user or job.tenant,
                groups=tenant.groups[:1], wants=self._shapes.wants(job),
            )  # fmt: skip
        except commands.Refusal as refusal:
            run.end = "rejected"
            self._say("reject", request=job.id, code=refusal.code, detail=str(refusal))
            return
        if request.state == "queued":
            self.account.queued(run, request, self.now)

    def _settle(self) -> None:
        """Decide and do what was decided, until nothing is left to do at this moment."""
        for _ in range(MAX_ROUNDS):
            decide(self.state, self.now)
            self._follow(self.state.take_journal())
            again = self._enact()
            self._follow(self.state.take_journal())
            if not again:
                return
        raise RuntimeError(f"the rules do not come to rest at {self.now} ms")

    def _enact(self) -> bool:
        """Start, stop and renew; True where something happened that may lead to more."""
        asked_back = False
        fresh, self._fresh = self._fresh, []
        for lease in fresh:
            if lease.id not in self.state.leases or self.state.leases[lease.id].state != "granted":
                continue
            commands.started(self.state, self.now, lease.id)
            self._ends.add(self.account.started(lease, self.now), lease.id)
            asked_back = asked_back or lease.id in self.state.claim_of
        stopping, self._stopping = self._stopping, []
        for lease_id in stopping:
            commands.gone(self.state, self.now, lease_id)
        terms, self._terms = self._terms, []
        renewed = [self._renew(lease_id) for lease_id in terms]
        return asked_back or bool(stopping) or any(renewed)

    def _renew(self, lease_id: str) -> bool:
        """The holder of a lease whose term ends renews it while there is work left."""
        lease = self.state.leases.get(lease_id)
        if lease is None or lease.state != "noticed" or lease.renewals_left <= 0:
            return False
        try:
            commands.renew(self.state, self.now, lease_id, f"user:{lease.user}")
        except commands.Refusal:
            return False
        return True

    # -- following ---------------------------------------------------------------------------

    def _follow(self, events: list[Event]) -> None:
        self.account.events += len(events)
        if self.watch is not None:
            self.watch.follow(events)
        for event in events:
            record = event.record
            if isinstance(record, Lease):
                self._lease(event, record)
            elif isinstance(record, Request):
                self._request(event, record)
        self.account.inside.look(self.now)

    def _lease(self, event: Event, lease: Lease) -> None:
        what = event.what
        self.account.lease(lease, self.now)
        if what == "lease.granted":
            self._fresh.append(lease)
            self._say_start(lease)
        elif what == "lease.stopping":
            self._stopping.append(lease.id)
        elif what == "lease.noticed" and lease.reclaim is not None:
            if lease.reclaim.trigger == "term":
                self._terms.append(lease.id)
        elif what == "lease.released":
            end = self.account.released(lease, self.now)
            trigger = lease.reclaim.trigger if lease.reclaim is not None else None
            if trigger is not None:
                asked_by = lease.reclaim.for_request if lease.reclaim is not None else None
                self._say("end", lease=lease.id, why=trigger, for_request=asked_by, then=end)

    def _request(self, event: Event, request: Request) -> None:
        if event.what == "request.waiting":
            reason = request.reasons[0]
            self._say("wait", request=request.id, code=reason.code, rule=reason.rule)
        elif event.what == "request.rejected":
            reason = request.reasons[0]
            self.account.runs[request.id].end = "rejected"
            self._say("reject", request=request.id, code=reason.code, rule=reason.rule)
        elif event.what == "request.queued" and request.grants:
            self.account.queued(self.account.runs[request.id], request, self.now)
        elif event.what == "request.expired":
            self.account.runs[request.id].end = "expired"
            self._say("expire", request=request.id, why=event.why)

    def _say_start(self, lease: Lease) -> None:
        self.account.decisions += 1
        if self.log is None:
            return
        run: Run = self.account.runs[lease.request]
        self._lines += 1
        self.log({
            "n": self._lines, "at_s": self.now / 1000, "what": "start", "request": lease.request,
            "lease": lease.id, "tenant": lease.tenant, "class": lease.class_,
            "gpus": lease.gpus / 1000, "waited_s": (self.now - run.waits_since) / 1000,
            "basis": lease.basis, "rule": lease.rule,
            "lenders": {name: amount / 1000 for name, amount in lease.lenders},
            "devices": [device.uuid for device in lease.devices],
            "passed": list(lease.passed), "why_passed": lease.passed_why or None,
        })  # fmt: skip

    def _say(self, what: str, **rest: Any) -> None:
        self.account.decisions += 1
        if self.log is not None:
            self._lines += 1
            self.log({"n": self._lines, "at_s": self.now / 1000, "what": what, **rest})


class _Shapes:
    """From a row to what is asked of the governor."""

    def __init__(self, state: State, anywhere: bool) -> None:
        self.policy = state.policy
        self.anywhere = anywhere
        self.classes = {
            (tenant, kind): usual_class(self.policy, tenant, kind)
            for tenant in self.policy.tenants
            for kind in KIND_OF
        }
        self.largest: dict[str | None, int] = {None: 0}
        for (_, flavor), stock in state.stocks.items():
            size = stock.largest
            self.largest[flavor] = max(size, self.largest.get(flavor, 0))
            self.largest[None] = max(size, self.largest[None])

    def classed(self, job: Job) -> Job:
        """The job with the class that it gets where it names none."""
        return job if job.class_ else replace(job, class_=self.classes[job.tenant, job.kind])

    def wants(self, job: Job) -> dict[str, Any]:
        class_ = job.class_ or ""
        known = self.policy.classes.get(class_)
        longest = known.duration.max if known is not None else job.duration
        wants: dict[str, Any] = {
            "tenant": job.tenant,
            "class": class_,
            "gpus": job.gpus,
            "duration": min(job.declared or longest, longest),
        }
        optional = {
            "flavor": job.flavor,
            "interruptible": job.interruptible,
            "cpus": job.cpus,
            "memory": job.memory,
            "start": "always" if job.kind == "session" else None,
        }
        wants.update((key, value) for key, value in optional.items() if value is not None)
        wants.update(self._spread(job))
        return wants

    def _spread(self, job: Job) -> dict[str, Any]:
        """Over how many nodes: as few whole ones as it takes, or over any where it must be."""
        devices = -(-job.gpus // 1000)
        if job.kind == "session" or devices == 1:
            return {}
        largest = self.largest.get(job.flavor, 0)
        if self.anywhere:
            return {"same_node": False}
        if devices <= largest or largest == 0:
            return {}
        nodes = -(-devices // largest)
        return {"nodes": nodes} if devices % nodes == 0 else {"same_node": False}
