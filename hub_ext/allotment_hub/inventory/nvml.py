"""The devices of this machine, by NVIDIA's management library."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from allotment_hub.domain.amounts import SECOND
from allotment_hub.domain.inventory import Device, Node

from .changes import Changes
from .observe import Known, Surroundings, absorb
from .ports import Now
from .proc import ProcTable
from .readings import Clearance, Reading
from .sampler import Failure, Sampler, SamplerSettings


def machine_memory() -> int | None:
    """Bytes of memory of this machine, None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSettings:
    """Times in milliseconds, memory in bytes.

    Parameters
    ----------
    node
        What this machine is called in the inventory.
    sample_every, processes_every
        Utilisation and memory are cheap; listing processes costs milliseconds under the driver's
        lock.
    stale_after
        A value older than this is no value.
    idle_memory
        What an unused device may show in use before it counts as dirty.
    answer_within
        How long anybody waits for a look that was asked for.
    settle
        How long a failed device has to answer well before it serves again.
    devices
        UUIDs to ask for although the driver does not list them: slices of a GPU that is closed
        to this process.
    """

    node: str = field(default_factory=socket.gethostname)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    cpus: int | None = field(default_factory=lambda: (os.cpu_count() or 1) * 1000)
    memory: int | None = field(default_factory=machine_memory)
    sample_every: int = 5 * SECOND
    processes_every: int = 15 * SECOND
    stale_after: int = 30 * SECOND
    idle_memory: int = 512 << 20
    settle: int = 60 * SECOND
    answer_within: int = 5 * SECOND
    devices: tuple[str, ...] = ()
    sampler: SamplerSettings = field(default_factory=SamplerSettings)


