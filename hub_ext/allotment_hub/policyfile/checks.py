"""What makes a policy contradict itself: every rule that takes more than one value to check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from allotment_hub.domain import amounts
from allotment_hub.domain.policy import Borrowing, Policy, ReclaimRule, Tenant, WorkClass

from .document import Document
from .names import name_fault, pattern_fault, principal_fault, text_fault
from .problems import Path, Problems, nearest, one_of, shown

MAX_PRIORITY = 1_000_000
"""Priorities lie between minus this and this; each ``age_step`` of waiting adds one point."""

MAX_COUNT = 1_000_000
MAX_RENEWALS = 10_000


def check(policy: Policy, document: Document, problems: Problems) -> None:
    """Add an error for everything in a policy that cannot be meant."""
    _flavors(policy, problems)
    _pools(policy, problems)
    for name, tenant in policy.tenants.items():
        _tenant(policy, tenant, ("tenants", name), document, problems)
    for name, work in policy.classes.items():
        _class(policy, work, ("classes", name), problems)
    _terms(policy.borrowing, ("borrowing",), problems)
    _reclaim(policy, problems)
    _positive(policy.ordering.age_step, ("ordering", "age_step"), problems)
    _positive(policy.ages.report, ("ages", "report"), problems)
    _positive(policy.ages.reading, ("ages", "reading"), problems)
    _names(policy, problems)  # last: an error about a name hides what is found below it later


def _fault(path: Path, fault: str | None, problems: Problems) -> None:
    if fault is not None:
        problems.error(path, fault)


def _names(policy: Policy, problems: Problems) -> None:
    sections: Mapping[str, Mapping[str, Any]] = {
        "flavors": policy.flavors,
        "pools": policy.pools,
        "tenants": policy.tenants,
        "classes": policy.classes,
    }
    for section, named in sections.items():
        for name in named:
            _fault((section, name), name_fault(name), problems)
    _fault(("currency",), text_fault(policy.currency, most=16), problems)
    _all(policy.admins, principal_fault, ("admins",), problems)
    if not policy.classes:
        problems.error(("classes",), "has no class; write one, or leave it out for 'notebook'")


def _all(
    texts: Iterable[str], fault: Callable[[str], str | None], path: Path, problems: Problems
) -> None:
    seen: set[str] = set()
    for at, text in enumerate(texts):
        found = fault(text)
        if found is None and text in seen:
            found = "is listed twice; keep one"
        if found is not None:
            problems.error((*path, at), f"{shown(text)} {found}")
        seen.add(text)


def _flavors(policy: Policy, problems: Problems) -> None:
    for name, flavor in policy.flavors.items():
        path: Path = ("flavors", name)
        fault = pattern_fault(flavor.model)
        if fault is not None:
            problems.error((*path, "model"), f"{shown(flavor.model)} {fault}")
        if flavor.memory == 0:
            problems.error((*path, "memory"), "is 0; write what the device has, or leave it out")
        if flavor.sharing is not None and not 0 < flavor.sharing.share <= amounts.MILLI:
            text = amounts.show_gpus(flavor.sharing.share)
            problems.error(
                (*path, "sharing", "share"),
                f"is {text}; write the part of a GPU that one slot is, above 0 and at most 1",
            )


def _pools(policy: Policy, problems: Problems) -> None:
    if not policy.pools:
        problems.error(("pools",), "has no pool; write one, or leave it out for 'default'")
    for name, pool in policy.pools.items():
        path: Path = ("pools", name)
        for label, value in pool.nodes.items():
            _fault((*path, "nodes", label), text_fault(label), problems)
            _fault((*path, "nodes", label), text_fault(value), problems)


def _known(
    name: str, section: str, named: Mapping[str, Any], path: Path, problems: Problems
) -> bool:
    """Report a reference to something that the policy does not have."""
    if name in named or problems.covers((section,)):
        return name in named
    meant = nearest(name, named)
    right = f"did you mean '{meant}'?" if meant else f"known: {one_of(named)}"
    problems.error(path, f"{shown(name)} is not one of the {section} of this policy; {right}")
    return False


def _positive(
    value: int | None, path: Path, problems: Problems, *, hint: str = "leave it out"
) -> None:
    if value == 0:
        problems.error(path, f"is 0, which has no meaning here; write 1s or more, or {hint}")


def _count(value: int | None, path: Path, problems: Problems, *, low: int = 0) -> None:
    if value is not None and not low <= value <= MAX_COUNT:
        right = f"write a whole number from {low} to {MAX_COUNT:,}"
        problems.error(path, f"is {shown(value)}; {right}")


def _tenant(
    policy: Policy, tenant: Tenant, path: Path, document: Document, problems: Problems
) -> None:
    _all(tenant.groups, text_fault, (*path, "groups"), problems)
    _all(tenant.owners, principal_fault, (*path, "owners"), problems)
    seen: dict[tuple[str, str], int] = {}
    for at, quota in enumerate(tenant.quotas):
        where: Path = (*path, "quotas", at)
        key = (quota.pool, quota.flavor)
        _quota(policy, tenant, at, where, document, problems)
        if key in seen and not problems.touches(where):
            problems.error(
                where,
                f"is the second quota for {shown(quota.flavor)} in pool {shown(quota.pool)}, "
                f"after quotas[{seen[key]}]; keep one",
            )
        seen.setdefault(key, at)
    _count(tenant.limits.queued_per_user, (*path, "limits", "queued_per_user"), problems)
    _terms(tenant.borrowing, (*path, "borrowing"), problems)


def _quota(
    policy: Policy, tenant: Tenant, at: int, path: Path, document: Document, problems: Problems
) -> None:
    quota = tenant.quotas[at]
    arithmetic = not problems.touches(path)
    _known(quota.flavor, "flavors", policy.flavors, (*path, "flavor"), problems)
    if len(policy.pools) > 1 and not document.has((*path, "pool")):
        right = f"there are several, write one of {one_of(policy.pools)}"
        problems.error((*path, "pool"), f"is missing; {right}")
    else:
        _known(quota.pool, "pools", policy.pools, (*path, "pool"), problems)
    if not arithmetic:
        return
    guarantee = amounts.show_gpus(quota.guarantee)
    if quota.ceiling is not None and quota.ceiling < quota.guarantee:
        problems.error(
            (*path, "ceiling"),
            f"is {amounts.show_gpus(quota.ceiling)}, below the guarantee of {guarantee}; "
            f"write {guarantee} or more, or lower the guarantee",
        )
    if quota.lend is not None and quota.lend > quota.guarantee:
        problems.error(
            (*path, "lend"),
            f"is {amounts.show_gpus(quota.lend)}, above the guarantee of {guarantee}; "
            f"only what is guaranteed can be lent, write {guarantee} or less",
        )


def _terms(terms: Borrowing, path: Path, problems: Problems) -> None:
    _positive(
        terms.term,
        (*path, "term"),
        problems,
        hint="'renewals: 0' for leases that cannot be renewed",
    )
    if terms.renewals is not None and not 0 <= terms.renewals <= MAX_RENEWALS:
        problems.error(
            (*path, "renewals"),
            f"is {shown(terms.renewals)}; write a whole number from 0 to {MAX_RENEWALS:,}",
        )


def _class(policy: Policy, work: WorkClass, path: Path, problems: Problems) -> None:
    if abs(work.priority) > MAX_PRIORITY:
        right = f"write a whole number from -{MAX_PRIORITY:,} to {MAX_PRIORITY:,}"
        problems.error((*path, "priority"), f"is {shown(work.priority)}; {right}")
    _positive(work.duration.default, (*path, "duration", "default"), problems)
    _positive(work.duration.max, (*path, "duration", "max"), problems)
    if work.duration.default > work.duration.max and not problems.touches((*path, "duration")):
        longest = amounts.show_duration(work.duration.max)
        problems.error(
            (*path, "duration"),
            f"has a default of {amounts.show_duration(work.duration.default)} above its max of "
            f"{longest}; write a default of at most {longest} or a larger max",
        )
    _positive(work.claim_window, (*path, "claim_window"), problems)
    _positive(work.prepare_within, (*path, "prepare_within"), problems)
    _positive(work.parked_for, (*path, "parked_for"), problems)
    _positive(work.max_wait, (*path, "max_wait"), problems, hint="'off' for no bound")
    _terms(work.borrowing, (*path, "borrowing"), problems)
    if work.objective is not None:
        _positive(work.objective.start_within, (*path, "objective", "start_within"), problems,
                  hint="'objective: off'")  # fmt: skip
        if not 0 < work.objective.share <= 1:  # also refuses NaN
            problems.error(
                (*path, "objective", "share"),
                f"is {work.objective.share}; write a part of the requests above 0 and at most 1",
            )
    if work.approval is not None:
        _approval(work, (*path, "approval"), problems)
    _preempts(policy, work, path, problems)


def _approval(work: WorkClass, path: Path, problems: Problems) -> None:
    approval = work.approval
    if approval is None:
        return
    if not approval.by:
        problems.error((*path, "by"), 'names nobody; write a list such as ["group:gpu-admins"]')
    _all(approval.by, principal_fault, (*path, "by"), problems)
    _positive(approval.valid_for, (*path, "valid_for"), problems)
    _count(approval.running_at_once, (*path, "running_at_once"), problems, low=1)


def _preempts(policy: Policy, work: WorkClass, path: Path, problems: Problems) -> None:
    for at, name in enumerate(work.preempts):
        where: Path = (*path, "preempts", at)
        known = _known(name, "classes", policy.classes, where, problems)
        if known and policy.classes[name].priority >= work.priority:
            problems.error(
                where,
                f"{shown(name)} has priority {policy.classes[name].priority}, not below "
                f"{work.priority}; only classes of lower priority can be preempted",
            )


def _reclaim(policy: Policy, problems: Problems) -> None:
    if not policy.reclaim:
        problems.error(("reclaim",), "has no rule; write one without 'when', or leave it out")
    for at, rule in enumerate(policy.reclaim):
        _rule(policy, rule, ("reclaim", at), problems)
    last = len(policy.reclaim) - 1
    if policy.reclaim and policy.reclaim[last].when != type(policy.reclaim[last].when)():
        problems.error(
            ("reclaim", last, "when"),
            "stands in the last rule, which is for the rest; add a rule without 'when' after it",
        )


def _rule(policy: Policy, rule: ReclaimRule, path: Path, problems: Problems) -> None:
    for key in ("idle_after", "unused_after"):
        _positive(getattr(rule, key), (*path, key), problems, hint="'off' to switch it off")
    _count(rule.keep.times, (*path, "keep", "times"), problems)
    _positive(rule.keep.for_, (*path, "keep", "for"), problems, hint="'times: 0' for no keeping")
    when = rule.when
    sections: tuple[tuple[str, str | None, str, Mapping[str, Any]], ...] = (
        ("class", when.class_, "classes", policy.classes),
        ("flavor", when.flavor, "flavors", policy.flavors),
        ("tenant", when.tenant, "tenants", policy.tenants),
    )
    for key, name, section, named in sections:
        if name is not None:
            _known(name, section, named, (*path, "when", key), problems)
    if when.user is not None:
        _fault((*path, "when", "user"), text_fault(when.user), problems)
