"""Event history, projections, leadership."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_GENESIS = "0" * 64


def upgrade() -> None:
    _history()
    _requests()
    _leases()
    _devices()
    _rest()


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _history() -> None:
    op.create_table(
        "events",
        sa.Column("seq", _key, autoincrement=False, nullable=False),
        _number("at"),
        _number("wall"),
        *(_text(n) for n in ("what", "kind", "subject", "tenant", "user", "actor", "why")),
        _text("record"),
        sa.Column("prev_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sa.CheckConstraint("seq >= 1", name="ck_events_seq"),
        sa.CheckConstraint("length(hash) = 64 AND length(prev_hash) = 64", name="ck_events_hash"),
    )
    for name in ("subject", "user"):
        op.create_index(f"ix_events_{name}_seq", "events", [name, "seq"])


def _requests() -> None:
    op.create_table(
        "requests",
        _text("id"),
        _number("sequence"),
        *(_text(name) for name in ("kind", "state", "tenant", "user", "class")),
        sa.Column("server", sa.Text),
        _number("submitted_at"),
        _number("state_since"),
        sa.Column("lease", sa.Text),
        _text("doc"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("sequence", name="uq_requests_sequence"),
        sa.CheckConstraint(
            "state IN ('queued','parked','granted','done','cancelled','rejected','expired')",
            name="ck_requests_state",
        ),
        sa.CheckConstraint("sequence >= 0", name="ck_requests_sequence"),
    )
    op.create_index("ix_requests_user_sequence", "requests", ["user", "sequence"])
    live = sa.text("state IN ('queued','parked','granted')")
    op.create_index(
        "ix_requests_live", "requests", ["sequence"], sqlite_where=live, postgresql_where=live
    )


def _leases() -> None:
    names = ("kind", "state", "tenant", "user", "class", "pool", "flavor")
    op.create_table(
        "leases",
        _text("id"),
        _text("request"),
        _number("fence"),
        *(_text(name) for name in names),
        _number("gpus"),
        _number("granted_at"),
        _number("active_at", nullable=True),
        _number("released_at", nullable=True),
        _text("doc"),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
        sa.ForeignKeyConstraint(["request"], ["requests.id"], name="fk_leases_request"),
        sa.UniqueConstraint("fence", name="uq_leases_fence"),
        sa.CheckConstraint(
            "state IN ('granted','preparing','active','noticed','frozen','stopping','released')",
            name="ck_leases_state",
        ),
        sa.CheckConstraint("gpus >= 0", name="ck_leases_gpus"),
        sa.CheckConstraint("fence >= 1", name="ck_leases_fence"),
        sa.CheckConstraint(
            "released_at IS NULL OR released_at >= granted_at", name="ck_leases_released_at"
        ),
        sa.CheckConstraint(
            "(state = 'released') = (released_at IS NOT NULL)", name="ck_leases_released"
        ),
    )
    op.create_index("ix_leases_user_fence", "leases", ["user", "fence"])
    live = sa.text("state <> 'released'")
    op.create_index(
        "uq_leases_live_request", "leases", ["request"], unique=True,
        sqlite_where=live, postgresql_where=live,
    )  # fmt: skip


def _devices() -> None:
    op.create_table(
        "devices",
        _text("device"),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        _number("fence"),
        sa.PrimaryKeyConstraint("device", name="pk_devices"),
        sa.CheckConstraint("capacity BETWEEN 1 AND 1000", name="ck_devices_capacity"),
        sa.CheckConstraint("used >= 0", name="ck_devices_released_twice"),
        sa.CheckConstraint("used <= capacity", name="ck_devices_one_live_lease_per_slot"),
        sa.CheckConstraint("fence >= 1", name="ck_devices_fence"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "holdings",
        _text("device"),
        _text("lease"),
        sa.Column("share", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("device", "lease", name="pk_holdings"),
        sa.ForeignKeyConstraint(["device"], ["devices.device"], name="fk_holdings_device"),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name="fk_holdings_lease"),
        sa.CheckConstraint("share BETWEEN 1 AND 1000", name="ck_holdings_share"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_holdings_lease", "holdings", ["lease"])


def _rest() -> None:
    op.create_table(
        "records",
        _text("kind"),
        _text("id"),
        sa.Column("live", sa.Boolean, nullable=False),
        _number("seq"),
        _text("doc"),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_records"),
    )
    op.create_table(
        "idempotency",
        _text("user"),
        _text("key"),
        sa.Column("request", sa.Text),
        _text("body_hash"),
        _text("answer"),
        _number("at"),
        sa.PrimaryKeyConstraint("user", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])
    op.create_table(
        "meta", _text("key"), _text("value"), sa.PrimaryKeyConstraint("key", name="pk_meta")
    )
    leader = op.create_table(
        "leader",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        _number("epoch"),
        _number("pid"),
        _text("host"),
        _number("since"),
        _number("position"),
        sa.Column("head", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_leader"),
        sa.CheckConstraint("id = 1", name="ck_leader_single"),
    )
    op.bulk_insert(
        leader,
        [{"id": 1, "epoch": 0, "pid": 0, "host": "", "since": 0, "position": 0, "head": _GENESIS}],
    )
