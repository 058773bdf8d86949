"""B5: the performance test of Kueue's scheduler, with a durable commit before every start.

30 queues in 5 cohorts, 15,000 workloads of three classes that come at fixed intervals and run for
a fixed time, in real time. What is granted is started only when the transaction with its grant is
on disk (SQLite, ``synchronous=FULL``); decisions go on meanwhile, and what was decided during one
transaction goes into the next, as the governor does it. A queue is a tenant, a cohort a
pool; a workload that borrows is not asked back within its few hundred milliseconds (protected).

The work alone takes 66 s; a line tells what the same decisions take in virtual time, with computing
and committing for nothing. Real time needs an idle machine: ``cpu_s`` tells how much of it was
computed. Kueue's published time is bound by its writes to the Kubernetes API, and not by its
decisions: the ratio compares what a user would see, not the two schedulers.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from allotment_hub.clock import SteadyClock, cpu_stopwatch, stopwatch
from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide
from allotment_hub.domain.amounts import MINUTE
from allotment_hub.domain.inventory import Device, Node
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import (
    Borrowing,
    DurationRule,
    Flavor,
    Limits,
    Ordering,
    Policy,
    Pool,
    Quota,
    ReclaimRule,
    Tenant,
    WorkClass,
)
from allotment_hub.domain.state import State
from allotment_hub.ledger import Committer, Ledger
from allotment_hub.simulate.clock import Agenda
from allotment_hub.simulate.replay import replay
from allotment_hub.simulate.report import summary
from allotment_hub.simulate.traces import Job
from allotment_hub.simulate.traces_public import Queue, kueue_jobs, load_kueue

from .common import figure, traces

PUBLISHED_S = 351.1
ADMISSION_S = {"large": 6.666, "medium": 76.768, "small": 215.468}
"""Kueue's published means of five runs."""


def policy_of(queues: list[Queue]) -> Policy:
    """The cohorts as pools of their own nodes, the queues as tenants."""
    cohorts = sorted({queue.cohort for queue in queues})
    streams = {stream.class_: stream for queue in queues for stream in queue.streams}
    return Policy(
        flavors={"unit": Flavor(model="unit")},
        pools={name: Pool(nodes={"cohort": name}) for name in cohorts},
        tenants={
            queue.name: Tenant(
                groups=(queue.name,),
                quotas=(
                    Quota(
                        pool=queue.cohort, flavor="unit", guarantee=queue.nominal * 1000,
                        ceiling=(queue.nominal + queue.borrows) * 1000,
                        lend=queue.nominal * 1000,
                    ),
                ),
                limits=Limits(queued_per_user=None),
            )
            for queue in queues
        },
        classes={
            name: WorkClass(
                kind="batch", priority=stream.priority, borrow=True,
                duration=DurationRule(default=10 * MINUTE, max=10 * MINUTE),
            )
            for name, stream in streams.items()
        },
        borrowing=Borrowing(term=10 * MINUTE, renewals=0, notice=0, protected=10 * MINUTE),
        reclaim=(ReclaimRule(notice=0, stop_grace=0),),
        ordering=Ordering(age_step=60 * MINUTE, reserve_after=60 * MINUTE),
    )  # fmt: skip


def pool_of(queues: list[Queue]) -> list[Node]:
    """One node for each cohort, with a device for each unit."""
    units: dict[str, int] = {}
    for queue in queues:
        units[queue.cohort] = units.get(queue.cohort, 0) + queue.nominal
    return [
        Node(
            name=cohort,
            labels={"cohort": cohort},
            devices=tuple(
                Device(uuid=f"{cohort}-{i}", index=i, model="unit", memory=1 << 30)
                for i in range(count)
            ),
        )
        for cohort, count in sorted(units.items())
    ]


