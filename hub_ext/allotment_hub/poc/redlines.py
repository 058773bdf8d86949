"""The three red lines: whatever else is shown, one of these crossed means no.

They are looked for in everything that was recorded, from the records and not from what the rules
say of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from allotment_hub.domain.leases import UNASSIGNED, Lease

from .observing import Told, explained
from .records import Records, cost_by_device, cost_by_tenant

LONGEST_SILENCE = 1000
"""Milliseconds that a request may wait without having been told anything."""


@dataclass(slots=True)
class RedLine:
    """One red line: what was looked at, and each place where it was crossed."""

    id: str
    title: str
    looked_at: str = ""
    crossed: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.crossed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The records of one item and what was told to those who waited in it."""

    item: str
    records: Records
    told: Sequence[Told]


def red_lines(everything: Sequence[Recorded]) -> tuple[RedLine, RedLine, RedLine]:
    """Look for all three in the records of all items."""
    return _explained(everything), _attributed(everything), _observable(everything)


def _explained(everything: Sequence[Recorded]) -> RedLine:
    line = RedLine("waits", "A wait that cannot be explained")
    waits = sentences = 0
    for one in everything:
        by_request: dict[str, list[Told]] = {}
        for told in one.told:
            by_request.setdefault(told.request, []).append(told)
            sentences += 1
            if not explained(told):
                what = told.code or "nothing"
                line.crossed.append(f"{one.item}: {told.request} was told {what!r}")
        for bar in one.records.waits:
            waits += 1
            known = by_request.get(bar.row, [])
            if bar.ends - bar.begins > LONGEST_SILENCE and not any(
                told.at <= bar.begins + LONGEST_SILENCE for told in known
            ):
                line.crossed.append(f"{one.item}: {bar.row} waited and was told nothing")
    line.looked_at = f"{waits} stretches of waiting and {sentences} explanations of them"
    return line


def _attributed(everything: Sequence[Recorded]) -> RedLine:
    line = RedLine("cost", "A cost that cannot be attributed to a team")
    leases = total = 0
    for one in everything:
        rows = list(one.records.leases.values())
        leases += len(rows)
        known = {name for version in one.records.versions for name in version.policy.tenants}
        by_tenant = cost_by_tenant(rows, one.records.ends)
        whole = cost_by_device(rows, one.records.ends)
        total += whole
        if sum(by_tenant.values()) != whole:
            line.crossed.append(f"{one.item}: teams and devices add up to different sums")
        line.crossed += [
            f"{one.item}: {name!r} is no team of the rules"
            for name in by_tenant
            if name not in known
        ]
        for lease in rows:
            line.crossed += [
                f"{one.item}: {lease.id} borrows from {lender!r}, which is no team"
                for lender, _ in lease.lenders
                if lender not in known and lender != UNASSIGNED
            ]
    hours = total / 3_600_000_000
    added = "added up by team and by device, to the millisecond"
    line.looked_at = f"{leases} leases, {hours:.2f} GPU-hours; {added}"
    return line


def _observable(everything: Sequence[Recorded]) -> RedLine:
    line = RedLine("rules", "A sharing rule that cannot be observed or rolled back")
    grants = changes = 0
    rolled_back = False
    for one in everything:
        versions = {version.number: version for version in one.records.versions}
        changes += len(versions) - 1
        newest = max(versions.values(), key=lambda version: version.number)
        rolled_back = rolled_back or any(
            version.number < newest.number - 1 and version.policy == newest.policy
            for version in versions.values()
        )
        for lease in one.records.leases.values():
            grants += 1
            if not _names_its_rule(lease, set(versions)):
                line.crossed.append(
                    f"{one.item}: {lease.id} names no rule, version or term it was granted under"
                )
        line.crossed += [
            f"{one.item}: version {version.number} of the rules names nobody"
            for version in versions.values()
            if not version.by
        ]
    if not rolled_back:
        line.crossed.append("no item has put earlier rules in force again")
    line.looked_at = f"{grants} grants and {changes} changes of the rules, one of them rolled back"
    return line


def _names_its_rule(lease: Lease, versions: set[int]) -> bool:
    borrowed = not lease.lenders or (lease.term > 0 and lease.interruptible != "no")
    return bool(lease.rule) and lease.policy_version in versions and borrowed
