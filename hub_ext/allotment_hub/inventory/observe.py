"""From one answer of the driver and what was known before, to what is known now. Pure.

Devices are matched by UUID alone. A number only helps to tell which device it was that does not
even say its UUID any more, and only while the driver lists the same devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from allotment_hub.domain.inventory import Device

from .health import Judgement, dirt, is_unified, judge, with_health
from .names import OldMigName
from .readings import ProcessReading, Reading
from .topology import islands

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A device and what is kept about it from one look to the next."""

    device: Device
    reading: Reading
    alias: str | None = None
    parent: str | None = None
    bus: str | None = None
    stamp: int = 0
    good_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an answer is read against.

    ``held`` are the devices that leases hold, None while that is not known; ``alive`` and
    ``is_system`` tell about pids of the host; ``settle`` is how long, in milliseconds, a device
    that failed has to answer well before it serves again.
    """

    node: str
    machine_memory: int | None
    held: frozenset[str] | None
    avoided: Mapping[int, str]
    alive: Callable[[int], bool | None]
    is_system: Callable[[int], bool]
    idle_memory: int
    settle: int

    def holds(self, uuid: object) -> bool:
        """Whether a lease may be on a device: on any, while it is not known which."""
        return self.held is None or uuid in self.held


@dataclass(frozen=True, slots=True)
class Observed:
    """All devices by UUID, and sentences about what cannot be named as a device."""

    devices: dict[str, Known]
    notes: tuple[str, ...] = ()


def absorb(before: Mapping[str, Known], answer: Answer, at: int, around: Surroundings) -> Observed:
    """Everything known after one answer.

    Parameters
    ----------
    before
        By UUID.
    answer
        As :func:`.probe.look` gives it.
    at
        When the question was put, milliseconds.
    around
        See :class:`Surroundings`.
    """
    after: dict[str, Known] = {}
    notes: list[str] = []
    claimed = {
        each["uuid"]
        for each in answer["devices"]
        if each.get("uuid") and "handle" not in each.get("errors", {})
    }
    split = {each["parent"] for each in answer["devices"] if each.get("parent")}
    for each in answer["devices"]:
        uuid = each.get("uuid") or _by_number(before, each["index"], claimed)
        if each.get("empty_mig"):
            split.add(uuid)
            notes.append(f"GPU {each['index']} is in MIG mode and has no slices")
        elif uuid is None:
            notes.append(f"GPU {each['index']}: {_why(each, around)}")
        elif uuid not in after and not _is_gone(each, before.get(uuid), split, around):
            after[uuid] = _device(before.get(uuid), uuid, each, at, around)
    partial = any(each.get("skipped") for each in answer["devices"])
    for uuid, known in before.items():
        if uuid not in after and (around.holds(uuid) or not _was_split(known, split)):
            after[uuid] = _missing(known, at, partial)
    return Observed(_with_islands(after, answer), tuple(notes))


def _by_number(before: Mapping[str, Known], index: int | None, claimed: set[str]) -> str | None:
    """The whole device that had a number, if no other answer is that device."""
    found = [
        uuid
        for uuid, known in before.items()
        if known.device.index == index and not known.device.mig_profile and uuid not in claimed
    ]
    return found[0] if len(found) == 1 else None


def _why(answer: Answer, around: Surroundings) -> str:
    if answer.get("skipped"):
        return around.avoided.get(answer["index"], "left out")
    return judge(answer["errors"], "").detail or "tells no UUID"


def _was_split(known: Known, split: set[Any]) -> bool:
    """Whether a GPU was cut into slices since, or a slice's GPU was cut in another way."""
    return known.device.uuid in split or (known.parent is not None and known.parent in split)


def _is_gone(answer: Answer, known: Known | None, split: set[Any], around: Surroundings) -> bool:
    """Whether nobody holds a device that is no more, or not to be given out as a whole."""
    if answer.get("uuid") in split and known is None:
        return True  # a GPU that is cut into slices is none itself
    if around.holds(answer.get("uuid")):
        return False
    if answer.get("uuid") in split:
        return True
    missing = "handle" in answer.get("errors", {}) and answer["index"] is None
    return missing and (known is None or _was_split(known, split))


def _missing(known: Known, at: int, partial: bool) -> Known:
    if partial:
        found = Judgement("unknown", "not looked for while another device is left out")
    else:
        found = Judgement("lost", "the driver does not list it any more")
    return _unread(known, found, at)


def _unread(known: Known, found: Judgement, at: int) -> Known:
    device = with_health(known.device, known.device, found, at)
    reading = known.reading.without_values(found.detail)
    return replace(known, device=device, reading=reading, good_since=None)


