"""B2: work conservation on the occupancy of the Earth cluster's teams in May 2020.

The record says for every minute how many GPUs each team used of its quota, and how many its jobs
waited for. What ran there runs here too, within the quota. What waited there is asked for here as
well, and may borrow what other teams leave idle, until the minute in which it started there. The
quotas follow the daily record, with its day on which all belonged to a team without work. Jobs
have the average size that the record gives; they start whole or not at all; notice is zero.

A GPU-minute counts as served only if it did not cost a minute of what ran there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide
from allotment_hub.domain.amounts import DAY, MINUTE
from allotment_hub.domain.inventory import Device, Node
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import (
    Borrowing,
    DurationRule,
    Flavor,
    Limits,
    Ordering,
    Policy,
    Quota,
    ReclaimRule,
    Tenant,
    WorkClass,
)
from allotment_hub.domain.state import State
from allotment_hub.simulate.traces_public import Occupancy, load_helios, load_helios_quotas

from .common import figure, traces

MINUTES = 44_640
FIRST = date(2020, 5, 1)
LONG = 60 * DAY


def policy_of(quotas: Mapping[str, int], total: int) -> Policy:
    """Each team owns its quota of the day, lends all of it and may use the whole pool."""
    classes = {
        name: WorkClass(
            kind="batch", priority=priority, interruptible="checkpoint", borrow=True,
            duration=DurationRule(default=LONG, max=LONG),
        )
        for name, priority in (("ran", 100), ("waited", 50))
    }  # fmt: skip
    return Policy(
        flavors={"gpu": Flavor(model="GPU")},
        tenants={
            name: Tenant(
                groups=(name,),
                quotas=(Quota(flavor="gpu", guarantee=gpus * 1000, ceiling=total * 1000),),
                limits=Limits(queued_per_user=None),
            )
            for name, gpus in quotas.items()
        },
        classes=classes,
        borrowing=Borrowing(term=LONG, renewals=0, notice=0, protected=0),
        reclaim=(ReclaimRule(notice=0, stop_grace=0),),
        ordering=Ordering(age_step=LONG, reserve_after=LONG),
    )


@dataclass
class Side:
    """The requests of one team for one of the two demands, oldest first: id and GPUs."""

    pieces: list[tuple[str, int]] = field(default_factory=list)
    jobs: int = 0

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.pieces)


class Month:
    """The pool, minute by minute."""

    def __init__(self, quotas: Mapping[str, Mapping[str, int]], teams: set[str]) -> None:
        self.quotas, self.teams = quotas, teams
        self.state = State()
        self.now = 0
        self.made = 0
        self.total = 0
        self.sides: dict[tuple[str, str], Side] = {}
        self.owner: dict[str, str] = {}
        self.served_by: dict[int, list[int]] = {}

    def new_day(self, day: int) -> None:
        """Put the quotas of a day in force, and as many devices in service as they come to."""
        known = self.quotas[str(FIRST + timedelta(days=day))]
        names = sorted(self.teams | {name for name in known if known[name]})
        owned = {name: known.get(name, 0) for name in names}
        total = sum(owned.values())
        if not self.total:
            self.total = total
            commands.set_policy(self.state, 0, policy_of(owned, total), "bench")
            commands.set_nodes(self.state, 0, _nodes(total))
            return
        current = {n: t.quotas[0].guarantee // 1000 for n, t in self.state.policy.tenants.items()}
        if current != owned:
            commands.set_policy(self.state, self.now, policy_of(owned, self.total), "bench")
            for number, name in enumerate(sorted(self.state.nodes)):
                commands.drain(self.state, self.now, name, 8 * number >= total, "bench")

    def change(self, team: str, demand: str, gpus: int, jobs: int) -> None:
        """A team's demand is so large from now on, in so many jobs."""
        side = self.sides.setdefault((team, demand), Side())
        more = gpus - side.gpus
        if more < 0:
            self._shrink(team, demand, side, -more)
        elif more > 0:
            self._grow(team, demand, side, more, max(1, jobs - side.jobs))
        side.jobs = jobs

    def _grow(self, team: str, demand: str, side: Side, gpus: int, jobs: int) -> None:
        jobs = min(jobs, gpus)
        for number in range(jobs):
            size = gpus // jobs + (number < gpus % jobs)
            self.made += 1
            name = f"r{self.made}"
            self.owner[name] = demand
            commands.submit(
                self.state, self.now, id=name, kind="job", user=team, groups=[team],
                wants={
                    "gpus": size * 1000, "class": demand,
                    **({"same_node": False} if size > 1 else {}),
                },
            )  # fmt: skip
            side.pieces.append((name, size))

    def _shrink(self, team: str, demand: str, side: Side, gpus: int) -> None:
        """The oldest that fit go; of one that is larger than what is left the rest stays."""
        while gpus:
            at = next((i for i, (_, size) in enumerate(side.pieces) if size == gpus), None)
            if at is None:
                at = next((i for i, (_, size) in enumerate(side.pieces) if size < gpus), 0)
            name, size = side.pieces.pop(at)
            request = self.state.requests[name]
            if request.lease is not None and request.state == "granted":
                commands.gone(self.state, self.now, request.lease)
            else:
                commands.cancel(self.state, self.now, name, "bench")
            if size > gpus:
                self._grow(team, demand, side, size - gpus, 1)
            gpus -= min(size, gpus)

    def settle(self) -> None:
        """Decide, start and stop until nothing is left to do in this minute."""
        while True:
            decide(self.state, self.now)
            again = False
            for event in self.state.take_journal():
                lease = event.record
                if not isinstance(lease, Lease):
                    continue
                if event.what == "lease.granted" and lease.id in self.state.leases:
                    commands.started(self.state, self.now, lease.id)
                    again = again or lease.id in self.state.claim_of
                elif event.what == "lease.stopping":
                    commands.gone(self.state, self.now, lease.id)
                    again = True
            self.state.take_journal()
            if not again:
                return

    def count(self) -> tuple[int, int, int]:
        """GPUs that waited there, of those served here, and of what ran there waiting here."""
        running = {"ran": 0, "waited": 0}
        for lease in self.state.leases.values():
            running[self.owner[lease.request]] += lease.gpus // 1000
        asked = {"ran": 0, "waited": 0}
        for (_, demand), side in self.sides.items():
            asked[demand] += side.gpus
        return asked["waited"], running["waited"], asked["ran"] - running["ran"]


