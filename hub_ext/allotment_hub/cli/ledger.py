"""``allotment-hub audit verify|export``, ``backup``, ``upgrade-db``: care for the ledger.

They work on the database itself, beside a running governor or without one.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from allotment_hub.clock import MACHINE, parse_time, show_time

from .output import CheckFailed, UsageError, print_json

if TYPE_CHECKING:
    from allotment_hub.ledger import Ledger, StoredEvent

    from . import Subparsers

# The ledger brings SQLAlchemy, whose loading would slow down every other command.


def register(subparsers: Subparsers) -> None:
    """Add the commands."""
    audit = subparsers.add_parser("audit", help="prove or export the history of all changes")
    commands = audit.add_subparsers(title="commands", metavar="COMMAND", required=True)

    verify_ = _command(
        commands, "verify", verify, "prove that the history is complete and unchanged"
    )
    verify_.add_argument(
        "--noted",
        metavar="ROW:HASH",
        type=_noted,
        help="a head noted earlier, which has to be in it",
    )
    verify_.add_argument("--json", action="store_true", help="print JSON")

    export_ = _command(commands, "export", export, "write the history; its head goes to stderr")
    export_.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
    export_.add_argument("--since", metavar="TIME", type=_time, help="as 2026-03-29T02:30:00Z")
    export_.add_argument("--until", metavar="TIME", type=_time, help="up to, not including")
    export_.add_argument("--output", metavar="FILE", type=Path, help="a new file, not stdout")

    backup_ = _command(subparsers, "backup", backup, "copy the ledger while it is in use")
    backup_.add_argument("target", metavar="FILE", type=Path, help="a new file")

    upgrade_ = _command(subparsers, "upgrade-db", upgrade, "bring an older ledger to this version")
    which = upgrade_.add_mutually_exclusive_group()
    which.add_argument("--backup", metavar="FILE", type=Path, help="where the backup goes")
    which.add_argument("--no-backup", action="store_true", help="there is a backup already")


def _command(commands: Subparsers, name: str, handler: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--database", "--db", metavar="URL", required=True,
        help="the ledger, as for serve: sqlite:////path/to/file or postgresql://user@host/name",
    )  # fmt: skip
    parser.set_defaults(handler=handler)
    return parser


def verify(args: argparse.Namespace) -> int:
    """Walk the audit chain and compare the tables with the history."""
    with _open(args.database) as ledger:
        verdict = ledger.verify(args.noted)
        faults = [] if verdict.holds else [verdict.detail]
        faults += ledger.differences() if verdict.holds else []
    if args.json:
        print_json({**asdict(verdict), "holds": not faults, "faults": faults})
        return 1 if faults else 0
    if faults:
        raise CheckFailed("\n".join(faults))
    print(f"{verdict.rows} rows, complete and unchanged; head {verdict.rows}:{verdict.head}")
    return 0


def export(args: argparse.Namespace) -> int:
    """Write the event history as JSON lines or CSV."""
    from allotment_hub.ledger import EventFilter

    chosen = EventFilter(since=args.since, until=args.until)
    with _open(args.database) as ledger, _output(args.output) as out:
        position, head = ledger.head()
        write = _write_csv if args.format == "csv" else _write_jsonl
        # Beside a running governor the history grows: what is written ends with that head.
        write(takewhile(lambda row: row.seq <= position, ledger.iterate_events(chosen)), out)
    print(f"head {position}:{head}", file=sys.stderr)
    return 0


def backup(args: argparse.Namespace) -> int:
    """Copy the ledger into a new file."""
    from allotment_hub.ledger.backup import backup as copy
    from allotment_hub.ledger.connect import locate

    with _explained():
        print(copy(locate(args.database, allow_network=True), args.target))
    return 0


def upgrade(args: argparse.Namespace) -> int:
    """Migrate the ledger, after a backup."""
    from allotment_hub.ledger.upgrading import upgrade as migrate

    with _explained():
        done = migrate(
            args.database,
            now_ms=MACHINE.wall(),
            backup_to=args.backup,
            make_backup=not args.no_backup,
        )
    if done.found == done.now:
        print(f"{done.place} has schema revision {done.now} already")
        return 0
    kept = f"; the ledger as it was is in {done.backup}" if done.backup else ""
    print(f"{done.place}: schema revision {done.found} became {done.now}{kept}")
    return 0


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    from sqlalchemy.exc import DBAPIError

    from allotment_hub.ledger import CannotOpen, LedgerError, RevisionMismatch

    try:
        yield
    except RevisionMismatch as error:
        raise CheckFailed(str(error)) from error
    except CannotOpen as error:
        raise UsageError(str(error)) from error
    except LedgerError as error:
        raise CheckFailed(str(error)) from error
    except DBAPIError as error:
        raise CheckFailed(f"the ledger cannot be read: {error.orig}") from error


@contextlib.contextmanager
def _open(address: str) -> Iterator[Ledger]:
    from allotment_hub.ledger import Ledger

    with _explained(), Ledger.open(address, create=False, allow_network=True) as ledger:
        yield ledger


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        out = path.open("x", encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}; name a new file") from None
    with out:
        yield out


def _write_jsonl(rows: Iterator[StoredEvent], out: TextIO) -> None:
    for row in rows:
        values = asdict(row) | {"wall": show_time(row.wall), "record": json.loads(row.record)}
        out.write(json.dumps(values) + "\n")


def _write_csv(rows: Iterator[StoredEvent], out: TextIO) -> None:
    from allotment_hub.ledger import StoredEvent

    names = [field.name for field in fields(StoredEvent)]
    writer = csv.writer(out)
    writer.writerow(names)
    for row in rows:
        values = asdict(row) | {"wall": show_time(row.wall)}
        writer.writerow([_cell(values[name]) for name in names])


def _cell(value: object) -> object:
    # A spreadsheet runs what looks like a formula; the names in here are not ours.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def _noted(text: str) -> tuple[int, str]:
    row, _, digest = text.partition(":")
    if not (row.isdecimal() and len(digest) == 64):
        raise argparse.ArgumentTypeError(f"{text!r} is no head; write it as verify prints it")
    return int(row), digest


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
