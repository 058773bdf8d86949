"""When something has to be looked at in the life of a lease, and when it is gone at the latest."""

from __future__ import annotations

from .leases import Lease
from .policy import Policy


def ends_anyway(lease: Lease) -> bool:
    """Whether a lease is on its way out already."""
    return lease.state in ("noticed", "frozen", "stopping")


def counts_alike(old: Lease, new: Lease) -> bool:
    """Whether a change of a lease is none to any of the counters."""
    return (
        old.lenders == new.lenders
        and ends_anyway(old) == ends_anyway(new)
        and (old.gpus, old.tenant, old.user, old.class_)
        == (new.gpus, new.tenant, new.user, new.class_)
    )


def lease_due(lease: Lease) -> int | None:
    """When the governor has to look at a lease again; None while nothing is due."""
    if lease.state == "granted":
        return lease.held_until if lease.held_until is not None else lease.term_ends_at
    if lease.state == "preparing":
        return lease.term_ends_at
    if lease.state == "active":
        return lease.term_ends_at - lease_notice(lease)
    if lease.state in ("noticed", "frozen") and lease.reclaim is not None:
        return min(lease.reclaim.step_ends_at, lease.term_ends_at)
    return None


def gone_by(policy: Policy, lease: Lease, now: int) -> int:
    """When the devices of a lease are free at the latest if nobody renews it."""
    if lease.state == "stopping" and lease.reclaim is not None:
        return max(now, lease.reclaim.step_ends_at)
    if lease.state in ("noticed", "frozen") and lease.reclaim is not None:
        return min(lease.reclaim.step_ends_at, lease.term_ends_at) + lease.stop_grace
    if lease.active_at is not None:
        return max(now, lease.term_ends_at) + lease.stop_grace
    class_ = policy.classes.get(lease.class_)
    prepare = class_.prepare_within if class_ is not None and lease.state == "granted" else 0
    return max(now, lease.term_ends_at) + prepare + lease.term + lease.stop_grace


def lease_notice(lease: Lease) -> int:
    """How long before the end of its term a lease is noticed: its notice, at most half the term."""
    return min(lease.notice, lease.term // 2)
