"""A consistent copy of a ledger while it is in use."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

from sqlalchemy.engine import URL

from .connect import Place
from .errors import CannotOpen, LedgerError

PAGES_AT_ONCE = 4096


class BackupFailed(LedgerError):
    """No copy was made; a half-written one has been removed."""


def backup(place: Place, target: Path) -> Path:
    """Copy a ledger into a new file, readable by its owner only.

    SQLite is copied by its backup API, which takes a snapshot beside a running governor;
    PostgreSQL by ``pg_dump`` in the custom format, which ``pg_restore`` reads.

    Raises
    ------
    BackupFailed
        When the target exists or the copy cannot be made.
    """
    if place.is_sqlite and (place.path is None or not place.path.exists()):
        raise CannotOpen(f"there is no ledger at {place}")
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise BackupFailed(f"{target} exists already; name a new file") from None
    except OSError as error:
        raise BackupFailed(f"{target} cannot be written: {error.strerror}") from None
    try:
        if place.path is not None:
            _copy_sqlite(place.path, target)
        else:
            _dump_postgres(place.url, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _copy_sqlite(source: Path, target: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as original,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            original.backup(copy, pages=PAGES_AT_ONCE)
            # The copy is one file: no log beside it that could be forgotten when it is moved.
            copy.execute("PRAGMA journal_mode=DELETE")
            faults = [row[0] for row in copy.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as error:
        raise BackupFailed(f"{source} cannot be copied: {error}") from error
    if faults != ["ok"]:
        raise BackupFailed(f"the copy of {source} is damaged: {faults[0]}")
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dump_postgres(url: URL, target: Path) -> None:
    tool = shutil.which("pg_dump")
    if tool is None:
        raise BackupFailed(
            "pg_dump is not installed; make the backup with the database's own tools"
        )
    environment = {**os.environ, "PGPASSWORD": str(url.password)} if url.password else None
    address = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    done = subprocess.run(
        [tool, "--format=custom", f"--file={target}", f"--dbname={address}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupFailed(f"pg_dump failed: {done.stderr.strip()}")