@dataclass
class Run:
    """One run in real time, from the first workload to the end of the last."""

    queues: list[Queue]
    jobs: list[Job]
    committer: Committer
    clock: SteadyClock
    state: State = field(default_factory=State)
    coming: Agenda[Job] = field(default_factory=Agenda)
    ends: Agenda[str] = field(default_factory=Agenda)
    waited: dict[str, list[int]] = field(default_factory=dict)
    began: int = 0
    batches: int = 0
    by_id: dict[str, Job] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    computed_s: float = 0.0
    cpu_s: float = 0.0

    async def play(self) -> None:
        """Take what is due, decide, wait until it is durable, start it."""
        self.began = self.clock.now_ms()
        commands.set_policy(self.state, self.began, policy_of(self.queues), "bench")
        commands.set_nodes(self.state, self.began, pool_of(self.queues))
        await self.committer.commit(self.state.take_journal())
        self.began = self.clock.now_ms()
        self.by_id = {job.id: job for job in self.jobs}
        for job in self.jobs:
            self.coming.add(self.began + job.submit, job)
        left = len(self.jobs)
        while left:
            now = self.clock.now_ms()
            watch = stopwatch()
            left -= self._take_due(now)
            decide(self.state, now)
            events = self.state.take_journal()
            self.computed_s += watch()
            if events:
                self.batches += 1
                granted = [
                    event.record
                    for event in events
                    if event.what == "lease.granted" and isinstance(event.record, Lease)
                ]
                durable = self.committer.submit_events(events)
                durable.add_done_callback(partial(self._start, granted))
            await self._sleep()

    def _take_due(self, now: int) -> int:
        """Submit and end what is due; how many have ended."""
        over = self.ends.due(now)
        for lease_id in over:
            commands.gone(self.state, now, lease_id)
        for job in self.coming.due(now):
            commands.submit(
                self.state, now, id=job.id, kind="job", user=job.tenant, groups=[job.tenant],
                wants={"gpus": job.gpus, "class": job.class_},
            )  # fmt: skip
        return len(over)

    def _start(self, granted: list[Lease], durable: asyncio.Future[int]) -> None:
        """The grants are on disk: their work begins."""
        durable.result()
        now = self.clock.now_ms()
        for lease in granted:
            job = self.by_id[lease.request]
            commands.started(self.state, now, lease.id)
            self.waited.setdefault(job.class_ or "", []).append(now - self.began - job.submit)
            self.ends.add(now + job.duration, lease.id)
        self.woken.set()

    async def _sleep(self) -> None:
        """Until something is due, or something that was decided is durable."""
        times = [at for at in (self.coming.next_at(), self.ends.next_at()) if at is not None]
        wait = max(0.0, (min(times) - self.clock.now_ms()) / 1000) if times else None
        self.woken.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.woken.wait(), wait)


def run(scale: float) -> Iterator[Mapping[str, Any]]:
    """Wall time and means to admission; a scale below 1 takes fewer workloads of each class."""
    queues = load_kueue(traces() / "kueue_perf" / "baseline_generator.yaml")
    jobs = [job for job in kueue_jobs(queues) if int(job.id.rsplit("-", 1)[1]) < 350 * scale]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(f"sqlite:///{Path(folder) / 'ledger.sqlite'}")
        ledger.lead(since=0)
        try:
            done, wall = asyncio.run(_play(ledger, queues, jobs))
        finally:
            ledger.step_down()
            ledger.close()
    common = {"workloads": len(jobs)} if scale < 1 else {}
    exact = summary(replay(policy_of(queues), pool_of(queues), jobs).account, 0)
    yield figure("virtual_s", exact["span_s"], PUBLISHED_S, at_most=80, limit=66, **common)
    grants = sum(len(times) for times in done.waited.values())
    yield figure(
        "wall_s", round(wall, 1), PUBLISHED_S, at_most=80, limit=66, grants=grants,
        batches=done.batches, computed_s=round(done.computed_s, 1), cpu_s=round(done.cpu_s, 1),
        note="Kueue's rate is bound by its writes to the Kubernetes API", **common,
    )  # fmt: skip
    for name, reference in ADMISSION_S.items():
        times = done.waited.get(name, [])
        mean = sum(times) / len(times) / 1000 if times else None
        yield figure(
            f"mean_time_to_admission_s@{name}", None if mean is None else round(mean, 3),
            reference, most=1.0, **common,
        )  # fmt: skip


async def _play(ledger: Ledger, queues: list[Queue], jobs: list[Job]) -> tuple[Run, float]:
    clock = SteadyClock()
    committer = Committer(ledger, clock.offset_ms)
    done = Run(queues, jobs, committer, clock)
    watch, computing = stopwatch(), cpu_stopwatch()
    await done.play()
    wall = watch()
    done.cpu_s = computing()
    await committer.close()
    return done, wall
