"""What a device's errors and memory say about it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from allotment_hub.domain.inventory import Device, Health

from .codes import BENIGN, GPU_IS_LOST, NO_PERMISSION, NOT_FOUND
from .readings import ProcessReading, Reading

INTEGRATED = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson|nvgpu)\b", re.IGNORECASE)
"""Devices that are known to share the machine's memory. On any other the same silence about
memory is a fault, so that this has to be a list."""

Errors = Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A health and the sentence that goes with it."""

    health: Health
    detail: str = ""


def judge(errors: Errors, model: str) -> Judgement:
    """Health by the errors of one look.

    Parameters
    ----------
    errors
        For each question that failed, the driver's code and text.
    model
        The device's name, which tells the integrated ones.

    >>> judge({"memory": [3, "Not Supported"]}, "NVIDIA GB10").health
    'ok'
    >>> judge({"memory": [999, "Unknown Error"]}, "NVIDIA L40S")
    Judgement(health='degraded', detail='memory: Unknown Error')
    """
    for what, (code, text, *_) in errors.items():
        if code == GPU_IS_LOST:
            return Judgement("lost", f"{text}")
        if what == "handle" and code == NOT_FOUND:
            return Judgement("lost", "the driver does not list it any more")
    for what, (code, text, *_) in errors.items():
        vital = what in ("handle", "uuid") or (what == "memory" and not is_unified(model))
        if code == NO_PERMISSION and vital:
            return Judgement("unknown", f"{what}: {text}")
        if code not in BENIGN or vital:
            return Judgement("degraded", f"{what}: {text}")
    return Judgement("ok")


def is_unified(model: str) -> bool:
    """Whether a device is one of those that have no memory of their own."""
    return INTEGRATED.search(model) is not None


def dirt(reading: Reading, idle_memory: int) -> str:
    """What is left on a device that no lease holds; empty when it is back at its baseline.

    Parameters
    ----------
    reading
        A fresh reading.
    idle_memory
        Bytes that an unused device may show in use.

    >>> ghost = ProcessReading(pid=4242, memory=10 << 30, alive=False)
    >>> dirt(Reading(node="n", device="d", memory_used=10 << 30, processes=(ghost,)), 512 << 20)
    'holds 10.0 GiB of process 4242, which no longer exists'
    """
    processes = reading.processes or ()
    others = [process for process in processes if not process.system]
    if reading.unified:
        return f"used by {_names(others)}" if others else ""
    if reading.memory_used is None:
        return ""
    own = sum(process.memory or 0 for process in processes if process.system)
    used = reading.memory_used - own
    if used <= idle_memory:
        return ""
    size = f"holds {used / 2**30:.1f} GiB"
    if not others:
        return f"{size} that no process accounts for"
    return f"{size} of {_names(others)}"


def _names(processes: Sequence[ProcessReading]) -> str:
    each = [
        f"process {process.pid}" + (", which no longer exists" if process.alive is False else "")
        for process in processes[:3]
    ]
    more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
    return "; ".join(each) + more


def with_health(before: Device | None, device: Device, found: Judgement, at: int) -> Device:
    """The device with a judgement; ``since`` stays as long as the health does."""
    same = before is not None and before.health == found.health
    since = before.since if before is not None and same else at
    return replace(device, health=found.health, detail=found.detail, since=since)
