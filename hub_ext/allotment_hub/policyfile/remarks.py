"""What a policy probably does not mean, and how values were read that could be read in two ways."""

from __future__ import annotations

from allotment_hub.domain import amounts
from allotment_hub.domain.policy import Policy, Tenant, WorkClass

from .document import Document
from .problems import Path, Problems, nearest, one_of, shown

REPORT_INTERVAL = 60 * amounts.SECOND
"""How often a user's server reports activity, in milliseconds."""

MISSED_REPORTS = 3
"""Shortest ``idle_after`` in report intervals: one lost report must never lead to a flag."""


def remark(policy: Policy, document: Document, problems: Problems) -> None:
    """Add warnings and notes about a policy without errors."""
    for name, tenant in policy.tenants.items():
        _tenant(tenant, ("tenants", name), document, problems)
    for name, work in policy.classes.items():
        _class(policy, name, work, problems)
    _pools(policy, problems)
    _reclaim(policy, problems)
    _alike(policy, problems)
    if policy.tenants and not policy.flavors:
        problems.warn(("flavors",), "there are none, so that no GPU can be asked for")
    _interpret_terms(policy, document, problems)


def _tenant(tenant: Tenant, path: Path, document: Document, problems: Problems) -> None:
    if not tenant.groups and not tenant.disabled:
        problems.warn(path, "has no groups, so that nobody can belong to it")
    if not tenant.quotas and not tenant.disabled:
        problems.warn(path, "has no quotas, so that each of its requests will be refused")
    for at, quota in enumerate(tenant.quotas):
        where: Path = (*path, "quotas", at)
        texts = {
            "guarantee": "guarantees no GPU",
            "lend": "lends nothing to others",
            "ceiling": "allows no GPU at all (it does not mean unlimited)",
        }
        for key, text in texts.items():
            if getattr(quota, key) == 0 and document.has((*where, key)):
                problems.note((*where, key), f"is 0: {text}")
        if quota.ceiling == amounts.UNLIMITED:
            problems.note((*where, "ceiling"), "is unlimited: up to all that the pool has")
    limits = tenant.limits
    if limits.gpus_per_user == 0:
        problems.warn((*path, "limits", "gpus_per_user"), "is 0: no user gets a GPU; "
                      "write 'unlimited' for no cap")  # fmt: skip
    if limits.queued_per_user == 0:
        problems.warn((*path, "limits", "queued_per_user"), "is 0: nobody may wait in the queue; "
                      "write 'unlimited' for no cap")  # fmt: skip
    if tenant.budget is not None and tenant.budget.gpu_hours == 0:
        problems.note((*path, "budget", "gpu_hours"), "is 0: spent from the start; "
                      "write 'budget: off' for no budget")  # fmt: skip


def _class(policy: Policy, name: str, work: WorkClass, problems: Problems) -> None:
    path: Path = ("classes", name)
    if not policy.pools_for(name):
        problems.warn(path, "is taken by no pool, so that its requests will be refused")
    if work.borrow == "surplus" and work.kind != "service":
        problems.warn(
            (*path, "borrow"), "is surplus, which only a service has: nothing is borrowed"
        )
    if work.borrow is True and work.interruptible == "no":
        problems.warn(
            (*path, "borrow"),
            "is true, but work that cannot be interrupted never borrows beyond the guarantee",
        )
    if work.claim_window < MISSED_REPORTS * amounts.SECOND * 10:
        text = amounts.show_duration(work.claim_window)
        problems.warn((*path, "claim_window"), f"is {text}, hardly enough to notice one's turn")


def _pools(policy: Policy, problems: Problems) -> None:
    """Remark on classes that a pool lists and nobody defines.

    No error: a pool may be prepared for kinds of work that come later.
    """
    for name, pool in policy.pools.items():
        for at, class_ in enumerate(pool.classes):
            if class_ not in policy.classes:
                meant = nearest(class_, policy.classes)
                right = f"did you mean '{meant}'?" if meant else f"known: {one_of(policy.classes)}"
                text = f"{shown(class_)} is not one of the classes of this policy; {right}"
                problems.warn(("pools", name, "classes", at), text)


def _reclaim(policy: Policy, problems: Problems) -> None:
    least = MISSED_REPORTS * REPORT_INTERVAL
    for at, rule in enumerate(policy.reclaim):
        path: Path = ("reclaim", at)
        for key in ("idle_after", "unused_after"):
            value = getattr(rule, key)
            if value is not None and value < least:
                problems.warn(
                    (*path, key),
                    f"is {amounts.show_duration(value)}, shorter than {MISSED_REPORTS} report "
                    f"intervals; write {amounts.show_duration(least)} or more, else a lost report "
                    "looks like idleness",
                )
        if rule.notice == 0:
            problems.note((*path, "notice"), "is 0: taken back without notice")
        if rule.stop_grace == 0:
            problems.note((*path, "stop_grace"), "is 0: stopped without time to save")
        if rule.when == type(rule.when)() and at < len(policy.reclaim) - 1:
            problems.warn(path, "has no 'when', so that no later rule is ever reached")


def _alike(policy: Policy, problems: Problems) -> None:
    for section in ("flavors", "pools", "tenants", "classes"):
        seen: dict[str, str] = {}
        for name in getattr(policy, section):
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                problems.warn((section, name), f"differs from {shown(other)} only in upper case")
    claimed: dict[str, str] = {}
    for name, tenant in policy.tenants.items():
        for at, group in enumerate(tenant.groups):
            other = claimed.setdefault(group, name)
            if other != name:
                text = f"{shown(group)} also belongs to {shown(other)}: its members choose"
                problems.note(("tenants", name, "groups", at), text)


def _interpret_terms(policy: Policy, document: Document, problems: Problems) -> None:
    texts = {
        "renewals": "borrowed leases cannot be renewed",
        "notice": "borrowed leases are asked back without notice",
        "protected": "borrowed leases can be asked back from their start",
    }
    levels: list[tuple[Path, object]] = [(("borrowing",), policy.borrowing)]
    levels += [(("tenants", n, "borrowing"), t.borrowing) for n, t in policy.tenants.items()]
    levels += [(("classes", n, "borrowing"), c.borrowing) for n, c in policy.classes.items()]
    for path, terms in levels:
        for key, text in texts.items():
            if getattr(terms, key) == 0 and document.has((*path, key)):
                problems.note((*path, key), f"is 0: {text}")
