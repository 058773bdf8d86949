"""What is asked of the pool as a whole: policy, nodes, devices, switches, exemptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .events import Grant, NodeRecord, PolicyVersion, Switch
from .inventory import Health, Node
from .policy import Policy
from .records import replace
from .shapes import Refusal
from .state import State


def set_policy(state: State, now: int, policy: Policy, by: str, note: str = "") -> PolicyVersion:
    """Put a policy in force, whole. Running leases keep what they were granted under."""
    version = PolicyVersion(
        number=state.version.number + 1, policy=policy, by=by, at=now, note=note
    )
    state.emit(now, "policy.applied", version, by, note)
    return version


def set_nodes(state: State, now: int, nodes: Iterable[Node]) -> None:
    """Take over an inventory: changed nodes are replaced, absent ones are gone."""
    fresh = {node.name: node for node in nodes}
    for name in sorted(set(state.nodes) - set(fresh)):
        state.emit(now, "node.gone", NodeRecord(node=state.nodes[name], gone=True), "inventory")
    for name in sorted(fresh):
        old = state.nodes.get(name)
        new = replace(fresh[name], draining=old.draining) if old is not None else fresh[name]
        if old != new:
            what = "node.changed" if old is not None else "node.added"
            state.emit(now, what, NodeRecord(node=new), "inventory")


def set_node(state: State, now: int, name: str, actor: str = "inventory", **changes: Any) -> None:
    """Change what is known of a node: ``health``, ``taints``, ``draining`` and so on."""
    node = state.nodes.get(name)
    if node is None:
        raise Refusal("NotFound", f"there is no node {name}", "node")
    changed = replace(node, **changes)
    if changed != node:
        state.emit(now, "node.changed", NodeRecord(node=changed), actor)


def set_device(state: State, now: int, uuid: str, health: Health, detail: str = "") -> None:
    """Change the health of a device. A device that is not ``ok`` is granted to nobody; the lease
    that holds it is left alone.
    """
    for node in state.nodes.values():
        for device in node.devices:
            if device.uuid == uuid:
                if (device.health, device.detail) == (health, detail):
                    return
                changed = replace(device, health=health, detail=detail, since=now)
                devices = tuple(changed if d.uuid == uuid else d for d in node.devices)
                record = NodeRecord(node=replace(node, devices=devices))
                state.emit(now, "device.changed", record, "inventory", f"{uuid} is {health}")
                return
    raise Refusal("NotFound", f"there is no device {uuid}", "device")


def drain(state: State, now: int, name: str, on: bool, by: str) -> None:
    """Put nothing new on a node (or again)."""
    set_node(state, now, name, by, draining=on)


def switch(state: State, now: int, name: str, on: bool, by: str, text: str = "") -> None:
    """Turn ``paused``, ``reconciling`` or ``unreachable`` on or off for the whole pool."""
    if state.on(name) != on:
        known = Switch(name=name, on=on, text=text, since=now)
        state.emit(now, f"switch.{name}", known, by, text)


def exempt(
    state: State, now: int, subject: str, by: str, reason: str, ends_at: int, id: str
) -> Grant:
    """Except a lease, a user or a class from reclaim, with a reason and an end."""
    if not reason.strip():
        raise Refusal("ReasonMissing", "an exemption needs a reason", "reason")
    if ends_at <= now:
        raise Refusal("EndMissing", "an exemption needs an end that lies ahead", "ends_at")
    grant = Grant(
        id=id,
        kind="exemption",
        subject=subject,
        by=by,
        reason=reason,
        starts_at=now,
        ends_at=ends_at,
    )
    state.emit(now, "exemption.given", grant, by, reason)
    return grant
