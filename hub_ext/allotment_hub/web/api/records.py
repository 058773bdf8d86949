"""What has been: use, waits, decisions and the audit, as JSON or CSV.

Each reader gets what is its own: a user its rows, an owner those of its tenants, an admin all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...clock import parse_time, show_time
from ...domain.leases import Lease
from ...domain.requests import Request
from ...ledger import EventFilter, LeaseFilter, StoredEvent
from ..answers import AuditView, DecisionsView, UsageView, WaitsView
from ..look import find_lease, lease_shown
from ..problems import Fault, bad_input
from ..routes import Answer, Call, route
from ..schema import HistoryQuery, SpanQuery

GPU_HOUR = 1000 * 3_600_000
MOST_ROWS = 10_000
DECISIONS = (
    "request.granted", "request.rejected", "request.waiting", "request.parked", "request.expired",
    "lease.granted", "lease.noticed", "lease.stopping", "lease.released", "lease.guaranteed",
    "lease.loan_moved", "lease.loan_reduced",
)  # fmt: skip


def span(call: Call) -> tuple[int | None, int | None]:
    """``since`` and ``until`` as UTC milliseconds."""
    return _time("since", call.query.since), _time("until", call.query.until)


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError as error:
        raise bad_input([Fault(name, str(error))]) from None


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "usage": (
        "tenant", "user", "class", "pool", "flavor", "gpu_hours", "borrowed_gpu_hours",
        "milli_gpu_ms", "leases", "cost",
    ),
    "waits": ("tenant", "class", "granted", "mean_s", "p50_s", "p95_s", "p99_s", "max_s"),
    "decisions": (
        "seq", "at", "what", "subject", "tenant", "user", "actor", "why", "request", "lease",
        "rule", "policy_version",
    ),
    "audit": ("seq", "at", "what", "subject", "tenant", "user", "actor", "why", "hash"),
}  # fmt: skip
"""The header of a table stands there without a row as well."""


def answer(call: Call, key: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> Answer:
    """The rows in the format that was asked for."""
    if call.query.format == "json":
        return Answer({key: list(rows), **more})
    text = io.StringIO()
    columns = list(dict.fromkeys((*COLUMNS.get(key, ()), *(name for row in rows for name in row))))
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return Answer(
        raw=text.getvalue().encode(), content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{key}.csv"'},
    )  # fmt: skip


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return (
        f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _number(text) else text
    )


def _number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


async def _leases(call: Call) -> list[Lease]:
    """Leases that overlap the span, as far as the asker may see them."""
    query: SpanQuery = call.query
    since, until = span(call)
    wide = call.viewer.admin or bool(call.viewer.owns)
    chosen = LeaseFilter(
        tenant=query.tenant,
        user=query.user if wide else call.who.name,
        since=None if since is None else call.site.steady(since),
        until=None if until is None else call.site.steady(until),
    )
    rows = await call.site.service.query(
        lambda ledger: ledger.query_leases(chosen, limit=MOST_ROWS, newest_first=True)
    )
    return [row for row in rows if call.viewer.sees_row(row)]


def _overlap(lease: Lease, since: int | None, until: int) -> int:
    """Milliseconds that a lease held its devices within the span."""
    begins = lease.granted_at if since is None else max(lease.granted_at, since)
    ends = until if lease.released_at is None else min(lease.released_at, until)
    return max(0, ends - begins)


@route("GET", "/usage", who="user", query=SpanQuery, answer=UsageView)
async def usage(call: Call) -> Answer:
    """GPU-hours by tenant, user, class and flavor: by allocation, exact to the millisecond."""
    since, until = span(call)
    first = None if since is None else call.site.steady(since)
    last = min(call.now, call.now if until is None else call.site.steady(until))
    totals: dict[tuple[str, str, str, str, str], list[int]] = {}
    policy = call.governor.state.policy
    for lease in await _leases(call):
        key = (lease.tenant, lease.user, lease.class_, lease.pool, lease.flavor)
        total = totals.setdefault(key, [0, 0, 0])
        held = lease.gpus * _overlap(lease, first, last)
        total[0] += held
        total[1] += _borrowed(lease) * _overlap(lease, first, last)
        total[2] += 1
    rows = [
        {
            "tenant": tenant, "user": user, "class": class_, "pool": pool, "flavor": flavor,
            "gpu_hours": round(held / GPU_HOUR, 6),
            "borrowed_gpu_hours": round(borrowed / GPU_HOUR, 6),
            "milli_gpu_ms": held, "leases": count,
            "cost": round(held / GPU_HOUR * _rate(policy, flavor), 6),
        }
        for (tenant, user, class_, pool, flavor), (held, borrowed, count) in sorted(totals.items())
    ]  # fmt: skip
    return answer(
        call, "usage", rows, currency=policy.currency,
        until=call.site.wall(last), since=None if first is None else call.site.wall(first),
    )  # fmt: skip


def _borrowed(lease: Lease) -> int:
    """The part of a lease that is borrowed, in milli-GPUs; all of one that was, and is no more."""
    if not lease.borrowed_at_grant:
        return 0
    return lease.borrowed or lease.gpus


def _rate(policy: Any, flavor: str) -> float:
    known = policy.flavors.get(flavor)
    return 0.0 if known is None else float(known.rate) / 1_000_000


@route("GET", "/waits", who="user", query=SpanQuery, answer=WaitsView)
async def waits(call: Call) -> Answer:
    """How long requests waited for their first grant: by tenant and class, with percentiles."""
    rows = await _events(call, ("request.granted",))
    by_key: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        request: Any = row.decoded()
        if request.grants > 1:  # one that came back into the line has run in between
            continue
        wait_s = max(0, row.at - request.asked_at) / 1000
        by_key.setdefault((row.tenant, request.class_), []).append(wait_s)
    shown = [
        {
            "tenant": tenant, "class": class_, "granted": len(found),
            "mean_s": round(sum(found) / len(found), 3), "p50_s": percentile(found, 50),
            "p95_s": percentile(found, 95), "p99_s": percentile(found, 99), "max_s": max(found),
        }
        for (tenant, class_), found in sorted(by_key.items())
    ]  # fmt: skip
    return answer(call, "waits", shown)


def percentile(values: Iterable[float], percent: int) -> float:
    """The nearest-rank percentile.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50), percentile([1.0], 99)
    (2.0, 1.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


async def _events(
    call: Call, what: tuple[str, ...], subject: str | None = None, after: int | None = None
) -> list[StoredEvent]:
    query: SpanQuery = call.query
    since, until = span(call)
    wide = call.viewer.admin or bool(call.viewer.owns)
    chosen = EventFilter(
        what=what, subject=subject, tenant=query.tenant,
        user=query.user if wide else call.who.name, since=since, until=until,
    )  # fmt: skip
    rows = await call.site.service.query(
        lambda ledger: ledger.query_events(
            chosen, limit=query.limit, after=after, newest_first=after is None
        )
    )
    return [row for row in rows if call.viewer.sees(row.user, row.tenant or None)]


def _event_shown(row: StoredEvent) -> dict[str, Any]:
    return {
        "seq": row.seq, "at": show_time(row.wall), "what": row.what, "subject": row.subject,
        "tenant": row.tenant or None, "user": row.user or None, "actor": row.actor, "why": row.why,
    }  # fmt: skip


def _decided(row: StoredEvent) -> dict[str, Any]:
    """Of which request and lease, by which rule of which version of the policy."""
    record = row.decoded()
    if isinstance(record, Lease):
        return {
            "request": record.request, "lease": record.id, "rule": record.rule,
            "policy_version": record.policy_version,
        }  # fmt: skip
    known = isinstance(record, Request)
    rules = [reason.rule for reason in record.reasons] if isinstance(record, Request) else []
    lease = record.lease if isinstance(record, Request) else None
    return {
        "request": row.subject if known else None, "lease": lease,
        "rule": rules[0] if rules else None, "policy_version": None,
    }  # fmt: skip


@route("GET", "/decisions", who="user", query=HistoryQuery, answer=DecisionsView)
async def decisions(call: Call) -> Answer:
    """What was decided, with the rule that was hit."""
    query: HistoryQuery = call.query
    rows = await _events(call, DECISIONS, query.subject, query.after)
    return answer(call, "decisions", [{**_event_shown(row), **_decided(row)} for row in rows])


@route("GET", "/audit", who="user", query=HistoryQuery, answer=AuditView)
async def audit(call: Call) -> Answer:
    """Every change: who, what, when and why, each with its place in the hash chain."""
    query: HistoryQuery = call.query
    rows = await _events(call, (), query.subject, query.after)
    shown = [{**_event_shown(row), "hash": row.hash} for row in rows]
    more: dict[str, Any] = {}
    if call.viewer.admin:
        seq, head = await call.site.service.query(lambda ledger: ledger.head())
        more["head"] = {"seq": seq, "hash": head}
    return answer(call, "audit", shown, **more)


@route("GET", "/ended/{id}", who="user")
async def ended(call: Call) -> Answer:
    """How a lease ended: the lease, and each step on the way with who and why."""
    lease = await find_lease(call, call.path["id"])
    chosen = EventFilter(subject=lease.id)
    rows = await call.site.service.query(lambda ledger: ledger.query_events(chosen, limit=200))
    return Answer({
        "lease": lease_shown(call.site, call.frame(), lease),
        "steps": [_event_shown(row) for row in rows],
    })  # fmt: skip
