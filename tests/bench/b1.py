"""B1: guarantee, borrow and return on two months of the Philly trace, at two sizes of the pool.

Tenants are the 11 virtual clusters; the guarantee of each follows from its demand and a load L
(``max(8·round(D/L/8), 8, largest job)``), the ceiling is the whole pool and the whole guarantee
is lent. Only counts matter: the devices of a job may lie on any nodes. Notice is zero, no term is
shorter than any job, and no reservation is made, as in the rows that the figures stand beside.
All jobs are of one class and waiting adds no points, so that who borrows least comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from allotment_hub.clock import stopwatch
from allotment_hub.domain.amounts import DAY
from allotment_hub.domain.inventory import Device, Node
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
from allotment_hub.simulate.replay import Options, replay
from allotment_hub.simulate.report import summary
from allotment_hub.simulate.traces import Job
from allotment_hub.simulate.traces_public import load_philly, philly_clusters

from .common import figure, traces

LOADS = (0.75, 0.85)

REFERENCE: Mapping[int, Mapping[str, float]] = {
    672: {
        "static FIFO": 134_065, "static backfill": 52_235, "shared FIFO": 3_640,
        "shared backfill": 1_969, "shared SJF, known durations": 1_113,
        "borrow without reclaim": 1_451, "borrow with reclaim": 1_097,
    },
    576: {
        "static FIFO": 374_061, "static backfill": 100_250, "shared FIFO": 25_161,
        "shared backfill": 10_984, "shared SJF, known durations": 3_753,
        "borrow without reclaim": 7_072, "borrow with reclaim": 6_910,
    },
}  # fmt: skip
"""Published mean waits in seconds, by size of the pool."""

EVICTIONS = {672: 69, 576: 133}
LOST_GPU_HOURS = {672: 3_124, 576: 6_831}
FOREVER = 60 * DAY
"""Longer than the longest job: no term ends in this trace."""


def jobs_of_philly() -> list[Job]:
    """The submissions of October and November 2017 to the clusters whose nodes are known."""
    folder = traces() / "philly_pollux"
    clusters = philly_clusters(folder / "philly_vc_nodes.csv")
    return load_philly(
        folder / "philly.csv.gz", clusters, "2017-10-01 00:00:00", "2017-12-01 00:00:00"
    )


def guarantees(jobs: list[Job], load: float) -> dict[str, int]:
    """GPUs that each tenant is guaranteed at a load, in the order of first submission."""
    span = jobs[-1].submit - jobs[0].submit
    demand: dict[str, int] = {}
    largest: dict[str, int] = {}
    for job in jobs:
        demand[job.tenant] = demand.get(job.tenant, 0) + job.gpus * job.duration
        largest[job.tenant] = max(largest.get(job.tenant, 0), job.gpus // 1000)
    return {
        name: max(8 * round(amount / 1000 / span / load / 8), 8, largest[name])
        for name, amount in sorted(demand.items())
    }


def policy_of(owned: Mapping[str, int], *, static: bool = False) -> Policy:
    """Every tenant may use the whole pool, or (``static``) what it owns and no more."""
    total = sum(owned.values())
    return Policy(
        flavors={"gpu": Flavor(model="GPU")},
        tenants={
            name: Tenant(
                groups=(name,),
                quotas=(
                    Quota(
                        flavor="gpu",
                        guarantee=gpus * 1000,
                        ceiling=(gpus if static else total) * 1000,
                        lend=0 if static else gpus * 1000,
                    ),
                ),
                limits=Limits(queued_per_user=None),
            )
            for name, gpus in owned.items()
        },
        classes={
            "training": WorkClass(
                kind="batch", interruptible="checkpoint", borrow=True,
                duration=DurationRule(default=FOREVER, max=FOREVER),
            )
        },
        borrowing=Borrowing(term=FOREVER, renewals=0, notice=0, protected=0),
        reclaim=(ReclaimRule(notice=0, stop_grace=0),),
        ordering=Ordering(age_step=FOREVER, reserve_after=FOREVER),
    )  # fmt: skip


def pool_of(gpus: int) -> list[Node]:
    """Nodes of eight devices."""
    return [
        Node(
            name=f"node-{number:03d}",
            devices=tuple(
                Device(uuid=f"gpu-{number:03d}-{i}", index=i, model="GPU", memory=16 << 30)
                for i in range(8)
            ),
        )
        for number in range(gpus // 8)
    ]


def measure(load: float, kind: str, scale: float) -> dict[str, Any]:
    """One replay: ``return``; ``zero``: restarting from zero; ``keep``: no return; ``static``."""
    jobs = jobs_of_philly()
    owned = guarantees(jobs, load)
    jobs = jobs[: int(len(jobs) * scale)]
    options = Options(
        anywhere=True, reclaim=kind not in ("keep", "static"), restart_from_zero=kind == "zero"
    )
    watch = stopwatch()
    outcome = replay(
        policy_of(owned, static=kind == "static"), pool_of(sum(owned.values())), jobs, options
    )
    return summary(outcome.account, watch())


KINDS = ("return", "zero", "static", "keep")


def run(scale: float) -> Iterator[Mapping[str, Any]]:
    """All figures; a scale below 1 replays the first part of the trace and says so."""
    work = [(load, kind) for kind in KINDS for load in LOADS]
    found: dict[tuple[int, str], dict[str, Any]] = {}
    with ProcessPoolExecutor(2) as pool:
        for (_, kind), result in zip(
            work, pool.map(measure, *zip(*work, strict=True), [scale] * len(work)), strict=True
        ):
            found[int(result["capacity_gpus"]), kind] = result
    for gpus in sorted(REFERENCE, reverse=True):
        yield from _figures(gpus, {kind: found[gpus, kind] for kind in KINDS}, scale)


def _figures(
    gpus: int, by_kind: Mapping[str, dict[str, Any]], scale: float
) -> Iterator[Mapping[str, Any]]:
    rows = REFERENCE[gpus]
    best, zero, static = by_kind["return"], by_kind["zero"], by_kind["static"]
    part = {"jobs": best["jobs"]} if scale < 1 else {}
    wait = best["wait_s"]["mean"]
    yield figure(
        f"mean_wait_s@{gpus}", wait, rows["borrow with reclaim"], most=1.1, rows=rows, **part
    )
    yield figure(
        f"mean_wait_static_s@{gpus}", static["wait_s"]["mean"], rows["static backfill"], **part
    )
    yield figure(
        f"mean_wait_without_return_s@{gpus}", by_kind["keep"]["wait_s"]["mean"],
        rows["borrow without reclaim"], **part,
    )  # fmt: skip
    yield figure(
        f"wait_inside_guarantee_max_s@{gpus}", best["in_guarantee_wait_s"]["max"], at_most=0, **part
    )
    worse = {
        name: [one["wait_s"]["mean"], static["by_tenant"][name]["wait_s"]["mean"]]
        for name, one in best["by_tenant"].items()
        if one["wait_s"]["mean"] > static["by_tenant"][name]["wait_s"]["mean"]
    }
    yield figure(f"tenants_worse_than_static@{gpus}", len(worse), at_most=0, which=worse, **part)
    yield figure(
        f"evictions_per_day@{gpus}", best["evictions_per_day"], EVICTIONS[gpus], most=2 / 3,
        stretch=True, **part,
    )  # fmt: skip
    yield figure(f"never_started@{gpus}", best["never_started"], at_most=0, **part)
    yield figure(f"mean_completion_s@{gpus}", best["completion_s"]["mean"], 11_500, **part)
    yield figure(f"p99_wait_s@{gpus}", best["wait_s"]["p99"], **part)
    yield figure(f"max_wait_s@{gpus}", best["wait_s"]["max"], **part)
    yield figure(
        f"mean_wait_s@{gpus}, restarting from zero", zero["wait_s"]["mean"],
        rows["borrow with reclaim"], **part,
    )  # fmt: skip
    yield figure(
        f"lost_gpu_hours@{gpus}, restarting from zero", round(zero["lost_gpu_s"] / 3600, 1),
        LOST_GPU_HOURS[gpus], **part,
    )  # fmt: skip
    yield figure(f"events_per_s@{gpus}", best["events_per_s"], wall_s=best["wall_s"], **part)


if __name__ == "__main__":
    for one in run(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0):
        print(one)
