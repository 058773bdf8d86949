"""From events to the rows of one transaction: arithmetic only, no database.

Events of a batch that concern one record leave one row in the projections, the last. That keeps
a transaction small, and is right because an event carries the whole record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allotment_hub.domain.amounts import MILLI
from allotment_hub.domain.events import (
    Claim,
    Event,
    NodeRecord,
    PolicyVersion,
    Record,
    Reservation,
    Spent,
    Switch,
)
from allotment_hub.domain.inventory import slot_capacity
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import Policy
from allotment_hub.domain.requests import Request

from .chain import link
from .codec import dumps, kind_of
from .errors import CommitFailed
from .tables import GENESIS

Row = dict[str, Any]
Shares = dict[str, int]
"""Milli-GPUs by device."""

INDEXED = 255
"""Characters of a name that go into an indexed column; the record holds all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """The answer that a user's key led to: asked again, it is given again.

    ``body_hash`` tells the same question from another one under the same key; ``at`` is steady
    time in milliseconds.
    """

    user: str
    key: str
    request: str | None
    body_hash: str
    answer: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What has to become durable together."""

    events: Sequence[Event] = ()
    keys: Sequence[IdempotencyKey] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    forget_keys_before: int | None = None


@dataclass(slots=True)
class Tail:
    """Where the ledger stands: what the next batch continues.

    Parameters
    ----------
    position, head : int, str
        Place and hash of the last event.
    fence : int
        The highest fencing number given out.
    held : dict
        Devices of the live leases, by lease.
    policy : Policy or None
        The one in force, for the capacity of devices; None before there is any.
    """

    position: int = 0
    head: str = GENESIS
    fence: int = 0
    held: dict[str, Shares] = field(default_factory=dict)
    policy: Policy | None = None


@dataclass(slots=True)
class Batch:
    """The rows of one transaction, and the tail after it."""

    tail: Tail
    events: list[Row] = field(default_factory=list)
    requests: dict[str, Row] = field(default_factory=dict)
    leases: dict[str, Row] = field(default_factory=dict)
    records: dict[tuple[str, str], Row] = field(default_factory=dict)
    devices: dict[str, Row] = field(default_factory=dict)
    dropped: list[Row] = field(default_factory=list)
    holdings: list[Row] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    forget_keys_before: int | None = None


def build(units: Iterable[Unit], tail: Tail, offset_ms: int) -> Batch:
    """The rows that the units come to.

    Parameters
    ----------
    units : iterable of Unit
        In the order in which they happened.
    tail : Tail
        Where the ledger stands; not changed.
    offset_ms : int
        UTC minus steady time, for the column ``wall``.

    Raises
    ------
    CommitFailed
        When a new lease has a fencing number that is not above all earlier ones.
    CodecError
        When a record cannot be written.
    """
    after = Tail(tail.position, tail.head, tail.fence, dict(tail.held), tail.policy)
    batch = Batch(after)
    touched: dict[str, Lease] = {}
    for unit in units:
        for event in unit.events:
            text = _history(batch, event, offset_ms)
            _project(batch, event.record, text, touched)
        batch.keys += [_key_row(key) for key in unit.keys]
        batch.meta.update(unit.meta)
        if unit.forget_keys_before is not None:
            batch.forget_keys_before = unit.forget_keys_before
    for lease in touched.values():
        _hold(batch, lease)
    return batch


def _history(batch: Batch, event: Event, offset_ms: int) -> str:
    record, tail = event.record, batch.tail
    text = dumps(record)
    seq, kind = tail.position + 1, kind_of(record)
    what, actor, why = plain(event.what), plain(event.actor), plain(event.why)
    subject = plain(key_of(record))[:INDEXED]
    tenant = plain(getattr(record, "tenant", ""))[:INDEXED]
    user = plain(getattr(record, "user", ""))[:INDEXED]
    wall = event.at + offset_ms
    words = [what, kind, subject, tenant, user, actor, why]
    digest = link(tail.head, (seq, event.at, wall), words, text)
    batch.events.append({
        "seq": seq, "at": event.at, "wall": wall, "what": what, "kind": kind, "subject": subject,
        "tenant": tenant, "user": user, "actor": actor, "why": why, "record": text,
        "prev_hash": tail.head, "hash": digest,
    })  # fmt: skip
    tail.position, tail.head = seq, digest
    return text


def _project(batch: Batch, record: Record, text: str, touched: dict[str, Lease]) -> None:
    if isinstance(record, Request):
        batch.requests[record.id] = _request_row(record, text)
        return
    if isinstance(record, Lease):
        if record.id not in batch.tail.held and record.id not in touched:
            _fence(batch, record)
        touched[record.id] = record
        batch.leases[record.id] = _lease_row(record, text)
        return
    if isinstance(record, PolicyVersion):
        batch.tail.policy = record.policy
    kind, key = kind_of(record), plain(key_of(record))
    batch.records[kind, key] = {
        "kind": kind, "id": key, "live": is_live(record), "seq": batch.tail.position, "doc": text,
    }  # fmt: skip


def _fence(batch: Batch, lease: Lease) -> None:
    """Raise the fence of the devices of a lease that is seen for the first time."""
    tail = batch.tail
    if lease.fence <= tail.fence:
        if lease.live:
            raise CommitFailed(
                f"lease {lease.id} has fencing number {lease.fence}, but {tail.fence} was given "
                "out before: fencing numbers only rise"
            )
        return  # a note on a lease that was released long ago
    tail.fence = lease.fence
    capacity = device_capacity(tail.policy, lease.flavor)
    for device in lease.devices:
        uuid = plain(device.uuid)
        batch.devices[uuid] = {
            "device": uuid,
            "capacity": capacity,
            "used": 0,
            "fence": lease.fence,
        }


def _hold(batch: Batch, lease: Lease) -> None:
    """What a lease holds after the batch, against what it held before."""
    held = batch.tail.held
    before = held.get(lease.id, {})
    now = shares_of(lease) if lease.live else {}
    if before == now:
        return
    if before:
        batch.dropped.append({"lease_id": lease.id})
        del held[lease.id]
    if now:
        held[lease.id] = now
        batch.holdings += [
            {"device": device, "lease": lease.id, "share": share} for device, share in now.items()
        ]


def shares_of(lease: Lease) -> Shares:
    """What a lease has of each of its devices."""
    result: Shares = {}
    for device in lease.devices:
        uuid = plain(device.uuid)
        result[uuid] = result.get(uuid, 0) + device.share
    return result


def device_capacity(policy: Policy | None, flavor: str) -> int:
    """Milli-GPUs that leases may have of one device; a whole one where no policy says less."""
    if policy is None or flavor not in policy.flavors:
        return MILLI
    return slot_capacity(policy, flavor)


def key_of(record: Record) -> str:
    """What tells a record from others of its kind."""
    if isinstance(record, (Claim, Reservation)):
        return record.request
    if isinstance(record, PolicyVersion):
        return str(record.number)
    if isinstance(record, NodeRecord):
        return record.node.name
    if isinstance(record, Switch):
        return record.name
    if isinstance(record, Spent):
        return f"{record.tenant}@{record.period_starts_at}"
    return record.id


def is_live(record: Record) -> bool:
    """Whether a record is part of the present, and not only of the history."""
    if isinstance(record, (Request, Lease)):
        return record.live
    if isinstance(record, (Claim, Reservation)):
        return record.active
    if isinstance(record, NodeRecord):
        return not record.gone
    return True


def plain(text: str) -> str:
    r"""Text that every database stores: a NUL or half a surrogate pair becomes its escape.

    >>> plain("Zoë"), plain("a\0b"), plain("\ud800")
    ('Zoë', 'a\\x00b', '\\ud800')
    """
    if text.isascii():
        return text.replace("\0", "\\x00") if "\0" in text else text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _request_row(request: Request, text: str) -> Row:
    return {
        "id": request.id, "sequence": request.sequence, "kind": request.kind,
        "state": request.state, "tenant": plain(request.tenant), "user": plain(request.user),
        "class_": plain(request.class_), "server": None if request.server is None
        else plain(request.server), "submitted_at": request.submitted_at,
        "state_since": request.state_since, "lease": request.lease, "doc": text,
    }  # fmt: skip


def _lease_row(lease: Lease, text: str) -> Row:
    return {
        "id": lease.id, "request": lease.request, "fence": lease.fence, "kind": lease.kind,
        "state": lease.state, "tenant": plain(lease.tenant), "user": plain(lease.user),
        "class_": plain(lease.class_), "pool": plain(lease.pool), "flavor": plain(lease.flavor),
        "gpus": lease.gpus, "granted_at": lease.granted_at, "active_at": lease.active_at,
        "released_at": lease.released_at, "doc": text,
    }  # fmt: skip


def _key_row(key: IdempotencyKey) -> Row:
    return {
        "user": plain(key.user), "key": plain(key.key), "request": key.request,
        "body_hash": key.body_hash, "answer": plain(key.answer), "at": key.at,
    }  # fmt: skip
