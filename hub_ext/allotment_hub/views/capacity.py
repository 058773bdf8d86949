"""What there is, what serves, and what is there but does not serve, by cause.

Per pool and flavor ``total = out_of_service + in_use + held_preparing + held_not_used +
free_quota_blocked + free_wrong_shape + free``, in GPUs, without overlap. Free devices count as
blocked as far as requests wait that could use them but for their quota or for the shape in which
they lie. Pools that pick no nodes by label share theirs: each shows all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allotment_hub import sentences
from allotment_hub.domain.amounts import show_gpus, show_memory
from allotment_hub.domain.inventory import Device, Node, flavor_of, group_of, slot_capacity
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request

from .frame import Frame

SHARES = (
    "free",
    "in_use",
    "out_of_service",
    "free_wrong_shape",
    "free_quota_blocked",
    "held_not_used",
    "held_preparing",
)

NOT_USED = frozenset({"idle", "abandoned", "unused", "stale"})
"""Verdicts by which a held device counts as not used."""


@dataclass(slots=True)
class _Line:
    """Amounts of one flavor in one group of nodes, in milli-GPUs."""

    total: int = 0
    deficit: int = 0
    shares: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SHARES, 0))
    behind: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: _Line) -> None:
        self.total += other.total
        self.deficit += other.deficit
        self.behind += other.behind
        for share, amount in other.shares.items():
            self.shares[share] += amount

    def view(self) -> dict[str, Any]:
        amounts = {share: show_gpus(amount) for share, amount in self.shares.items()}
        return {
            "total": show_gpus(self.total),
            "in_service": show_gpus(self.total - self.shares["out_of_service"]),
            **amounts,
            "deficit": show_gpus(self.deficit),
            "behind": self.behind,
        }


Held = dict[str, list[tuple[Lease, int]]]
"""Leases and their milli-GPUs by the device that they lie on."""


def capacity_view(frame: Frame) -> dict[str, Any]:
    """Show pools, flavors, nodes and devices with what of them serves."""
    policy = frame.state.policy
    held = _held(frame)
    lines = _lines(frame, held)
    by_flavor: dict[str, _Line] = {}
    for (_, flavor), line in lines.items():
        by_flavor.setdefault(flavor, _Line()).add(line)
    whole = _Line()
    for line in lines.values():
        whole.add(line)
    return {
        "at": frame.time(frame.now),
        **{key: value for key, value in whole.view().items() if key != "behind"},
        "pools": [_pool(frame, name, lines) for name in policy.pools],
        "flavors": [_flavor(frame, name, by_flavor.get(name, _Line())) for name in policy.flavors],
        "nodes": [_node(frame, node) for _, node in sorted(frame.state.nodes.items())],
        "devices": [_device(frame, node, device, held) for node, device in _devices(frame)],
        "switches": {
            name: {"on": switch.on, "text": switch.text, "since": frame.time(switch.since)}
            for name, switch in frame.state.switches.items()
            if switch.on
        },
    }


def pool_view(frame: Frame, name: str, flavor: str | None = None) -> dict[str, Any] | None:
    """Show one pool, or one flavor in it; None where the policy has no such pool."""
    if name not in frame.state.policy.pools:
        return None
    pool = _pool(frame, name, _lines(frame, _held(frame)))
    if flavor is None:
        return pool
    return next((line for line in pool["flavors"] if line["flavor"] == flavor), None)


def device_view(
    frame: Frame, *, uuid: str | None = None, node: str | None = None, index: int | None = None
) -> dict[str, Any] | None:
    """Show one device by its uuid, or by node and index; None where there is none."""
    for host, device in _devices(frame):
        if device.uuid == uuid or (uuid is None and host.name == node and device.index == index):
            return _device(frame, host, device, _held(frame))
    return None


def _held(frame: Frame) -> Held:
    held: Held = {}
    for lease in frame.state.leases.values():
        for device in lease.devices:
            held.setdefault(device.uuid, []).append((lease, device.share))
    return held


def _devices(frame: Frame) -> Iterator[tuple[Node, Device]]:
    for _, node in sorted(frame.state.nodes.items()):
        for device in node.devices:
            yield node, device


def _lines(frame: Frame, held: Held) -> dict[tuple[str, str], _Line]:
    policy = frame.state.policy
    lines: dict[tuple[str, str], _Line] = {}
    for node, device in _devices(frame):
        flavor = flavor_of(policy, node, device)
        if flavor is not None:
            line = lines.setdefault((group_of(policy, node), flavor), _Line())
            _count(frame, line, node, device, slot_capacity(policy, flavor), held)
    waiting = list(_blocked(frame))
    for (group, flavor), line in lines.items():
        _divide_free(frame, group, flavor, line, waiting)
    return lines


def _count(
    frame: Frame, line: _Line, node: Node, device: Device, capacity: int, held: Held
) -> None:
    here = held.get(device.uuid, ())
    taken = sum(share for _, share in here)
    line.total += capacity
    if device.health != "ok" or node.health != "ok":
        line.shares["out_of_service"] += capacity
        line.deficit += taken
        return
    for lease, share in here:
        line.shares[_use(frame, lease)] += share
    left = max(0, capacity - taken)
    if node.draining:
        line.shares["out_of_service"] += left
    elif device.uuid in frame.state.held:
        # Kept for a request that waits for the rest of its devices: nobody else may have it.
        line.shares["held_preparing"] += left
    else:
        line.shares["free"] += left


def _use(frame: Frame, lease: Lease) -> str:
    if lease.state in ("granted", "preparing"):
        return "held_preparing"
    verdict = frame.verdicts.get(lease.id)
    if lease.state == "frozen" or (verdict is not None and verdict["state"] in NOT_USED):
        return "held_not_used"
    return "in_use"


def _blocked(frame: Frame) -> Iterator[tuple[Request, str, str]]:
    """The first of each line that shape or quota keeps from free devices: category and code."""
    for bucket in frame.state.queue.values():
        if bucket.blocked is None or not bucket.entries:
            continue
        category = sentences.CATEGORY.get(bucket.blocked.code, "")
        # Fewer free than asked for is reported as in use; lying apart is a matter of shape.
        if category in ("shape", "quota"):
            yield frame.state.requests[bucket.entries[0][2]], category, bucket.blocked.code


def _divide_free(
    frame: Frame, group: str, flavor: str, line: _Line, waiting: list[tuple[Request, str, str]]
) -> None:
    """Move free amounts to the cause for which somebody cannot have them: quota, then shape."""
    for category, share in (("quota", "free_quota_blocked"), ("shape", "free_wrong_shape")):
        for request, why, code in waiting:
            if why != category or not _could_use(frame, request, group, flavor):
                continue
            part = min(line.shares["free"], request.ask.gpus)
            if part:
                line.shares["free"] -= part
                line.shares[share] += part
                line.behind.append(_cause(frame, request, share, code, part))


def _could_use(frame: Frame, request: Request, group: str, flavor: str) -> bool:
    cells = frame.state.policy.pools_for(request.class_)
    return any(
        frame.state.cell(pool, flavor).group == group
        for pool in cells
        if request.ask.pool in (None, pool)
    ) and request.ask.flavor in (None, flavor)


def _cause(frame: Frame, request: Request, share: str, code: str, part: int) -> dict[str, Any]:
    return {
        "share": share,
        "code": code,
        "gpus": show_gpus(part),
        "tenant": request.tenant,
        "request": request.id if frame.sees(request) else None,
    }


def _pool(frame: Frame, name: str, lines: dict[tuple[str, str], _Line]) -> dict[str, Any]:
    policy = frame.state.policy
    pool = policy.pools[name]
    group = name if pool.nodes else ""
    mine = {flavor: line for (where, flavor), line in lines.items() if where == group}
    whole = _Line()
    for line in mine.values():
        whole.add(line)
    return {
        "name": name,
        "classes": list(pool.classes),
        "nodes": dict(pool.nodes),
        **{key: value for key, value in whole.view().items() if key != "behind"},
        "flavors": [{"flavor": flavor, **mine[flavor].view()} for flavor in _order(frame, mine)],
    }


def _order(frame: Frame, names: Iterable[str]) -> list[str]:
    known = set(names)
    return [name for name in frame.state.policy.flavors if name in known]


def _flavor(frame: Frame, name: str, line: _Line) -> dict[str, Any]:
    flavor = frame.state.policy.flavors[name]
    sharing = flavor.sharing
    return {
        "flavor": name,
        "name": sentences.flavor_name(name),
        "memory": None if flavor.memory is None else show_memory(flavor.memory),
        "share": 1 if sharing is None else show_gpus(sharing.share),
        "sharing": None if sharing is None else sharing.mode,
        "offered": line.total > 0,
        **line.view(),
    }


def _node(frame: Frame, node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "pool": group_of(frame.state.policy, node) or None,
        "health": node.health,
        "draining": node.draining,
        "taints": list(node.taints),
        "driver": node.driver,
        "detail": node.detail or None,
        "devices": len(node.devices),
    }


def _device(frame: Frame, node: Node, device: Device, held: Held) -> dict[str, Any]:
    policy = frame.state.policy
    flavor = flavor_of(policy, node, device)
    capacity = 1000 if flavor is None else slot_capacity(policy, flavor)
    here = held.get(device.uuid, [])
    taken = sum(share for _, share in here)
    serves = device.health == "ok" and node.serves
    return {
        "node": node.name,
        "uuid": device.uuid,
        "index": device.index,
        "model": device.model,
        "memory": show_memory(device.memory),
        "flavor": flavor,
        "pool": group_of(policy, node) or None,
        "health": device.health if node.health == "ok" else node.health,
        "state": "in_use" if taken else "free" if serves else "out_of_service",
        "in_service": device.health == "ok" and node.health == "ok",
        "gpus": show_gpus(capacity),
        "used": show_gpus(taken),
        "free": show_gpus(max(0, capacity - taken) if serves else 0),
        "island": device.island,
        "mig_profile": device.mig_profile,
        "detail": device.detail or node.detail or None,
        "leases": [lease.id for lease, _ in here if frame.sees(lease)],
    }