class NvmlInventory:
    """One node with the devices that the driver lists; see :class:`.ports.Inventory`.

    Parameters
    ----------
    now
        The steady clock.
    settings
        Bounds, names and pauses.
    remembered
        Nodes as they were last seen. A device of theirs that is not there now is shown as lost,
        never silently replaced by another with its number.
    processes
        The machine's processes.
    """

    def __init__(
        self,
        now: Now,
        settings: NvmlSettings | None = None,
        *,
        remembered: Iterable[Node] = (),
        processes: ProcTable | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self.settings = settings or NvmlSettings()
        self.processes = processes or ProcTable()
        self.sampler = sampler or Sampler(now, self.settings.sampler)
        self._now = now
        self._held: frozenset[str] | None = None
        self._driver: str | None = None
        self._notes: tuple[str, ...] = ()
        self._slow_at: int | None = None
        self._changes: Changes[Node] = Changes()
        self._task: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[bool]] = set()
        self._devices: dict[str, Known] = {}
        for node in remembered:
            if node.name == self.settings.node:
                self._driver = node.driver
                self._devices.update((each.uuid, self._recalled(each)) for each in node.devices)

    async def start(self) -> None:
        """Keep looking in a task of its own; wait a little for the first answer.

        A driver that hangs does not hold up the governor's start: until it answers, the node is
        there with what is remembered of it, and nothing on it is given out.
        """
        self._task = asyncio.create_task(self._run(), name="nvml inventory")
        await self._look_within(self.settings.answer_within)

    async def close(self) -> None:
        """Stop looking and end the sampling process."""
        tasks: list[asyncio.Task[Any]] = [*self._looks]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        await self.sampler.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self, *, slow: bool = True, at_once: bool = False) -> bool:
        """Look at the devices now; whether that brought anything new."""
        fresh = await self.sampler.poll(
            slow=slow,
            known=(*self._devices, *self.settings.devices),
            since=lambda: {uuid: known.stamp for uuid, known in self._devices.items()},
            at_once=at_once,
        )
        if fresh:
            self._absorb()
        self._changes.publish(self._node())
        return fresh

    async def nodes(self) -> tuple[Node, ...]:
        """One node: the machine that this runs on."""
        return (self._node(),)

    async def readings(self) -> tuple[Reading, ...]:
        """The newest reading of each device; stale ones without their values."""
        return tuple(self._reading(known) for _, known in sorted(self._devices.items()))

    async def wait_for_change(self, seen: int) -> int:
        """See :meth:`.ports.Inventory.wait_for_change`."""
        return await self._changes.wait(seen)

    def set_held(self, devices: Collection[str]) -> None:
        """Say which devices live leases hold."""
        self._held = frozenset(devices)

    @property
    def aliases(self) -> dict[str, str]:
        """Old names of MIG slices to their UUIDs, where those differ."""
        return {
            known.alias: uuid
            for uuid, known in self._devices.items()
            if known.alias and known.alias != uuid
        }

    async def device_clear(
        self, devices: Collection[str], *, elsewhere: Collection[int] = ()
    ) -> Clearance:
        """See :meth:`.ports.Inventory.device_clear`."""
        asked_at = self._now()
        if not await self._look_within(self.settings.answer_within):
            return Clearance("unknown", (self._no_sample(),))
        verdicts = [self._clear(uuid, asked_at, frozenset(elsewhere)) for uuid in devices]
        evidence = tuple(sentence for _, sentence in verdicts if sentence)
        words = {word for word, _ in verdicts}
        if "busy" in words:
            return Clearance("busy", evidence)
        return Clearance("unknown" if "unknown" in words else "clear", evidence)

    def _clear(self, uuid: str, asked_at: int, elsewhere: frozenset[int]) -> tuple[str, str]:
        uuid = self.aliases.get(uuid, uuid)
        known = self._devices.get(uuid)
        reading = known.reading if known else None
        if known is None or reading is None:
            return "unknown", f"{uuid}: no such device on {self.settings.node}"
        if reading.stale or reading.at is None or reading.at < asked_at:
            return "unknown", f"{uuid}: {known.device.detail or 'no reading'}"
        if reading.processes is None:
            return "unknown", f"{uuid}: processes: {reading.missing.get('processes', 'not listed')}"
        left = [each for each in reading.processes if not each.system and each.pid not in elsewhere]
        if left:
            pids = ", ".join(
                f"{each.pid}" + (" (no longer exists)" if each.alive is False else "")
                for each in left
            )
            return "busy", f"{uuid}: used by process {pids}"
        if reading.unified or any(each.pid in elsewhere for each in reading.processes):
            return "clear", ""
        if reading.memory_used is None:
            return "unknown", f"{uuid}: memory: {reading.missing.get('memory', 'not told')}"
        used = reading.memory_used - sum(each.memory or 0 for each in reading.processes)
        if used > self.settings.idle_memory:
            return "busy", f"{uuid}: {used >> 20} MiB are still in use"
        return "clear", ""

    async def _look_within(self, longest: int) -> bool:
        """Look afresh; False when that failed or takes longer, and then it goes on by itself."""
        look = asyncio.create_task(self.refresh(at_once=True))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        await asyncio.wait({look}, timeout=longest / SECOND)
        return look.done() and not look.cancelled() and look.result()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sample_every / SECOND)
            due = self._slow_at is None or (
                self._now() - self._slow_at >= self.settings.processes_every
            )
            await self.refresh(slow=due)

    def _absorb(self) -> None:
        sample = self.sampler.last
        if sample is None:
            return
        observed = absorb(self._devices, sample.answer, sample.at, self._surroundings())
        self._devices, self._notes = observed.devices, observed.notes
        self._driver = sample.answer["driver"]
        if sample.slow:
            self._slow_at = sample.at

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            node=self.settings.node,
            machine_memory=self.settings.memory,
            held=self._held,
            avoided={index: each.text for index, each in self.sampler.avoided.items()},
            alive=self.processes.alive,
            is_system=self.processes.is_system,
            idle_memory=self.settings.idle_memory,
            settle=self.settings.settle,
        )

    def _node(self) -> Node:
        doubt = self._doubt()
        devices = [known.device for known in self._devices.values()]
        if doubt:
            devices = [self._doubtful(device, doubt) for device in devices]
        devices.sort(key=lambda device: (device.index, device.uuid))
        failure = self.sampler.failure
        absent = failure is not None and failure.kind == "absent"
        detail = doubt or "; ".join(self._notes) or (self._no_sample() if absent else "")
        return Node(
            name=self.settings.node,
            devices=tuple(devices),
            labels=self.settings.labels,
            cpus=self.settings.cpus,
            memory=self.settings.memory,
            driver=self._driver,
            taints=self.settings.taints,
            health="unknown" if doubt else "ok",
            detail=detail,
        )

    def _doubt(self) -> str:
        """Why nothing may be started here now; empty when all is well.

        A driver that refuses newcomers counts at once, one that is silent after a while, and a
        machine without a driver only if it had devices.
        """
        failure = self.sampler.failure
        if failure is None and self.sampler.last is None:
            return "not read yet"
        if failure is None:
            return "" if self._age() <= self.settings.stale_after else "no fresh reading"
        if failure.kind in ("mismatch", "refused"):
            return f"unavailable ({failure.text})"
        if failure.kind == "absent":
            return f"unavailable ({failure.text})" if self._devices else ""
        known = self.sampler.last is not None
        if known and self._age() <= self.settings.stale_after:
            return ""
        return f"no fresh reading: {failure.text}"

    def _age(self) -> int:
        return self._now() - self.sampler.last.at if self.sampler.last else 0

    def _doubtful(self, device: Device, doubt: str) -> Device:
        if device.health in ("lost", "degraded", "unknown"):
            return device
        failure = self.sampler.failure
        since = failure.at if failure else device.since
        return replace(device, health="unknown", detail=doubt, since=since)

    def _no_sample(self) -> str:
        failure: Failure | None = self.sampler.failure
        return failure.text if failure else "the driver has not answered yet"

    def _reading(self, known: Known) -> Reading:
        reading = known.reading
        doubt = self._doubt()
        if doubt or reading.at is None:
            return reading.without_values(doubt or "never read")
        listed_at = reading.processes_at
        longest = self.settings.stale_after + 2 * self.settings.processes_every
        if listed_at is not None and self._now() - listed_at > longest:
            missing = {**reading.missing, "processes": "listed too long ago"}
            return replace(reading, processes=None, missing=missing)
        return reading

    def _recalled(self, device: Device) -> Known:
        """A device of the ledger, of which nothing is known until the driver answers."""
        reading = Reading(node=self.settings.node, device=device.uuid)
        return Known(device=device, reading=reading)
