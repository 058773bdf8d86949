"""Whether the guarantees of a policy fit what an inventory has."""

from __future__ import annotations

from collections.abc import Iterable

from allotment_hub.domain.amounts import show_gpus
from allotment_hub.domain.inventory import (
    SHARED_GROUP,
    Node,
    flavor_of,
    group_of,
    group_of_pool,
    slot_capacity,
)
from allotment_hub.domain.policy import Policy

from .problems import Path, Problems, shown

_Share = tuple[str, int, Path]
"""Tenant, milli-GPUs guaranteed, and the path of the quota that says so."""


def capacity_of(policy: Policy, nodes: Iterable[Node]) -> dict[tuple[str, str], int]:
    """Milli-GPUs of each group of nodes and flavor, whatever their present health.

    A group is a pool that picks its nodes by label, or the shared one of all other pools.
    """
    total: dict[tuple[str, str], int] = {}
    for node in nodes:
        for device in node.devices:
            flavor = flavor_of(policy, node, device)
            if flavor is not None:
                key = (group_of(policy, node), flavor)
                total[key] = total.get(key, 0) + slot_capacity(policy, flavor)
    return total


def check_capacity(policy: Policy, nodes: Iterable[Node], problems: Problems) -> None:
    """Compare the sum of the guarantees with the inventory.

    More guarantees than devices is an error, or a warning where the policy says ``overcommit:
    true``. A quota for a flavor that its pool has no device of is a warning. Pools that share
    nodes are counted together.
    """
    capacity = capacity_of(policy, nodes)
    for (group, flavor), quotas in _by_group(policy).items():
        has = capacity.get((group, flavor), 0)
        where = (
            f"in pool {shown(group)}" if group != SHARED_GROUP else "in the pools without labels"
        )
        if len(policy.pools) == 1:
            where = "here"
        total = sum(guarantee for _, guarantee, _ in quotas)
        if total > has:
            who = ", ".join(f"{name} {show_gpus(part)}" for name, part, _ in quotas if part)
            text = (
                f"guarantees of {shown(flavor)} {where} add up to {show_gpus(total)} "
                f"({who}), but the inventory has {show_gpus(has)}; lower them"
            )
            path = (*_passing(quotas, has), "guarantee")
            if policy.overcommit:
                problems.warn(path, f"{text} (allowed by 'overcommit: true')")
            else:
                problems.error(path, f"{text}, or write 'overcommit: true'")
        elif has == 0:
            problems.warn(quotas[0][2], f"the inventory has no {shown(flavor)} {where}")


def _by_group(policy: Policy) -> dict[tuple[str, str], list[_Share]]:
    given: dict[tuple[str, str], list[_Share]] = {}
    for name, tenant in policy.tenants.items():
        for at, quota in enumerate(tenant.quotas):
            path: Path = ("tenants", name, "quotas", at)
            key = (group_of_pool(policy, quota.pool), quota.flavor)
            given.setdefault(key, []).append((name, quota.guarantee, path))
    return given


def _passing(quotas: list[_Share], has: int) -> Path:
    """The quota with which the sum passes what there is."""
    total = 0
    for _, guarantee, path in quotas:
        total += guarantee
        if total > has:
            return path
    return quotas[-1][2]
