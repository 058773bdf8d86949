"""Whose process it is, and what a lease really uses. Unknown where it is not certain.

A process belongs to a lease when one of these is so, in this order: its server's process is above
it; it is in the server's own cgroup; it runs under a user id that belongs to one lease alone.
Nothing that a process says of itself counts, such as its environment or its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .proc import ProcTable
from .readings import ProcessReading, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What is known of the server or job that holds a lease on this machine.

    Parameters
    ----------
    lease, user
        The lease's id and its user's name.
    pid, started
        The top process and its start in clock ticks, which tells it from a later process with
        the same number. None where the runtime does not say: then its processes cannot be told
        from foreign ones by descent.
    cgroup
        The path of its control group, if it has one of its own.
    uid
        The user id that it runs under, if that is nobody else's.
    """

    lease: str
    user: str
    pid: int | None = None
    started: int | None = None
    cgroup: str | None = None
    uid: int | None = None

    @property
    def traceable(self) -> bool:
        """Whether all processes of this lease would be recognised."""
        return self.pid is not None or self.cgroup is not None or self.uid is not None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a process is.

    ``kind`` is ``lease`` (with its id), ``unmanaged`` (certainly nobody's), ``system``,
    ``phantom`` (there is no such process any more) or ``unknown``; ``how`` says why.
    """

    kind: Literal["lease", "unmanaged", "system", "phantom", "unknown"]
    how: str
    lease: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributed:
    """A process on a device with its owner."""

    device: str
    process: ProcessReading
    owner: Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """What a lease uses of one of its devices.

    Parameters
    ----------
    level
        ``device``: the lease is alone on it, so the figures are the device's, complete even where
        processes are not; ``process``: the sum of its processes; ``unknown``: neither.
    utilisation, memory
        Percent and bytes; None is unknown.
    unattributed
        Bytes of the device that no process accounts for.
    processes
        Number of its live processes; None where they cannot be told.
    missing
        Why a figure is unknown.
    """

    lease: str
    device: str
    level: Literal["device", "process", "unknown"]
    utilisation: int | None = None
    memory: int | None = None
    unattributed: int | None = None
    processes: int | None = None
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Attribution:
    """All of a node: the uses of its leases, and all processes with their owners."""

    uses: tuple[LeaseUse, ...]
    processes: tuple[Attributed, ...]

    @property
    def unmanaged(self) -> tuple[Attributed, ...]:
        """Processes that hold a device without a lease."""
        return tuple(each for each in self.processes if each.owner.kind == "unmanaged")


def root_of(
    lease: str, user: str, pid: int, processes: ProcTable, *, uid: int | None = None
) -> Root:
    """A root for a process of this machine, with the identity that it has now.

    The cgroup counts only where it is not that of the caller: processes which a hub starts are
    usually in the hub's.
    """
    cgroup = processes.cgroup(pid)
    own = processes.cgroup(os.getpid())
    return Root(
        lease=lease,
        user=user,
        pid=pid,
        started=processes.started(pid),
        cgroup=cgroup if cgroup != own else None,
        uid=uid,
    )


def owner_of(process: ProcessReading, roots: Sequence[Root], table: ProcTable) -> Owner:
    """Who owns one process.

    Parameters
    ----------
    process
        As the driver lists it.
    roots
        All live leases of the machine, or those on the process's device.
    table
        The machine's processes.
    """
    if not table.host:
        # A pid of the host may by chance be that of another process in here.
        return Owner("unknown", "process ids in a container are not those of the driver")
    if process.system:
        return Owner("system", table.name(process.pid))
    if table.alive(process.pid) is False:
        return Owner("phantom", "no such process exists any more")
    ancestors = table.ancestors(process.pid)
    for root in roots:
        if root.pid in ancestors and root.started in (None, table.started(root.pid or 0)):
            return Owner("lease", "process tree", root.lease, root.user)
    found = _by_cgroup(table.cgroup(process.pid), roots)
    if found:
        return Owner("lease", "control group", found.lease, found.user)
    uid = table.uid(process.pid)
    same = [root for root in roots if root.uid is not None and root.uid == uid]
    if len(same) == 1:
        return Owner("lease", "user id", same[0].lease, same[0].user)
    if len(same) > 1:
        return Owner("unknown", f"user id {uid} has several leases", user=same[0].user)
    untold = [root.lease for root in roots if not root.traceable]
    if untold:
        return Owner("unknown", f"may belong to {', '.join(untold)}, whose processes are not known")
    return Owner("unmanaged", f"belongs to no lease (user id {uid})")


def _by_cgroup(path: str | None, roots: Sequence[Root]) -> Root | None:
    if path is None:
        return None
    groups = [root.cgroup for root in roots]
    found = [
        root
        for root in roots
        if root.cgroup is not None
        and groups.count(root.cgroup) == 1
        and (path == root.cgroup or path.startswith(root.cgroup.rstrip("/") + "/"))
    ]
    return max(found, key=lambda root: len(root.cgroup or "")) if found else None


def attribute(
    readings: Sequence[Reading],
    roots: Sequence[Root],
    holders: Mapping[str, Sequence[str]],
    table: ProcTable,
) -> Attribution:
    """Share out what was read among the leases.

    Parameters
    ----------
    readings
        Of one node.
    roots
        Of the live leases there.
    holders
        For each device's UUID, the ids of the leases on it, from the ledger. The ledger outranks
        whatever an environment says.
    table
        The machine's processes.
    """
    uses: list[LeaseUse] = []
    everything: list[Attributed] = []
    known = {root.lease: root for root in roots}
    for reading in readings:
        leases = holders.get(reading.device, ())
        # A lease without a root may own anything here: it counts as one that cannot be traced.
        here = [known.get(lease) or Root(lease=lease, user="") for lease in leases]
        others = [root for root in roots if root.lease not in leases]
        found = [
            Attributed(
                device=reading.device,
                process=process,
                owner=owner_of(process, [*here, *others], table),
            )
            for process in reading.processes or ()
        ]
        everything += found
        for lease in leases:
            if len(leases) == 1:
                uses.append(_alone(lease, reading, found))
            else:
                uses.append(_shared(lease, reading, found))
    return Attribution(tuple(uses), tuple(everything))


def _alone(lease: str, reading: Reading, found: Sequence[Attributed]) -> LeaseUse:
    """A lease that has the device to itself uses what the device does.

    Except where a phantom or a foreign process is on it: then only the lease's own processes
    count, each for itself.
    """
    if any(
        each.owner.kind in ("unmanaged", "phantom") or each.owner.lease not in (None, lease)
        for each in found
    ):
        return _shared(lease, reading, found)
    own = [each for each in found if each.owner.kind != "system"]
    return LeaseUse(
        lease=lease,
        device=reading.device,
        level="unknown" if reading.stale else "device",
        utilisation=reading.utilisation,
        memory=reading.memory_used,
        unattributed=reading.unattributed,
        processes=len(own) if reading.processes is not None else None,
        missing=reading.missing,
    )


def _shared(lease: str, reading: Reading, found: Sequence[Attributed]) -> LeaseUse:
    missing = dict(reading.missing)
    unsure = [each for each in found if each.owner.kind == "unknown"]
    if reading.processes is None or unsure:
        why = unsure[0].owner.how if unsure else missing.get("processes", "processes not listed")
        missing.update(utilisation=why, memory=why)
        return LeaseUse(lease=lease, device=reading.device, level="unknown", missing=missing)
    own = [each.process for each in found if each.owner.lease == lease]
    shares = [process.utilisation for process in own]
    sizes = [process.memory for process in own]
    if None in shares:
        missing["utilisation"] = "not told for each process"
    if None in sizes:
        missing["memory"] = "not told for each process"
    return LeaseUse(
        lease=lease,
        device=reading.device,
        level="process",
        utilisation=None if None in shares else min(100, sum(share or 0 for share in shares)),
        memory=None if None in sizes else sum(size or 0 for size in sizes),
        unattributed=reading.unattributed,
        processes=len(own),
        missing=missing,
    )
