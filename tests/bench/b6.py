"""B6: the engine on 1,213 nodes with 6,212 GPUs, 10,000 and 50,000 requests waiting.

40 teams share seven models of devices; their requests have the shapes of the public task list.
The pool is full. Then demand and supply go on as they do: jobs end, new ones come, the rules run
after each. What is timed is one whole cycle of decisions, from the change to rest, and one full
explanation of a waiting request (place, reasons with numbers, what would help).

Everything is done three times over from the same state, and each cycle counts with the shortest of
its three times: the work is the same to the letter, what differs is what else the machine did. For
the same reason times are those that this process computed, less what reading that clock takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from allotment_hub.clock import cpu_stopwatch
from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide
from allotment_hub.domain.amounts import DAY, HOUR
from allotment_hub.domain.explain import explain
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import (
    DurationRule,
    Flavor,
    Limits,
    Policy,
    Quota,
    Tenant,
    WorkClass,
)
from allotment_hub.domain.state import State
from allotment_hub.simulate.traces_public import load_fgd_nodes

from .common import figure, percentile, traces

TEAMS = 40
SIZES = (10_000, 50_000)
CYCLES = 4_000
REPEATS = 3
EXPLAINED = 400
SHAPES = ((1, 800), (2, 120), (4, 50), (8, 30))
"""GPUs and how many of a thousand requests ask for so many."""


def policy_of(models: Mapping[str, int]) -> Policy:
    """Every team owns a fortieth of each model, may use a quarter of it, and lends all it owns."""
    share = {name: max(1, count // TEAMS) for name, count in models.items()}
    quotas = tuple(
        Quota(
            flavor=name.lower(), guarantee=share[name] * 1000,
            ceiling=max(8, count // 4) * 1000, lend=share[name] * 1000,
        )
        for name, count in models.items()
        if share[name] * TEAMS <= count
    )  # fmt: skip
    return Policy(
        flavors={name.lower(): Flavor(model=f"^{name}$") for name in models},
        tenants={
            f"team-{number:02d}": Tenant(
                groups=(f"team-{number:02d}",), quotas=quotas, limits=Limits(queued_per_user=None)
            )
            for number in range(TEAMS)
        },
        classes={
            "notebook": WorkClass(
                priority=100, borrow=True, duration=DurationRule(default=4 * HOUR, max=12 * HOUR)
            ),
            "training": WorkClass(
                kind="batch", priority=50, interruptible="checkpoint", borrow=True,
                duration=DurationRule(default=DAY, max=14 * DAY),
            ),
        },
    )  # fmt: skip


def _reading_ms() -> float:
    """What it takes to read the clock once."""
    times = []
    for _ in range(200):
        watch = cpu_stopwatch()
        times.append(watch() * 1000)
    return sorted(times)[100]


class Pool:
    """A full pool with a queue, and chance that moves both."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        nodes = load_fgd_nodes(traces() / "alibaba_fgd_2023" / "openb_node_list_gpu_node.csv.gz")
        models: dict[str, int] = {}
        for node in nodes:
            for device in node.devices:
                models[device.model] = models.get(device.model, 0) + 1
        self.state = State()
        commands.set_policy(self.state, 0, policy_of(models), "bench")
        commands.set_nodes(self.state, 0, nodes)
        quotas = next(iter(self.state.policy.tenants.values())).quotas
        self.flavors = [quota.flavor for quota in quotas]
        self.weights = [models[flavor.upper()] for flavor in self.flavors]
        self.now = 0
        self.made = 0
        self.running: list[str] = []
        self.events = 0
        self.cycles: list[float] = []

    def copy(self) -> Pool:
        """The same pool once more, with the same chance before it."""
        other = Pool.__new__(Pool)
        other.__dict__.update(self.__dict__)
        other.random = Random()
        other.random.setstate(self.random.getstate())
        other.state = self.state.fork()
        other.running, other.cycles = self.running.copy(), []
        return other

    def submit(self) -> None:
        """One more request of the usual mix."""
        self.made += 1
        chance = self.random
        gpus = chance.choices([g for g, _ in SHAPES], [w for _, w in SHAPES])[0]
        team = f"team-{chance.randrange(TEAMS):02d}"
        session = gpus <= 2 and chance.random() < 0.3
        flavor = chance.choices(self.flavors, self.weights)[0]
        if flavor in ("t4", "p100"):
            gpus = min(gpus, 2)
        wants: dict[str, Any] = {"gpus": gpus * 1000, "flavor": flavor}
        if session:
            wants["start"] = "always"
        commands.submit(
            self.state, self.now, id=f"r{self.made}", kind="session" if session else "job",
            user=f"{team}-{chance.randrange(20)}", groups=[team], wants=wants,
        )  # fmt: skip

    def settle(self) -> None:
        """Decide, and start what was granted; what is stopped is gone at once."""
        while True:
            watch = cpu_stopwatch()
            decide(self.state, self.now)
            self.cycles.append(watch() * 1000)
            events = self.state.take_journal()
            self.events += len(events)
            stopping = [e.record.id for e in events
                        if e.what == "lease.stopping" and isinstance(e.record, Lease)]  # fmt: skip
            for event in events:
                if event.what == "lease.granted" and isinstance(event.record, Lease):
                    commands.started(self.state, self.now, event.record.id)
                    self.running.append(event.record.id)
            for lease_id in stopping:
                commands.gone(self.state, self.now, lease_id)
            if not stopping:
                break
        self.events += len(self.state.take_journal())

    def end_one(self) -> None:
        """A running job ends."""
        while self.running:
            at = self.random.randrange(len(self.running))
            self.running[at], self.running[-1] = self.running[-1], self.running[at]
            lease_id = self.running.pop()
            if lease_id in self.state.leases:
                commands.gone(self.state, self.now, lease_id)
                return

    def fill(self, waiting: int) -> None:
        """Submit until so many wait."""
        while sum(len(line.entries) for line in self.state.queue.values()) < waiting:
            for _ in range(500):
                self.submit()
            self.settle()
            self.now += 1000


