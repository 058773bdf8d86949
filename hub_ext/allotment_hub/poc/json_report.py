"""The report as plain data. Times are seconds from the start of each item."""

from __future__ import annotations

from typing import Any

from allotment_hub.domain.amounts import show_gpus
from allotment_hub.domain.events import Event

from .records import Records, subject
from .running import Result, Verdict
from .words import asked, saying


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Everything that the page shows."""
    passed, whole = verdict.score
    return {
        "ok": verdict.ok,
        "score": {"passed": passed, "of": whole},
        "counts": {
            status: verdict.count(status)
            for status in ("passed", "failed", "not yet", "not needed", "not run")
        },
        "red_lines": [
            {
                "id": line.id, "title": line.title, "holds": line.holds,
                "looked_at": line.looked_at, "crossed": line.crossed,
            }
            for line in verdict.lines
        ],
        "items": [_item(result) for result in verdict.results],
    }  # fmt: skip


def _item(result: Result) -> dict[str, Any]:
    item = result.item
    shown: dict[str, Any] = {
        "id": item.id, "part": item.part, "title": item.title, "mark": item.mark,
        "weight": item.weight, "status": result.status, "input": item.input,
        "expected": item.expected, "fails_when": item.fails_when, "not_yet": item.not_yet or None,
        "repeat": _repeat(item.scenario),
        "failures": result.failures,
    }  # fmt: skip
    if result.records is not None:
        shown["checks"] = result.outcome.checks if result.outcome is not None else 0
        shown["records"] = _records(result, result.records)
    if result.looks:
        shown["looks"] = [
            {"user": look.user, "question": look.question, "ok": look.ok, "found": look.found}
            for look in result.looks
        ]
    return shown


def _repeat(scenario: str | None) -> str | None:
    return None if scenario is None else f"allotment-hub scenario scenarios/{scenario}.yaml"


def _records(result: Result, records: Records) -> dict[str, Any]:
    base = records.begins
    return {
        "requests": [_request(records, name) for name in records.requests],
        "waits": [
            {
                "request": bar.row, "from_s": (bar.begins - base) / 1000,
                "to_s": (bar.ends - base) / 1000, "code": bar.kind,
            }
            for bar in records.waits
        ],
        "told": [
            {
                "at_s": (told.at - base) / 1000, "request": told.request, "code": told.code,
                "text": told.text, "rule": told.rule, "position": told.position,
            }
            for told in result.told
        ],
        "quota_changes": [
            {
                "at_s": (row.at - base) / 1000, "tenant": row.tenant, "pool": row.pool,
                "flavor": row.flavor, "by": row.what, "before": _use(row.before),
                "after": _use(row.after),
            }
            for row in records.quotas
        ],
        "decisions": [_event(event, base) for event in records.decisions],
        "human_acts": [_event(event, base) for event in records.human],
    }  # fmt: skip


def _use(amounts: tuple[int, int, int]) -> dict[str, float]:
    own, borrowed, lent = amounts
    return {"own": show_gpus(own), "borrowed": show_gpus(borrowed), "lent": show_gpus(lent)}


def _request(records: Records, name: str) -> dict[str, Any]:
    request = records.requests[name]
    leases = [lease for lease in records.leases.values() if lease.request == name]
    waits = [bar for bar in records.waits if bar.row == name]
    return {
        "id": name,
        "user": request.user,
        "tenant": request.tenant,
        "class": request.class_,
        "queue": f"{leases[-1].pool}/{leases[-1].flavor}" if leases else request.ask.flavor,
        "asked": asked(request.ask),
        "asked_at_s": (request.asked_at - records.begins) / 1000,
        "waited_s": sum(bar.ends - bar.begins for bar in waits) / 1000,
        "state": request.state,
        "leases": [
            {
                "id": lease.id, "rule": lease.rule, "policy_version": lease.policy_version,
                "borrowed_at_grant": lease.borrowed_at_grant,
                "lenders": {who: show_gpus(amount) for who, amount in lease.lenders},
                "devices": [f"{device.node}/{device.index}" for device in lease.devices],
                "end": lease.end_reason or None,
            }
            for lease in leases
        ],
    }  # fmt: skip


def _event(event: Event, base: int) -> dict[str, Any]:
    return {
        "at_s": (event.at - base) / 1000, "what": event.what, "subject": subject(event),
        "actor": event.actor, "why": event.why, "text": saying(event),
    }  # fmt: skip
