"""Lines: queued requests that are alike in all that admission looks at."""

from __future__ import annotations

from .cells import CellKey
from .policy import Policy
from .requests import Reason, Request


class Bucket:
    """Queued requests that are alike in all that admission looks at: one line, first come first.

    Because they are alike, only the first can be granted next, and what blocks it blocks all.
    """

    __slots__ = ("blocked", "cells", "entries", "key", "owed", "retry", "sample", "short", "stocks")

    def __init__(self, key: tuple[object, ...], sample: Request) -> None:
        self.key = key
        self.sample = sample
        self.entries: list[tuple[int, int, str]] = []
        self.cells: tuple[CellKey, ...] = ()
        self.stocks: tuple[tuple[str, str], ...] = ()
        self.blocked: Reason | None = None
        self.owed = False
        self.short = False
        self.retry: tuple[int, int] | None = None

    def copy(self) -> Bucket:
        other = Bucket(self.key, self.sample)
        other.entries = self.entries.copy()
        other.cells, other.stocks = self.cells, self.stocks
        other.blocked, other.owed, other.retry = self.blocked, self.owed, self.retry
        other.short = self.short
        return other


def bucket_key(policy: Policy, request: Request) -> tuple[object, ...]:
    """All that admission looks at in a request, and nothing else: requests with the same key are
    one line. The user counts only where the tenant limits users, the request itself only where
    its class needs an approval of its own or it waits for a server to be gone.
    """
    ask = request.ask
    # Backfilling asks how long something runs: durations within a factor of two are alike.
    length = None if ask.duration is None else (ask.duration // 60_000).bit_length()
    tenant = policy.tenants.get(request.tenant)
    by_user = tenant is not None and tenant.limits.gpus_per_user is not None
    class_ = policy.classes.get(request.class_)
    single = request.waits_for is not None or (class_ is not None and class_.approval is not None)
    return (
        request.tenant, request.class_, request.kind, ask.flavor, ask.pool, ask.gpus, ask.devices,
        ask.nodes, ask.same_node, ask.nvlink, ask.min_memory, ask.min_driver, ask.cpus, ask.memory,
        ask.tolerations, ask.borrow, ask.interruptible,
        length,
        request.user if by_user else None, request.id if single else None,
    )  # fmt: skip


def candidate_cells(policy: Policy, request: Request) -> tuple[CellKey, ...]:
    """Where a request may be placed, in the order of the policy: pools that its class may use,
    flavors that it asks for and its tenant has a quota of.
    """
    tenant = policy.tenants.get(request.tenant)
    if tenant is None or tenant.disabled:
        return ()
    pools = set(policy.pools_for(request.class_))
    ask = request.ask
    return tuple(
        (quota.pool, quota.flavor)
        for quota in tenant.quotas
        if quota.pool in pools
        and quota.flavor in policy.flavors
        and ask.pool in (None, quota.pool)
        and ask.flavor in (None, quota.flavor)
        and quota.most > 0
    )