def _device(known: Known | None, uuid: str, answer: Answer, at: int, around: Surroundings) -> Known:
    if answer.get("skipped") and known is not None:
        return _unread(known, Judgement("unknown", _why(answer, around)), at)
    device = _identity(known, uuid, answer, around)
    reading = _reading(known, device, answer, at, around)
    found = judge(answer["errors"], device.model)
    good_since = None
    if found.health == "ok":
        good_since = known.good_since if known and known.good_since is not None else at
        found = _settled(known, found, good_since, at, around.settle)
    if found.health == "ok" and not around.holds(uuid):
        left = dirt(reading, around.idle_memory)
        found = Judgement("dirty", left) if left else found
    gpu_instance, compute_instance = answer.get("gi"), answer.get("ci")
    parent = answer.get("parent") or (known.parent if known else None)
    alias = known.alias if known else None
    if parent and gpu_instance is not None and compute_instance is not None:
        alias = str(OldMigName(parent, gpu_instance, compute_instance))
    return Known(
        device=with_health(known.device if known else None, device, found, at),
        reading=reading,
        alias=alias,
        parent=parent,
        bus=answer.get("bus") or (known.bus if known else None),
        stamp=answer.get("stamp", known.stamp if known else 0),
        good_since=good_since,
    )


def _settled(
    known: Known | None, found: Judgement, good_since: int, at: int, settle: int
) -> Judgement:
    """A device that failed does not serve again at its first good answer: bad ones flap."""
    if known is None or known.device.health not in ("lost", "degraded"):
        return found
    if at - good_since >= settle:
        return found
    detail = f"answers again; serves after {settle // 1000} s without an error"
    return Judgement(known.device.health, detail)


def _identity(known: Known | None, uuid: str, answer: Answer, around: Surroundings) -> Device:
    """Name, number and size; what the driver does not tell now stays as it was."""
    before = known.device if known else None
    model = answer.get("name") or (before.model if before else "")
    memory = answer["memory"][0] if answer.get("memory") else (before.memory if before else 0)
    if is_unified(model) and around.machine_memory:
        memory = around.machine_memory
    index = answer["index"] if answer["index"] is not None else (before.index if before else 0)
    profile = model.rpartition(" MIG ")[2] if answer.get("mig") and " MIG " in model else None
    return Device(
        uuid=uuid,
        index=index,
        model=model,
        memory=memory,
        island=before.island if before else None,
        mig_profile=profile or (before.mig_profile if before else None),
    )


def _reading(
    known: Known | None, device: Device, answer: Answer, at: int, around: Surroundings
) -> Reading:
    if "handle" in answer["errors"]:
        reading = Reading(node=around.node, device=device.uuid, at=at)
        return reading.without_values(str(answer["errors"]["handle"][1]), stale=False)
    unified = is_unified(device.model)
    missing = {what: str(text) for what, (_, text, *_) in answer["errors"].items()}
    missing = {what: missing[what] for what in ("utilisation", "memory") if what in missing}
    total, used = answer.get("memory") or (None, None)
    if unified:
        total = used = None
        missing["memory"] = "shared with the machine's memory"
    processes, processes_at = None, None
    if "processes" in answer:
        processes, processes_at = _processes(answer, around), at
        if processes is None:
            missing["processes"] = str(answer["errors"].get("processes", [0, "not told"])[1])
    elif known is not None:
        processes, processes_at = known.reading.processes, known.reading.processes_at
        if processes is None and "processes" in known.reading.missing:
            missing["processes"] = known.reading.missing["processes"]
    return Reading(
        node=around.node,
        device=device.uuid,
        at=at,
        utilisation=answer.get("utilisation"),
        memory_used=used,
        memory_total=total,
        processes=processes,
        processes_at=processes_at,
        missing=missing,
        unified=unified,
    )


def _processes(answer: Answer, around: Surroundings) -> tuple[ProcessReading, ...] | None:
    listed = answer.get("processes")
    if listed is None:
        return None
    shares = answer.get("shares")
    still = shares is None and answer.get("utilisation") == 0 and not _refused(answer)
    return tuple(
        ProcessReading(
            pid=pid,
            memory=memory,
            # No sample of a process means that it did nothing, where there are samples at all.
            utilisation=0 if still else None if shares is None else shares.get(str(pid), 0),
            alive=around.alive(pid),
            system=around.is_system(pid),
        )
        for pid, memory in listed
    )


def _refused(answer: Answer) -> bool:
    return "process_utilisation" in answer["errors"]


def _with_islands(devices: dict[str, Known], answer: Answer) -> dict[str, Known]:
    """Number the islands anew whenever the links were read."""
    links = {
        each["bus"].lower(): [end.lower() for end in each["links"]]
        for each in answer["devices"]
        if each.get("bus") and each.get("links") is not None
    }
    if not links:
        return devices
    numbers = islands(links)
    return {
        uuid: replace(
            known, device=replace(known.device, island=numbers.get((known.bus or "").lower()))
        )
        if (known.bus or "").lower() in links
        else known
        for uuid, known in devices.items()
    }