def run(scale: float) -> Iterator[Mapping[str, Any]]:
    """Figures at both lengths of the queue."""
    for size in SIZES:
        yield from _measure(round(size * scale), max(100, round(CYCLES * scale)))


def _measure(size: int, cycles: int) -> Iterator[Mapping[str, Any]]:
    full = Pool()
    full.fill(size)
    full.events = 0
    pools = [full.copy() for _ in range(REPEATS)]
    reading = _reading_ms()
    spent = [_go_on(pool, cycles) for pool in pools]
    taken = [
        max(0.0, min(times) - reading)
        for times in zip(*(pool.cycles for pool in pools), strict=True)
    ]
    pool = pools[-1]
    common = {"lines": len(pool.state.queue), "waiting": size, "claims": len(pool.state.claims)}
    rate = round(pool.events / (min(spent) - 2 * reading * len(taken) / 1000))
    yield figure(f"events_per_s@{size}", rate, at_least=20_000, **common)
    bound = 5 if size <= SIZES[0] else 20
    yield figure(
        f"cycle_p99_ms@{size}", round(percentile(taken, 99), 3), at_most=bound,
        p50_ms=round(percentile(taken, 50), 3), cycles=len(taken), **common,
    )  # fmt: skip
    told = [max(0.0, time - reading) for time in _explain(pool)]
    yield figure(
        f"explanation_p99_ms@{size}", round(percentile(told, 99), 3), at_most=5,
        p50_ms=round(percentile(told, 50), 3), **common,
    )  # fmt: skip


def _go_on(pool: Pool, changes: int) -> float:
    """As many come as go, so that the queue keeps its length; the seconds that it took."""
    watch = cpu_stopwatch()
    for number in range(changes):
        pool.now += 1000
        if number % 2:
            pool.submit()
        else:
            pool.end_one()
        pool.settle()
    return watch()


def _explain(pool: Pool) -> list[float]:
    """Milliseconds that full explanations of some waiting requests take."""
    waiting = sorted(r.id for r in pool.state.requests.values() if r.state == "queued")
    told = []
    for request_id in pool.random.sample(waiting, min(EXPLAINED, len(waiting))):
        times = []
        for _ in range(REPEATS):
            watch = cpu_stopwatch()
            explain(pool.state, pool.state.requests[request_id], pool.now)
            times.append(watch() * 1000)
        told.append(min(times))
    return told
