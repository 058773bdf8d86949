"""The tables. Made and changed by :mod:`.migrations` only; this is how the program sees them.

``events`` is the event history and the audit chain at once, and the only truth. All others are
projections of it, written in the same transaction, so that the present is read without a replay
and the database itself can refuse what must never be:

* ``holdings`` and ``devices``: one live lease per slot. A placement names a device and how many
  milli-GPUs of it, not a slot number, so the constraint is on the amount: triggers add up
  the live holdings of a device in ``devices.used`` and a check keeps it within the capacity (1000,
  or less where a flavor cuts its devices into slots or MIG slices). With whole GPUs this is
  exactly "at most one live lease per device"; with shares it is "never more slots than there are",
  and a whole and a shared lease on one device exclude each other too.
* ``devices.fence`` only rises; so do ``leader.epoch`` and ``leader.position``.
* ``leases``: one live lease per request, one lease per fencing number. ``requests``: one place in
  line per request. ``idempotency``: one request per user and key.
* Final states of requests and leases stay; rows of ``events`` are never changed or deleted.

There are few indexes, since each costs a part of every grant: tenants are few, so what is theirs
is found by going through the newest rows.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

REVISION = "0002"
"""Schema revision that this program reads and writes."""

VERSION_TABLE = "allotment_revision"
"""Where the revision stands: a name of our own, so that a database may be shared with the hub."""

GENESIS = "0" * 64
"""What the first row of the audit chain follows."""

NAMES = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# What is live, word for word as in the indexes of it: SQLite compares the words.
LIVE_REQUEST = text("state IN ('queued','parked','granted')")
LIVE_LEASE = text("state <> 'released'")

# SQLite stores a row under its key only when the column is called exactly INTEGER.
_Key = BigInteger().with_variant(Integer, "sqlite")

events = Table(
    "events",
    NAMES,
    Column("seq", _Key, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("wall", BigInteger, nullable=False),
    Column("what", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("prev_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    CheckConstraint("seq >= 1", name="seq"),
    CheckConstraint("length(hash) = 64 AND length(prev_hash) = 64", name="hash"),
    Index("ix_events_subject_seq", "subject", "seq"),
    Index("ix_events_user_seq", "user", "seq"),
)

requests = Table(
    "requests",
    NAMES,
    Column("id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("class", Text, key="class_", nullable=False),
    Column("server", Text),
    Column("submitted_at", BigInteger, nullable=False),
    Column("state_since", BigInteger, nullable=False),
    Column("lease", Text),
    Column("doc", Text, nullable=False),
    CheckConstraint(
        "state IN ('queued','parked','granted','done','cancelled','rejected','expired')",
        name="state",
    ),
    CheckConstraint("sequence >= 0", name="sequence"),
    Index("ix_requests_live", "sequence", sqlite_where=LIVE_REQUEST, postgresql_where=LIVE_REQUEST),
    Index("ix_requests_user_sequence", "user", "sequence"),
)

leases = Table(
    "leases",
    NAMES,
    Column("id", Text, primary_key=True),
    Column("request", Text, ForeignKey("requests.id"), nullable=False),
    Column("fence", BigInteger, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("class", Text, key="class_", nullable=False),
    Column("pool", Text, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("granted_at", BigInteger, nullable=False),
    Column("active_at", BigInteger),
    Column("released_at", BigInteger),
    Column("doc", Text, nullable=False),
    CheckConstraint(
        "state IN ('granted','preparing','active','noticed','frozen','stopping','released')",
        name="state",
    ),
    CheckConstraint("gpus >= 0", name="gpus"),
    CheckConstraint("fence >= 1", name="fence"),
    CheckConstraint("released_at IS NULL OR released_at >= granted_at", name="released_at"),
    CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released"),
    Index("ix_leases_user_fence", "user", "fence"),
    Index(
        "uq_leases_live_request",
        "request",
        unique=True,
        sqlite_where=LIVE_LEASE,
        postgresql_where=LIVE_LEASE,
    ),
)

records = Table(
    "records",
    NAMES,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("live", Boolean, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("doc", Text, nullable=False),
)

devices = Table(
    "devices",
    NAMES,
    Column("device", Text, primary_key=True),
    Column("capacity", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    CheckConstraint("capacity BETWEEN 1 AND 1000", name="capacity"),
    CheckConstraint("used >= 0", name="released_twice"),
    CheckConstraint("used <= capacity", name="one_live_lease_per_slot"),
    CheckConstraint("fence >= 1", name="fence"),
    sqlite_with_rowid=False,
)

holdings = Table(
    "holdings",
    NAMES,
    Column("device", Text, ForeignKey("devices.device"), primary_key=True),
    Column("lease", Text, ForeignKey("leases.id"), primary_key=True),
    Column("share", Integer, nullable=False),
    CheckConstraint("share BETWEEN 1 AND 1000", name="share"),
    Index("ix_holdings_lease", "lease"),
    sqlite_with_rowid=False,
)

idempotency = Table(
    "idempotency",
    NAMES,
    Column("user", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", Text),
    Column("body_hash", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_idempotency_at", "at"),
)

leader = Table(
    "leader",
    NAMES,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("head", String(64), nullable=False),
    CheckConstraint("id = 1", name="single"),
)

meta = Table(
    "meta",
    NAMES,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
