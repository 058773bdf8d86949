"""Whether the projections still say what the history says (case QUOTA-11)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from allotment_hub.domain.events import Record
from allotment_hub.domain.leases import Lease

from . import reading
from .batch import key_of, shares_of
from .codec import kind_of
from .tables import devices, holdings


def differences(connection: Connection) -> list[str]:
    """One line per record that differs between the projections and the folded history."""
    kept, folded = reading.load(connection), reading.fold(connection)
    lines = _compare_records(kept.records, folded.records)
    for name in ("position", "sequence", "fence"):
        ours, theirs = getattr(kept, name), getattr(folded, name)
        if ours != theirs:
            lines.append(f"{name}: {ours} in the tables, {theirs} in the history")
    return lines + _compare_holdings(connection, folded.records) + _check_file(connection)


def _check_file(connection: Connection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    found = "\n".join(connection.exec_driver_sql("PRAGMA integrity_check(5)").scalars())
    lines = [line for line in found.splitlines() if line != "ok" and not line.startswith("***")]
    return [f"the file is damaged: {line}" for line in lines]


def _compare_records(kept: tuple[Record, ...], folded: tuple[Record, ...]) -> list[str]:
    ours = {(kind_of(record), key_of(record)): record for record in kept}
    theirs = {(kind_of(record), key_of(record)): record for record in folded}
    lines = []
    for kind, key in sorted(ours.keys() | theirs.keys()):
        if (kind, key) not in theirs:
            lines.append(f"{kind} {key}: live in the tables, not in the history")
        elif (kind, key) not in ours:
            lines.append(f"{kind} {key}: live in the history, not in the tables")
        elif ours[kind, key] != theirs[kind, key]:
            lines.append(f"{kind} {key}: the tables differ from the history")
    return lines


def _compare_holdings(connection: Connection, records: tuple[Record, ...]) -> list[str]:
    wanted = {
        (device, lease.id): share
        for lease in records
        if isinstance(lease, Lease)
        for device, share in shares_of(lease).items()
    }
    found = {(row.device, row.lease): row.share for row in connection.execute(select(holdings))}
    lines = [
        f"device {device}: lease {lease} holds {found.get((device, lease), 0)} in the tables, "
        f"{wanted.get((device, lease), 0)} in the history"
        for device, lease in sorted(wanted.keys() | found.keys())
        if wanted.get((device, lease)) != found.get((device, lease))
    ]
    sums: dict[str, int] = {}
    for (device, _), share in found.items():
        sums[device] = sums.get(device, 0) + share
    return lines + [
        f"device {row.device}: {row.used} counted, {sums.get(row.device, 0)} held"
        for row in connection.execute(select(devices).order_by(devices.c.device))
        if row.used != sums.get(row.device, 0)
    ]
