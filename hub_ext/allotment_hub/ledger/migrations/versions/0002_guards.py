"""Guards: used parts of devices follow their holdings; what is past or final stays."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FINAL_REQUEST = "'done','cancelled','rejected','expired'"

# table, event, condition, message
_REFUSALS = (
    ("events", "UPDATE", "1 = 1", "the event history is append-only"),
    ("events", "DELETE", "1 = 1", "the event history is append-only"),
    (
        "requests",
        "UPDATE",
        f"OLD.state IN ({_FINAL_REQUEST}) AND NEW.state <> OLD.state",
        "a final state never changes",
    ),
    (
        "leases",
        "UPDATE",
        "OLD.state = 'released' AND NEW.state <> OLD.state",
        "a final state never changes",
    ),
    ("holdings", "UPDATE", "1 = 1", "a holding is made and removed, never changed"),
    ("devices", "UPDATE", "NEW.fence < OLD.fence", "fencing numbers only rise"),
    ("devices", "DELETE", "1 = 1", "fencing numbers are kept for ever"),
    (
        "leader",
        "UPDATE",
        "NEW.epoch < OLD.epoch OR NEW.position < OLD.position",
        "the epoch and the position only rise",
    ),
)

_FOLLOW = (
    ("INSERT", "used = used + NEW.share WHERE device = NEW.device"),
    ("DELETE", "used = used - OLD.share WHERE device = OLD.device"),
)


def upgrade() -> None:
    op.execute(
        "UPDATE devices SET used = (SELECT COALESCE(SUM(share), 0) FROM holdings "
        "WHERE holdings.device = devices.device)"
    )
    postgres = op.get_bind().dialect.name == "postgresql"
    refuse = _refuse_postgres if postgres else _refuse_sqlite
    follow = _follow_postgres if postgres else _follow_sqlite
    for table, event, condition, message in _REFUSALS:
        refuse(f"{table}_keep_{event.lower()}", table, event, condition, message)
    for event, change in _FOLLOW:
        follow(f"holdings_count_{event.lower()}", event, change)


def _refuse_sqlite(name: str, table: str, event: str, condition: str, message: str) -> None:
    op.execute(
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {condition} "
        f"BEGIN SELECT RAISE(ABORT, '{table}: {message}'); END"
    )


def _refuse_postgres(name: str, table: str, event: str, condition: str, message: str) -> None:
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table}: {message}' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW "
        f"WHEN ({condition}) EXECUTE FUNCTION {name}()"
    )


def _follow_sqlite(name: str, event: str, change: str) -> None:
    body = f"UPDATE devices SET {change}"  # noqa: S608 - made of constants of this file
    op.execute(f"CREATE TRIGGER {name} AFTER {event} ON holdings BEGIN {body}; END")


def _follow_postgres(name: str, event: str, change: str) -> None:
    body = f"UPDATE devices SET {change}"  # noqa: S608 - made of constants of this file
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {body}; RETURN NULL; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {name} AFTER {event} ON holdings FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
