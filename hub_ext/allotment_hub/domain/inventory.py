"""What there is: nodes, their devices, health and topology."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from .amounts import MILLI
from .policy import Policy

Health = Literal["ok", "degraded", "lost", "dirty", "unknown"]
"""``ok`` serves; ``dirty`` is there but not back at its memory baseline; ``lost`` fell off the
bus; ``degraded`` answers with errors; ``unknown`` could not be read. Only ``ok`` is granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One schedulable device: a whole GPU or one MIG slice. ``uuid`` is its only identity.

    ``island`` numbers the NVLink island within the node, None where there is no NVLink.
    """

    uuid: str
    index: int
    model: str
    memory: int
    island: int | None = None
    health: Health = "ok"
    detail: str = ""
    since: int = 0
    mig_profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host with devices. ``cpus`` in milli-CPUs and ``memory`` in bytes; None is not limited."""

    name: str
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int | None = None
    memory: int | None = None
    driver: str | None = None
    taints: tuple[str, ...] = ()
    health: Literal["ok", "lost", "unknown"] = "ok"
    draining: bool = False
    detail: str = ""

    @property
    def serves(self) -> bool:
        """Whether new work may be put here at all."""
        return self.health == "ok" and not self.draining


@lru_cache(maxsize=1024)
def _pattern(model: str) -> re.Pattern[str]:
    return re.compile(model)


def flavors_of(policy: Policy, device: Device) -> tuple[str, ...]:
    """The flavors whose model expression and memory match a device, in the order of the file.

    The memory of a flavor is nominal: a device counts when it has at least 92 % of it, since
    drivers report less than the label on the box (an "80GB" card has 79.6 GiB, one of 24 GiB
    has 23.7 with ECC on).
    """
    return tuple(
        name
        for name, flavor in policy.flavors.items()
        if _pattern(flavor.model).search(device.model)
        and (flavor.memory is None or device.memory * 100 >= flavor.memory * 92)
    )


FLAVOR_LABEL = "allotment/flavor"
"""A node's label that says as which flavor its devices are offered, where several match."""

SHARED_GROUP = ""
"""The group of the nodes that no pool picks by label: all pools without labels share them."""


def group_of(policy: Policy, node: Node) -> str:
    """The pool that picks a node by its labels (the first in the file), else the shared group."""
    for name, pool in policy.pools.items():
        if pool.nodes and all(node.labels.get(key) == value for key, value in pool.nodes.items()):
            return name
    return SHARED_GROUP


def group_of_pool(policy: Policy, pool: str) -> str:
    """The group of nodes that a pool draws on: its own where it has labels, else the shared one."""
    return pool if policy.pools[pool].nodes else SHARED_GROUP


def flavor_of(policy: Policy, node: Node, device: Device) -> str | None:
    """The one flavor that a device is offered as.

    The node's label decides where several flavors describe one model (whole and shared); else
    the first that a quota in the group's pools names; else the first in the file.
    """
    matches = flavors_of(policy, device)
    if len(matches) < 2:
        return matches[0] if matches else None
    if node.labels.get(FLAVOR_LABEL) in matches:
        return node.labels[FLAVOR_LABEL]
    group = group_of(policy, node)
    wanted = {
        quota.flavor
        for tenant in policy.tenants.values()
        for quota in tenant.quotas
        if quota.pool in policy.pools and group_of_pool(policy, quota.pool) == group
    }
    return next((name for name in matches if name in wanted), matches[0])


def slot_capacity(policy: Policy, flavor: str) -> int:
    """Milli-GPUs that one device of a flavor holds: whole slots only.

    >>> from .policy import Flavor, Sharing
    >>> p = Policy(flavors={"s": Flavor(model="x", sharing=Sharing(mode="mps", share=300))})
    >>> slot_capacity(p, "s")
    900
    """
    sharing = policy.flavors[flavor].sharing
    if sharing is None:
        return MILLI
    if sharing.mode == "mig":
        return sharing.share
    return MILLI // sharing.share * sharing.share
