"""What was measured on a device, and what could not be: unknown is None with a reason, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """One process on a device, with the pid of the driver: that of the host, in no namespace.

    Parameters
    ----------
    pid
        As the driver counts. Inside a container it means nothing; see :mod:`.owners`.
    memory
        Bytes; None where the driver does not tell.
    utilisation
        Percent of the device, 0 to 100, since the reading before; None where it is not known.
    alive
        False when no such process exists any more (a phantom), None when it cannot be told.
    system
        Part of the machine's own running, such as a display server or the MPS daemon.
    """

    pid: int
    memory: int | None = None
    utilisation: int | None = None
    alive: bool | None = None
    system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at a device.

    Parameters
    ----------
    node, device
        The node's name and the device's UUID (a whole GPU or a MIG slice).
    at
        When it was asked for, milliseconds of the steady clock; None when it never was.
    utilisation
        Percent, 0 to 100.
    memory_used, memory_total
        Bytes, without what the driver reserves for itself.
    processes
        None when they could not be listed, which is not the same as an empty list.
    processes_at
        They are listed more rarely than the rest is read.
    missing
        For each of ``utilisation``, ``memory`` and ``processes`` that is None, why.
    stale
        Nothing has been heard for too long: all values are None, and nothing may be concluded.
    unified
        The device shares the memory of the machine and has none of its own to report.
    """

    node: str
    device: str
    at: int | None = None
    utilisation: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    processes: tuple[ProcessReading, ...] | None = None
    processes_at: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    stale: bool = False
    unified: bool = False

    @property
    def unattributed(self) -> int | None:
        """Bytes in use that no process accounts for: managed memory, phantoms. Never "free".

        None when the use of the device or of one of its processes is not known.

        >>> one = ProcessReading(pid=1, memory=5)
        >>> Reading(node="n", device="d", memory_used=58, processes=(one,)).unattributed
        53
        """
        if self.memory_used is None or self.processes is None:
            return None
        known = [process.memory for process in self.processes]
        if any(memory is None for memory in known):
            return None
        return max(0, self.memory_used - sum(memory or 0 for memory in known))

    def without_values(self, reason: str, *, stale: bool = True) -> Reading:
        """The same device with nothing known about it, and why."""
        return replace(
            self,
            utilisation=None,
            memory_used=None,
            processes=None,
            missing=dict.fromkeys(("utilisation", "memory", "processes"), reason),
            stale=stale,
        )


@dataclass(frozen=True, slots=True)
class Clearance:
    """Whether devices are free of work, with a sentence for each that is not.

    ``clear``: memory at its baseline and no process, by a reading taken after the question.
    ``busy``: something is there. ``unknown``: it could not be told, which is never "clear".
    """

    verdict: Literal["clear", "busy", "unknown"]
    evidence: tuple[str, ...] = ()
