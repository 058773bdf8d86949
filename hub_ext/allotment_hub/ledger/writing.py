"""The unit of work: one transaction for a batch, checked against the epoch.

The first statement of a transaction moves the position of the leader's row, on the condition
that the epoch is still ours. It decides at once whether we may write, keeps a deposed leader
out, and makes two writers wait for each other on either database.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Dialect, Table, Update, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from .batch import Batch, Row, Tail
from .errors import CommitFailed
from .tables import devices, events, holdings, idempotency, leader, leases, meta, records, requests


class EpochEnded(Exception):
    """The row of the leader is not ours any more."""


class Many:
    """A statement for many rows, compiled once: SQLAlchemy would go through every row again.

    Parameters
    ----------
    statement : Any
        An insert, update or delete of SQLAlchemy.
    dialect : Dialect
        The one of the engine.
    """

    def __init__(self, statement: Any, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._sql = str(compiled)
        self._names: Sequence[str] | None = compiled.positiontup

    def run(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Execute it for each row; a row is named like the keys of the columns."""
        if not rows:
            return
        values: list[Any] = list(rows)
        if self._names is not None:
            if len(self._names) == 1:
                values = [(row[self._names[0]],) for row in rows]
            else:
                values = list(map(itemgetter(*self._names), rows))
        connection.exec_driver_sql(self._sql, values)


class Statements:
    """The statements of a batch for one database, made once."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
        self.advance: Update = (
            update(leader)
            .where(leader.c.id == 1, leader.c.epoch == bindparam("ours"))
            .values(position=bindparam("to_position"), head=bindparam("to_head"))
        )
        self.events = Many(self._insert(events), dialect)
        self.requests = self._upsert(requests, "id")
        self.leases = self._upsert(leases, "id")
        self.records = self._upsert(records, "kind", "id")
        gone = delete(holdings).where(holdings.c.lease == bindparam("lease_id"))
        self.drop = Many(gone, dialect)
        self.devices = self._upsert(devices, "device", keep=("used",))
        self.holdings = Many(self._insert(holdings), dialect)
        self.keys = Many(self._insert(idempotency), dialect)
        self.meta = self._upsert(meta, "key")

    def _upsert(self, table: Table, *keys: str, keep: tuple[str, ...] = ()) -> Many:
        insert = self._insert(table)
        changed = {
            column.key: insert.excluded[column.key]
            for column in table.c
            if column.key not in (*keys, *keep)
        }
        whole = insert.on_conflict_do_update(index_elements=list(keys), set_=changed)
        return Many(whole, self._dialect)


_MADE: dict[str, Statements] = {}


def statements_for(dialect: Dialect) -> Statements:
    """The statements for a database: compiling them takes as long as opening a ledger."""
    if dialect.name not in _MADE:
        _MADE[dialect.name] = Statements(dialect)
    return _MADE[dialect.name]


def write(connection: Connection, statements: Statements, batch: Batch, epoch: int) -> None:
    """Write a batch in one durable transaction, or nothing of it.

    Raises
    ------
    EpochEnded
        When somebody else has taken over the ledger.
    CommitFailed
        With the constraint or the fault of the database.
    """
    try:
        with connection.begin():
            moved = connection.execute(
                statements.advance,
                {"ours": epoch, "to_position": batch.tail.position, "to_head": batch.tail.head},
            )
            if moved.rowcount != 1:
                raise EpochEnded
            for statement, rows in _work(statements, batch):
                statement.run(connection, rows)
            if batch.forget_keys_before is not None:
                old = idempotency.c.at < batch.forget_keys_before
                connection.execute(delete(idempotency).where(old))
    except DBAPIError as error:
        raise CommitFailed(f"nothing was written: {error.orig}") from error
    except (SQLAlchemyError, OverflowError) as error:
        raise CommitFailed(f"nothing was written: {error}") from error


def _work(statements: Statements, batch: Batch) -> list[tuple[Many, Sequence[Row]]]:
    # Ended leases first: their request may have its next lease in the same batch. Holdings go
    # before the capacity is set and the new ones come, so that the check sees what is left.
    ended_first = sorted(batch.leases.values(), key=lambda row: row["state"] != "released")
    return [
        (statements.events, batch.events),
        (statements.requests, list(batch.requests.values())),
        (statements.leases, ended_first),
        (statements.records, list(batch.records.values())),
        (statements.drop, batch.dropped),
        (statements.devices, list(batch.devices.values())),
        (statements.holdings, batch.holdings),
        (statements.keys, batch.keys),
        (statements.meta, [{"key": key, "value": value} for key, value in batch.meta.items()]),
    ]


def read_tail(connection: Connection) -> Tail:
    """Where the ledger stands, without the policy."""
    row = connection.execute(select(leader.c.position, leader.c.head)).one()
    tail = Tail(position=row.position, head=row.head)
    newest = select(leases.c.fence).order_by(leases.c.fence.desc()).limit(1)
    tail.fence = connection.scalar(newest) or 0
    for held in connection.execute(select(holdings)):
        tail.held.setdefault(held.lease, {})[held.device] = held.share
    return tail
