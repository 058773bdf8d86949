"""Readers of the public trace formats: the same rows as from the contract's own form.

Each reads a folder or files as their authors publish them, by a path that is given. A row that a
format allows and a replay cannot use (no GPUs) is left out and counted; a row that is broken is
an error, named by file and line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from allotment_hub.domain.inventory import Device, Node
from allotment_hub.policyfile.document import DocumentError, read_document
from allotment_hub.policyfile.problems import Problem, shown

from .traces import Job, TraceError, open_text, settled

GIB = 1 << 30
MIB = 1 << 20


def table(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with the columns that are needed, each with its line."""
    with open_text(path) as lines:
        rows = csv.DictReader(lines)
        missing = [column for column in needed if column not in (rows.fieldnames or ())]
        if missing:
            raise TraceError([Problem(column, "is missing", 1) for column in missing], str(path))
        for row in rows:
            if any(row[column] is None for column in needed):
                raise TraceError([Problem("", "is cut off", rows.line_num)], str(path))
            yield rows.line_num, row


def _number(path: Path, line: int, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        fault = Problem(column, f"is {shown(row[column])}, not a number from zero up", line)
        raise TraceError([fault], str(path))
    return value


# -- Philly ----------------------------------------------------------------------------------


def philly_clusters(path: Path) -> dict[str, int]:
    """Virtual clusters and their nodes (of eight GPUs): ``vc,node num``."""
    return {
        row["vc"]: int(_number(path, line, row, "node num"))
        for line, row in table(path, ("vc", "node num"))
    }


def _philly_time(path: Path, line: int, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    except ValueError:
        fault = Problem("timestamp", f"is {shown(text)}; right is 2017-10-01 00:00:00", line)
        raise TraceError([fault], str(path)) from None


def load_philly(
    path: Path,
    clusters: Mapping[str, int] | None = None,
    since: str | None = None,
    until: str | None = None,
) -> list[Job]:
    """Read ``timestamp,duration,num_gpus,gpu_time,cluster``: tenant = virtual cluster.

    Parameters
    ----------
    clusters : mapping or None
        Keep the jobs of these only.
    since, until : str or None
        Keep submissions from the one (included) to the other (not included), local time.
        The first kept submission is at zero.
    """
    columns = ("timestamp", "duration", "num_gpus", "cluster")
    first = _philly_time(path, 0, since) if since is not None else None
    last = _philly_time(path, 0, until) if until is not None else None
    kept: list[tuple[datetime, int, int, str, int]] = []
    for line, row in table(path, columns):
        at = _philly_time(path, line, row["timestamp"])
        if clusters is not None and row["cluster"] not in clusters:
            continue
        if (first is not None and at < first) or (last is not None and at >= last):
            continue
        duration = _number(path, line, row, "duration")
        gpus = int(_number(path, line, row, "num_gpus"))
        if gpus and duration:
            kept.append((at, round(duration * 1000), gpus, row["cluster"], line))
    start = min((item[0] for item in kept), default=None)
    return settled(
        Job(
            id=f"philly-{line}",
            submit=round((at - start).total_seconds() * 1000) if start is not None else 0,
            duration=duration,
            gpus=gpus * 1000,
            tenant=cluster,
            line=line,
        )
        for at, duration, gpus, cluster, line in kept
    )


# -- Helios ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """One change of one virtual cluster, at ``minute``: GPUs and jobs that run and wait."""

    minute: int
    tenant: str
    quota: int
    running: int
    waiting: int
    running_jobs: int
    waiting_jobs: int


def load_helios(path: Path) -> list[Occupancy]:
    """Read the per-minute occupancy of virtual clusters, a row only where a value changes."""
    names = {
        "quota": "total_gpu_num", "running": "running_gpu_num", "waiting": "pending_gpu_num",
        "running_jobs": "running_gpujob_num", "waiting_jobs": "pending_gpujob_num",
    }  # fmt: skip
    found = []
    for line, row in table(path, ("minute", "vc", *names.values())):
        numbers = {name: int(_number(path, line, row, column)) for name, column in names.items()}
        minute = int(_number(path, line, row, "minute"))
        found.append(Occupancy(minute=minute, tenant=row["vc"], **numbers))
    return sorted(found, key=lambda change: (change.minute, change.tenant))


def helios_jobs(changes: list[Occupancy]) -> list[Job]:
    """Jobs that give an occupancy again: every rise of the demand (running and waiting) is one
    that ends when the demand falls, the youngest first. The format names no jobs of its own.
    """
    standing: dict[str, list[tuple[int, int]]] = {}
    demand: dict[str, int] = {}
    jobs: list[Job] = []
    last = 0

    def end(tenant: str, gpus: int, minute: int) -> None:
        stack = standing[tenant]
        while gpus > 0:
            since, size = stack.pop()
            part = min(size, gpus)
            if size > part:
                stack.append((since, size - part))
            gpus -= part
            duration = max(1, minute - since) * 60_000
            jobs.append(Job(id="", submit=since * 60_000, duration=duration, gpus=part * 1000,
                            tenant=tenant))  # fmt: skip

    for change in changes:
        last = max(last, change.minute)
        now = change.running + change.waiting
        before = demand.get(change.tenant, 0)
        demand[change.tenant] = now
        if now > before:
            standing.setdefault(change.tenant, []).append((change.minute, now - before))
        elif now < before:
            end(change.tenant, before - now, change.minute)
    for tenant in sorted(standing):
        end(tenant, sum(size for _, size in standing[tenant]), last + 1)
    return settled(jobs)


def load_helios_quotas(path: Path) -> dict[str, dict[str, int]]:
    """Daily quotas: date → tenant → GPUs, without the column ``total``."""
    days: dict[str, dict[str, int]] = {}
    for line, row in table(path, ("date",)):
        days[row["date"]] = {
            name: int(_number(path, line, row, name))
            for name in row
            if name not in ("date", "total") and name is not None
        }
    return days


# -- FGD -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One task of the GPU-sharing cluster: milli-CPUs, bytes, devices, milli-GPUs of each."""

    name: str
    cpus: int
    memory: int
    devices: int
    per_device: int
    created: int
    deleted: int


def load_fgd_pods(path: Path) -> list[Pod]:
    """Read ``name,cpu_milli,memory_mib,num_gpu,gpu_milli,…,creation_time,deletion_time`` (s)."""
    columns = (
        "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time",
    )  # fmt: skip
    found = []
    for line, row in table(path, columns):
        numbers = {name: int(_number(path, line, row, name)) for name in columns[1:]}
        found.append(
            Pod(
                name=row["name"],
                cpus=numbers["cpu_milli"],
                memory=numbers["memory_mib"] * MIB,
                devices=numbers["num_gpu"],
                per_device=numbers["gpu_milli"],
                created=numbers["creation_time"],
                deleted=numbers["deletion_time"],
            )
        )
    return found


def fgd_jobs(pods: list[Pod], tenant: str) -> list[Job]:
    """The pods with GPUs as jobs of one tenant: the format names none."""
    return settled(
        Job(
            id=pod.name, submit=pod.created * 1000,
            duration=max(1, pod.deleted - pod.created) * 1000,
            gpus=pod.devices * pod.per_device, tenant=tenant, cpus=pod.cpus, memory=pod.memory,
        )
        for pod in pods
        if pod.devices
    )  # fmt: skip


def load_fgd_nodes(path: Path, memory: int = 16 * GIB) -> list[Node]:
    """Read ``sn,cpu_milli,memory_mib,gpu,model``; the devices' memory is not in the format."""
    nodes = []
    for line, row in table(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        name, count = row["sn"], int(_number(path, line, row, "gpu"))
        nodes.append(
            Node(
                name=name,
                cpus=int(_number(path, line, row, "cpu_milli")),
                memory=int(_number(path, line, row, "memory_mib")) * MIB,
                devices=tuple(
                    Device(uuid=f"{name}-{i}", index=i, model=row["model"], memory=memory)
                    for i in range(count)
                ),
            )
        )
    return nodes


# -- Kueue -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Workloads of one class that one queue gets at equal intervals; times in milliseconds."""

    class_: str
    priority: int
    units: int
    runtime: int
    interval: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One cluster queue of a cohort, in whole units of its one resource."""

    name: str
    cohort: str
    nominal: int
    borrows: int
    streams: tuple[Stream, ...]


def load_kueue(path: Path) -> list[Queue]:
    """Read the generator of the scheduler's performance test (``cohorts:``)."""
    try:
        document = read_document(path.read_bytes())
    except DocumentError as error:
        raise TraceError([error.problem], str(path)) from None
    queues: list[Queue] = []
    try:
        for cohorts in document.data["cohorts"]:
            for number in range(cohorts["count"]):
                queues += _queues(cohorts, f"{cohorts['className']}-{number}")
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            [Problem("cohorts", f"is not a generator: {error!r}")], str(path)
        ) from None
    return queues


def _queues(cohorts: Mapping[str, Any], cohort: str) -> Iterator[Queue]:
    for kind in cohorts["queuesSets"]:
        streams = tuple(
            Stream(
                class_=workload["className"], priority=int(workload["priority"]),
                units=int(workload["request"]), runtime=int(workload["runtimeMs"]),
                interval=int(one["creationIntervalMs"]), count=int(one["count"]),
            )
            for one in kind["workloadsSets"]
            for workload in one["workloads"]
        )  # fmt: skip
        for number in range(int(kind["count"])):
            yield Queue(
                name=f"{cohort}-{kind['className']}-{number}", cohort=cohort,
                nominal=int(kind["nominalQuota"]), borrows=int(kind["borrowingLimit"]),
                streams=streams,
            )  # fmt: skip


def kueue_jobs(queues: list[Queue]) -> list[Job]:
    """The workloads that the generator would create, tenant = queue."""
    return settled(
        Job(
            id=f"{queue.name}-{stream.class_}-{number}", submit=number * stream.interval,
            duration=stream.runtime, gpus=stream.units * 1000, tenant=queue.name,
            class_=stream.class_,
        )
        for queue in queues
        for stream in queue.streams
        for number in range(stream.count)
    )  # fmt: skip
