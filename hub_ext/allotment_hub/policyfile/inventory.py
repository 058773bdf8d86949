"""Declared inventories: nodes and devices written down in a file.

The notation is that of ``inventory:`` in scenario files: a list of nodes, each with groups of
equal devices. Identities are derived from the place, so that the same file always gives the same
devices; real ones can be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from allotment_hub.domain.amounts import Memory, Unit
from allotment_hub.domain.inventory import Device, Health, Node
from allotment_hub.domain.policy import Policy

from .capacity import check_capacity
from .document import Document
from .loading import Source, open_document, placed, raise_errors, source_name
from .names import name_fault, text_fault
from .problems import InventoryError, Path, Problem, Problems, shown
from .reader import read

MAX_PER_NODE = 1024
MAX_DEVICES = 200_000

Cpus = Annotated[int, Unit("cpus")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Equal devices of one node, as the file has them.

    ``nvlink`` lists islands by the place of the devices within this group, from 0. ``mig`` names
    the profile of slices: each of ``count`` is one slice then. ``uuids`` gives real identities.
    """

    model: str
    memory: Memory
    count: int = 1
    uuids: tuple[str, ...] = ()
    nvlink: tuple[tuple[int, ...], ...] = ()
    mig: str | None = None
    health: Health = "ok"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """One node, as the file has it."""

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: Cpus | None = None
    memory: Memory | None = None
    driver: str | None = None
    taints: tuple[str, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
    health: Literal["ok", "lost", "unknown"] = "ok"
    draining: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The whole file; a bare list of nodes is read as ``inventory``."""

    inventory: tuple[NodeEntry, ...]


def load_inventory(
    source: Source | list[Any], policy: Policy | None = None, *, name: str | None = None
) -> tuple[Node, ...]:
    """Read and check a declared inventory.

    Parameters
    ----------
    source : str, bytes, path, list, mapping or Document
        YAML or JSON text, a path, or values read before: a list of nodes, or a mapping with the
        list under ``inventory``.
    policy : Policy, optional
        Its guarantees must fit (unless ``overcommit``), else the inventory is refused.
    name : str, optional
        What messages call the source.

    Raises
    ------
    InventoryError
        With every error found, each with its path, line and what would be right.
    OSError
        Where the file cannot be read.

    Examples
    --------
    >>> [node] = load_inventory("- {node: n1, devices: [{model: L40S, memory: 48GiB, count: 2}]}")
    >>> [device.uuid for device in node.devices]
    ['GPU-n1-0', 'GPU-n1-1']
    """
    nodes, _ = read_inventory(source, policy, name=name)
    return nodes


def read_inventory(
    source: Source | list[Any], policy: Policy | None = None, *, name: str | None = None
) -> tuple[tuple[Node, ...], tuple[Problem, ...]]:
    """As :func:`load_inventory`, with the warnings beside."""
    if isinstance(source, list):
        source = Document(source)
    label = name or source_name(source, "inventory")
    document = open_document(source, label, InventoryError)
    problems = Problems()
    bare = not isinstance(document.data, Mapping)
    top: Path = () if bare else ("inventory",)
    if bare:
        entries = _entries(document, problems)
    else:
        entries = read(_File, document.data, problems).inventory
    if not entries and not problems.failed:
        problems.error(top, "holds no node; write a list such as [{node: n1, devices: []}]")
    _check(entries, top, problems)
    raise_errors(problems, document, label, InventoryError)
    nodes = tuple(_node(entry) for entry in entries)
    if policy is not None:
        check_capacity(policy, nodes, problems)
        if problems.failed:
            raise_errors(problems, document, label, InventoryError)
    return nodes, placed(problems, document)


def _entries(document: Document, problems: Problems) -> tuple[NodeEntry, ...]:
    if not isinstance(document.data, list):
        hint = "; to read a file pass its path" if isinstance(document.data, str) else ""
        problems.error((), f"is {shown(document.data)}, not a list of nodes{hint}")
        return ()
    return tuple(read(NodeEntry, one, problems, (at,)) for at, one in enumerate(document.data))


def _check(entries: tuple[NodeEntry, ...], top: Path, problems: Problems) -> None:
    names: dict[str, int] = {}
    uuids: dict[str, Path] = {}
    total = 0
    for at, entry in enumerate(entries):
        path: Path = (*top, at)
        _check_node(entry, path, problems)
        if entry.node in names and not problems.covers((*path, "node")):
            text = f"is {shown(entry.node)}, like node {names[entry.node] + 1} of the list"
            problems.error((*path, "node"), f"{text}; names must differ")
        names.setdefault(entry.node, at)
        for place, group in enumerate(entry.devices):
            _check_group(entry, group, (*path, "devices", place), problems)
        if sum(group.count for group in entry.devices) > MAX_PER_NODE:
            problems.error((*path, "devices"), f"has more than {MAX_PER_NODE:,} devices")
            continue
        total += sum(group.count for group in entry.devices)
        if not problems.failed:
            _check_identities(entry, path, uuids, problems)
    if total > MAX_DEVICES:
        problems.error(top, f"has more than {MAX_DEVICES:,} devices")


def _check_node(entry: NodeEntry, path: Path, problems: Problems) -> None:
    fault = name_fault(entry.node)
    if fault is not None:
        problems.error((*path, "node"), fault)
    for label, value in entry.labels.items():
        for text in (label, value):
            fault = text_fault(text)
            if fault is not None:
                problems.error((*path, "labels", label), fault)
    for at, taint in enumerate(entry.taints):
        fault = text_fault(taint)
        if fault is not None:
            problems.error((*path, "taints", at), f"{shown(taint)} {fault}")


def _check_group(entry: NodeEntry, group: DeviceGroup, path: Path, problems: Problems) -> None:
    fault = text_fault(group.model)
    if fault is not None:
        problems.error((*path, "model"), f"{shown(group.model)} {fault}")
    if group.memory == 0:
        problems.error((*path, "memory"), "is 0; write what the device has, such as 80GiB")
    if not 1 <= group.count <= MAX_PER_NODE:
        right = f"write a whole number from 1 to {MAX_PER_NODE:,}"
        problems.error((*path, "count"), f"is {shown(group.count)}; {right}")
        return
    if group.uuids and len(group.uuids) != group.count:
        text = f"lists {len(group.uuids)} for {group.count} devices; write one for each"
        problems.error((*path, "uuids"), text)
    for at, uuid in enumerate(group.uuids):
        fault = text_fault(uuid, most=128)
        if fault is not None:
            problems.error((*path, "uuids", at), f"{shown(uuid)} {fault}")
    _check_islands(group, (*path, "nvlink"), problems)


def _check_islands(group: DeviceGroup, path: Path, problems: Problems) -> None:
    seen: set[int] = set()
    for at, island in enumerate(group.nvlink):
        for place, index in enumerate(island):
            where = (*path, at, place)
            if not 0 <= index < group.count:
                right = f"write a place in this group, 0 to {group.count - 1}"
                problems.error(where, f"is {shown(index)}; {right}")
            elif index in seen:
                problems.error(where, f"{index} is in two islands; keep one")
            seen.add(index)


def _check_identities(
    entry: NodeEntry, path: Path, uuids: dict[str, Path], problems: Problems
) -> None:
    for device in _node(entry).devices:
        if device.uuid in uuids:
            text = f"has {shown(device.uuid)} a second time; each device has its own identity"
            problems.error((*path, "devices"), text)
        uuids[device.uuid] = path


def _node(entry: NodeEntry) -> Node:
    devices: list[Device] = []
    islands = 0
    for group in entry.devices:
        devices += _devices(entry.node, group, len(devices), islands)
        islands += len(group.nvlink)
    return Node(
        name=entry.node,
        devices=tuple(devices),
        labels=dict(entry.labels),
        cpus=entry.cpus,
        memory=entry.memory,
        driver=entry.driver,
        taints=entry.taints,
        health=entry.health,
        draining=entry.draining,
        detail=entry.detail,
    )


def _devices(node: str, group: DeviceGroup, start: int, islands: int) -> list[Device]:
    island_of = {
        place: islands + number for number, island in enumerate(group.nvlink) for place in island
    }
    prefix = "GPU" if group.mig is None else "MIG"
    return [
        Device(
            uuid=group.uuids[place] if group.uuids else f"{prefix}-{node}-{start + place}",
            index=start + place,
            model=group.model,
            memory=group.memory,
            island=island_of.get(place),
            health=group.health,
            detail=group.detail,
            mig_profile=group.mig,
        )
        for place in range(group.count)
    ]