def _nodes(total: int) -> list[Node]:
    return [
        Node(
            name=f"node-{number:03d}",
            devices=tuple(
                Device(uuid=f"gpu-{number:03d}-{i}", index=i, model="GPU", memory=32 << 30)
                for i in range(8)
            ),
        )
        for number in range(-(-total // 8))
    ]


def play(changes: list[Occupancy], quotas: Mapping[str, Mapping[str, int]], minutes: int) -> Month:
    """Live through the month; what was counted is in ``served_by``, by day."""
    month = Month(quotas, {change.tenant for change in changes})
    by_minute: dict[int, list[Occupancy]] = {}
    for change in changes:
        by_minute.setdefault(change.minute, []).append(change)
    counted = (0, 0, 0)
    for minute in range(minutes):
        month.now = minute * MINUTE
        fresh = minute % 1440 == 0
        if fresh:
            month.new_day(minute // 1440)
        # What ends makes room before anything new is asked for.
        rows = by_minute.get(minute, [])
        for row in rows:
            month.change(row.tenant, "waited", row.waiting, row.waiting_jobs)
        for row in rows:
            month.change(row.tenant, "ran", row.running, row.running_jobs)
        if rows or fresh:
            month.settle()
            counted = month.count()
        day = month.served_by.setdefault(minute // 1440, [0, 0, 0])
        for at, amount in enumerate(counted):
            day[at] += amount
    return month


def run(scale: float) -> Iterator[Mapping[str, object]]:
    """The share of waiting GPU-minutes that is served, with and without the odd day."""
    folder = traces() / "helios_earth_vc"
    changes = load_helios(folder / "earth_vc_sequence_may2020_changes.csv.gz")
    quotas = load_helios_quotas(folder / "Earth_gpu_number.csv")
    month = play(changes, quotas, round(MINUTES * scale))
    waited, served, lost = (sum(day[at] for day in month.served_by.values()) for at in range(3))
    yield figure(
        "served_by_borrowing_pct", round(100 * (served - lost) / waited, 2) if waited else None,
        99.6, at_least=95, waiting_gpu_minutes=waited, ran_there_waited_here_gpu_minutes=lost,
    )  # fmt: skip
    days = {day: row for day, row in month.served_by.items() if day != 8}
    waited, served, lost = (sum(row[at] for row in days.values()) for at in range(3))
    yield figure(
        "served_by_borrowing_pct, days of the usual quotas",
        round(100 * (served - lost) / waited, 2) if waited else None, 99.6, at_least=95,
        waiting_gpu_minutes=waited, ran_there_waited_here_gpu_minutes=lost,
    )  # fmt: skip
