"""Reading: the present, the same folded from the history alone, and pages of what is past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Select, func, select

from allotment_hub.domain.events import PolicyVersion, Record
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request

from .batch import IdempotencyKey, is_live, plain
from .chain import StoredEvent
from .codec import loads
from .errors import Holder
from .tables import (
    LIVE_LEASE,
    LIVE_REQUEST,
    events,
    idempotency,
    leader,
    leases,
    meta,
    records,
    requests,
)

MAX_PAGE = 10_000
CHUNK = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All that a state is rebuilt from.

    Parameters
    ----------
    records : tuple of Record
        The newest policy, everything else that is not over; requests by place in line, leases by
        fencing number.
    position : int
        Place of the last event.
    sequence, fence : int
        The highest numbers given out so far, also to what is over; 0 when there were none.
    last_at : int
        Steady time of the last event, 0 when there is none: time goes on from there.
    """

    records: tuple[Record, ...]
    position: int
    sequence: int
    fence: int
    last_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """Which requests; what is empty or None does not restrict. Times are steady milliseconds."""

    states: tuple[str, ...] = ()
    tenant: str | None = None
    user: str | None = None
    class_: str | None = None
    kind: str | None = None
    server: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilter:
    """Which leases. ``since`` and ``until`` pick those that overlap the interval."""

    states: tuple[str, ...] = ()
    tenant: str | None = None
    user: str | None = None
    class_: str | None = None
    kind: str | None = None
    pool: str | None = None
    flavor: str | None = None
    request: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events. ``since`` and ``until`` are UTC milliseconds, the latter not included."""

    kind: str | None = None
    subject: str | None = None
    tenant: str | None = None
    user: str | None = None
    actor: str | None = None
    what: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None


def load(connection: Connection) -> Loaded:
    """The present from the projections."""
    found: list[Record] = []
    newest = select(records.c.doc).where(records.c.kind == "PolicyVersion")
    policy = connection.scalar(newest.order_by(records.c.seq.desc()).limit(1))
    if policy is not None:
        found.append(loads("PolicyVersion", policy))
    others = select(records.c.kind, records.c.doc).where(
        records.c.live, records.c.kind != "PolicyVersion"
    )
    rows = connection.execute(others.order_by(records.c.seq))
    found += [loads(row.kind, row.doc) for row in rows]
    waiting = select(requests.c.doc).where(LIVE_REQUEST)
    docs = connection.scalars(waiting.order_by(requests.c.sequence))
    found += [loads("Request", doc) for doc in docs]
    held = select(leases.c.doc).where(LIVE_LEASE).order_by(leases.c.fence)
    found += [loads("Lease", doc) for doc in connection.scalars(held)]
    return Loaded(
        records=tuple(found),
        position=connection.scalar(select(leader.c.position)) or 0,
        sequence=connection.scalar(select(func.max(requests.c.sequence))) or 0,
        fence=connection.scalar(select(func.max(leases.c.fence))) or 0,
        last_at=last_at(connection),
    )


def fold(connection: Connection) -> Loaded:
    """The present from the event history alone: what :func:`load` has to agree with."""
    last: dict[tuple[str, str], tuple[int, Record]] = {}
    position = at = sequence = fence = 0
    for row in history(connection):
        record = row.decoded()
        last[row.kind, row.subject] = (row.seq, record)
        position, at = row.seq, row.at
        if isinstance(record, Request):
            sequence = max(sequence, record.sequence)
        elif isinstance(record, Lease):
            fence = max(fence, record.fence)
    policies = [entry for entry in last.values() if isinstance(entry[1], PolicyVersion)]
    current = max(policies, key=lambda entry: entry[0], default=None)
    live = [
        (place, record)
        for place, record in last.values()
        if is_live(record) and not isinstance(record, PolicyVersion)
    ]
    found = [] if current is None else [current[1]]
    found += [record for _, record in sorted(live, key=_order)]
    return Loaded(
        records=tuple(found), position=position, sequence=sequence, fence=fence, last_at=at
    )


def _order(entry: tuple[int, Record]) -> tuple[int, int]:
    place, record = entry
    if isinstance(record, Request):
        return (1, record.sequence)
    if isinstance(record, Lease):
        return (2, record.fence)
    return (0, place)


def last_at(connection: Connection) -> int:
    """Steady time of the last event."""
    return connection.scalar(select(events.c.at).order_by(events.c.seq.desc()).limit(1)) or 0


def history(
    connection: Connection, chosen: EventFilter | None = None, after: int = 0
) -> Iterator[StoredEvent]:
    """All events in their order, read in pieces so that a long history fits into memory."""
    while True:
        page = find_events(connection, chosen or EventFilter(), limit=CHUNK, after=after)
        yield from page
        if len(page) < CHUNK:
            return
        after = page[-1].seq


def find_events(
    connection: Connection,
    chosen: EventFilter,
    *,
    limit: int,
    after: int | None = None,
    newest_first: bool = False,
) -> list[StoredEvent]:
    """A page of the event history; ``after`` is the ``seq`` of the last one seen."""
    wanted = _equal(events, chosen, "kind", "subject", "tenant", "user", "actor")
    if chosen.what:
        wanted.append(events.c.what.in_(chosen.what))
    if chosen.since is not None:
        wanted.append(events.c.wall >= chosen.since)
    if chosen.until is not None:
        wanted.append(events.c.wall < chosen.until)
    query = _page(select(events).where(*wanted), events.c.seq, limit, after, newest_first)
    return [StoredEvent(**row) for row in connection.execute(query).mappings()]


def find_requests(
    connection: Connection,
    chosen: RequestFilter,
    *,
    limit: int,
    after: int | None = None,
    newest_first: bool = False,
) -> list[Request]:
    """A page of requests; ``after`` is the ``sequence`` of the last one seen."""
    wanted = _equal(requests, chosen, "tenant", "user", "class_", "kind", "server")
    if chosen.states:
        wanted.append(requests.c.state.in_(chosen.states))
    if chosen.since is not None:
        wanted.append(requests.c.submitted_at >= chosen.since)
    if chosen.until is not None:
        wanted.append(requests.c.submitted_at < chosen.until)
    query = select(requests.c.doc).where(*wanted)
    query = _page(query, requests.c.sequence, limit, after, newest_first)
    return [cast(Request, loads("Request", doc)) for doc in connection.scalars(query)]


def find_leases(
    connection: Connection,
    chosen: LeaseFilter,
    *,
    limit: int,
    after: int | None = None,
    newest_first: bool = False,
) -> list[Lease]:
    """A page of leases; ``after`` is the ``fence`` of the last one seen."""
    names = ("tenant", "user", "class_", "kind", "pool", "flavor", "request")
    wanted = _equal(leases, chosen, *names)
    if chosen.states:
        wanted.append(leases.c.state.in_(chosen.states))
    if chosen.until is not None:
        wanted.append(leases.c.granted_at < chosen.until)
    if chosen.since is not None:
        ended = leases.c.released_at
        wanted.append(ended.is_(None) | (ended > chosen.since))
    query = _page(select(leases.c.doc).where(*wanted), leases.c.fence, limit, after, newest_first)
    return [cast(Lease, loads("Lease", doc)) for doc in connection.scalars(query)]


def find_records(connection: Connection, kind: str, *, limit: int) -> list[Record]:
    """The records of a kind other than request and lease, those changed last first."""
    query = select(records.c.doc).where(records.c.kind == kind)
    query = query.order_by(records.c.seq.desc()).limit(_bounded(limit))
    return [loads(kind, doc) for doc in connection.scalars(query)]


def get(connection: Connection, kind: str, key: str) -> Record | None:
    """One record by its kind and key, whether it is over or not."""
    if kind == "Request":
        query = select(requests.c.doc).where(requests.c.id == plain(key))
    elif kind == "Lease":
        query = select(leases.c.doc).where(leases.c.id == plain(key))
    else:
        query = select(records.c.doc).where(records.c.kind == kind, records.c.id == plain(key))
    doc = connection.scalar(query)
    return None if doc is None else loads(kind, doc)


def find_key(connection: Connection, user: str, key: str) -> IdempotencyKey | None:
    """What a user's idempotency key led to."""
    query = select(idempotency).where(
        idempotency.c.user == plain(user), idempotency.c.key == plain(key)
    )
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else IdempotencyKey(**row)


def get_meta(connection: Connection, key: str) -> str | None:
    """A value that the governor keeps beside the records."""
    value: str | None = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    return value


def get_leader(connection: Connection) -> Holder | None:
    """Who took the ledger over last; None when nobody ever did."""
    row = connection.execute(select(leader)).one()
    if row.epoch == 0:
        return None
    return Holder(pid=row.pid, host=row.host, since=row.since, epoch=row.epoch)


def get_head(connection: Connection) -> tuple[int, str]:
    """Place and hash of the last event."""
    row = connection.execute(select(leader.c.position, leader.c.head)).one()
    return row.position, row.head


def _equal(table: Any, chosen: Any, *names: str) -> list[ColumnElement[bool]]:
    values = [(name, getattr(chosen, name)) for name in names]
    return [table.c[name] == plain(value) for name, value in values if value is not None]


def _page(
    query: Select[Any], cursor: Any, limit: int, after: int | None, newest_first: bool
) -> Select[Any]:
    if after is not None:
        query = query.where(cursor < after if newest_first else cursor > after)
    return query.order_by(cursor.desc() if newest_first else cursor).limit(_bounded(limit))


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
