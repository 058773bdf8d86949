"""Nodes that are what somebody says they are: for demonstrations, scenarios and tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Literal, get_args

from allotment_hub.domain.inventory import Device, Health, Node

from .changes import Changes
from .ports import Now
from .readings import Clearance, Reading

What = Literal["lost", "restored", "dirty", "tainted"]
TAINT = "tainted"
"""The taint that a node gets by being declared tainted without a name for it."""

_HEALTH: dict[str, Health] = {"lost": "lost", "dirty": "dirty", "tainted": "degraded"}
"""A taint belongs to a node. A device that is set apart is one that serves no new work."""


def change_device(
    nodes: Iterable[Node], uuid: str, what: What, *, at: int, detail: str = ""
) -> tuple[Node, ...]:
    """The nodes after something happened to a device.

    Raises
    ------
    KeyError
        When no node has the device; the message names it.
    ValueError
        When ``what`` is none of lost, restored, dirty, tainted.
    """
    _check(what)
    nodes = tuple(nodes)
    if not any(device.uuid == uuid for node in nodes for device in node.devices):
        raise KeyError(f"no node has a device {uuid!r}")

    def changed(device: Device) -> Device:
        return _with_health(device, what, at, detail) if device.uuid == uuid else device

    return tuple(_map_devices(node, changed) for node in nodes)


def change_node(
    nodes: Iterable[Node], name: str, what: What, *, at: int, detail: str = ""
) -> tuple[Node, ...]:
    """The nodes after something happened to one of them.

    ``lost`` and ``restored`` are the node's own health; ``dirty`` makes all of its devices dirty;
    ``tainted`` adds a taint, named by ``detail``. ``restored`` undoes all of it, devices too.

    Raises
    ------
    KeyError
        When there is no such node; the message says which there are.
    ValueError
        When ``what`` is none of lost, restored, dirty, tainted.
    """
    _check(what)
    nodes = tuple(nodes)
    names = [node.name for node in nodes]
    if name not in names:
        raise KeyError(f"no node {name!r}; there are {', '.join(names) or 'none'}")
    return tuple(
        _node_after(node, what, at, detail) if node.name == name else node for node in nodes
    )


def _check(what: str) -> None:
    if what not in get_args(What):
        raise ValueError(f"{what!r} cannot happen to it; write one of {', '.join(get_args(What))}")


def _node_after(node: Node, what: What, at: int, detail: str) -> Node:
    if what == "lost":
        return replace(node, health="lost", detail=detail or "declared lost")
    if what == "tainted":
        taint = detail or TAINT
        return replace(node, taints=(*(t for t in node.taints if t != taint), taint))
    changed = _map_devices(node, lambda device: _with_health(device, what, at, detail))
    if what == "dirty":
        return changed
    kept = tuple(taint for taint in node.taints if taint not in (TAINT, detail))
    return replace(changed, health="ok", detail="", taints=kept)


def _map_devices(node: Node, change: Callable[[Device], Device]) -> Node:
    return replace(node, devices=tuple(change(device) for device in node.devices))


def _with_health(device: Device, what: What, at: int, detail: str) -> Device:
    health = _HEALTH.get(what, "ok")
    text = "" if health == "ok" else detail or f"declared {what}"
    since = device.since if health == device.health else at
    return replace(device, health=health, detail=text, since=since)


class DeclaredInventory:
    """Nodes in memory that change only when told to; see :class:`.ports.Inventory`.

    Nothing runs on them that could be seen, so a healthy device is clear, a dirty one is busy and
    of a lost one nothing is known.
    """

    def __init__(self, nodes: Iterable[Node], now: Now) -> None:
        self._nodes = tuple(nodes)
        self._now = now
        self._readings: dict[str, Reading] = {}
        self._changes: Changes[tuple[Node, ...]] = Changes()
        self._changes.publish(self._nodes)

    @property
    def current(self) -> tuple[Node, ...]:
        """The nodes, without having to wait."""
        return self._nodes

    def device(self, uuid: str, what: What, detail: str = "") -> None:
        """Let something happen to a device; see :func:`change_device`."""
        self._set(change_device(self._nodes, uuid, what, at=self._now(), detail=detail))

    def node(self, name: str, what: What, detail: str = "") -> None:
        """Let something happen to a node; see :func:`change_node`."""
        self._set(change_node(self._nodes, name, what, at=self._now(), detail=detail))

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Declare other nodes, as when the file was read anew."""
        self._set(tuple(nodes))

    def read(self, reading: Reading) -> None:
        """Declare a reading; it holds until the next of its device."""
        self._readings[reading.device] = reading

    async def start(self) -> None:
        """Nothing has to be started."""

    async def close(self) -> None:
        """Nothing has to be ended."""

    async def nodes(self) -> tuple[Node, ...]:
        """As declared."""
        return self._nodes

    async def readings(self) -> tuple[Reading, ...]:
        """As declared: a device without a declared reading has none, so it is unknown."""
        return tuple(self._readings[uuid] for uuid in sorted(self._readings))

    async def wait_for_change(self, seen: int) -> int:
        """See :meth:`.ports.Inventory.wait_for_change`."""
        return await self._changes.wait(seen)

    def set_held(self, devices: Collection[str]) -> None:
        """Who holds a device changes nothing that is declared."""

    async def device_clear(
        self, devices: Collection[str], *, elsewhere: Collection[int] = ()
    ) -> Clearance:
        """See :meth:`.ports.Inventory.device_clear`."""
        health = {device.uuid: device for node in self._nodes for device in node.devices}
        busy = [uuid for uuid in devices if uuid in health and health[uuid].health == "dirty"]
        if busy:
            return Clearance("busy", tuple(f"{uuid}: {health[uuid].detail}" for uuid in busy))
        unknown = [
            f"{uuid}: {health[uuid].detail if uuid in health else 'no such device'}"
            for uuid in devices
            if uuid not in health or health[uuid].health in ("lost", "unknown")
        ]
        return Clearance("unknown", tuple(unknown)) if unknown else Clearance("clear")

    def _set(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self._changes.publish(nodes)
