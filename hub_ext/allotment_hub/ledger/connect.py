"""Engines with the settings that durability needs, for SQLite and PostgreSQL.

SQLite: write-ahead log, ``synchronous=FULL``, foreign keys, a busy timeout, ``BEGIN IMMEDIATE``
for writers. A write-ahead log needs shared memory between the processes that use the file, so a
path on a network file system is refused, or, where the operator insists, used with a rollback
journal (https://www.sqlite.org/wal.html, section 1). PostgreSQL: ``synchronous_commit=on``.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from .errors import CannotOpen, NetworkFileSystem

log = logging.getLogger(__name__)

BUSY_SECONDS = 10
WRITER = "allotment_writer"
"""Execution option of the connection whose transactions write from their start."""

SETTINGS = ("synchronous=FULL", "foreign_keys=ON", "cache_size=-32000", "wal_autocheckpoint=4000")
"""Of each SQLite connection: 32 MB of cache, and a checkpoint for every 16 MB of log."""

SESSION = (
    "-c synchronous_commit=on",
    f"-c lock_timeout={BUSY_SECONDS}s",
    # The server, too, has to notice soon that a host has gone: it keeps the leader's lock for it.
    "-c tcp_keepalives_idle=15",
    "-c tcp_keepalives_interval=5",
    "-c tcp_keepalives_count=3",
)
"""Options of each PostgreSQL session, after those in the address."""

MOUNTS = Path("/proc/self/mountinfo")

_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph",
        "fuse.glusterfs", "fuse.goofys", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs",
        "gpfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb2",
        "smb3", "smbfs", "wekafs",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ledger lies.

    Parameters
    ----------
    url : URL
        Normalised: an absolute path for SQLite, the psycopg driver for PostgreSQL.
    path : Path or None
        The file; None for a server or for memory.
    journal : str
        ``wal``, or ``delete`` on a network file system.
    """

    url: URL
    path: Path | None
    journal: str = "wal"

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def __str__(self) -> str:
        """The address without a password, fit for a log."""
        return self.url.render_as_string(hide_password=True)


def locate(address: str, *, allow_network: bool = False, mounts: Path = MOUNTS) -> Place:
    """Find out what an address means.

    Parameters
    ----------
    address : str
        ``sqlite:////srv/ledger.sqlite``, ``sqlite://`` (memory, for tests and scenarios), a bare
        path, or ``postgresql://user@host/name``.
    allow_network : bool
        Use a network file system all the same, with a rollback journal instead of the log.

    Raises
    ------
    CannotOpen
        For anything else; :class:`NetworkFileSystem` for a path on one.
    """
    right = "write sqlite:////path/to/ledger.sqlite or postgresql://user@host/name"
    if not address.strip():
        raise CannotOpen(f"the address of the ledger is empty; {right}")
    try:
        url = make_url(address if "://" in address else f"sqlite:///{address}")
    except (ArgumentError, ValueError):
        raise CannotOpen(f"the address of the ledger cannot be read; {right}") from None
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return Place(url.set(drivername="postgresql+psycopg"), None)
    if backend != "sqlite":
        raise CannotOpen(f"a ledger cannot be kept in {backend!r}; {right}")
    if url.database in (None, "", ":memory:"):
        return Place(url.set(database=None), None)
    path = Path(str(url.database)).absolute()
    if not path.parent.is_dir():
        raise CannotOpen(f"the folder {path.parent} does not exist; make it, or change the address")
    journal = _journal_for(path, allow_network, mounts)
    return Place(url.set(database=str(path)), path, journal)


def _journal_for(path: Path, allow_network: bool, mounts: Path) -> str:
    kind = file_system(path, mounts)
    if kind not in _NETWORK:
        return "wal"
    advice = "keep the ledger on a local disk or use PostgreSQL"
    if not allow_network:
        raise NetworkFileSystem(f"{path} lies on {kind}, whose locks cannot be trusted: {advice}")
    log.warning("%s lies on %s: no write-ahead log there; better %s", path, kind, advice)
    return "delete"


def file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of file system that a path lies on (``ext4``, ``nfs4``); None where not known."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = path.resolve()
    found: tuple[int, str | None] = (-1, None)
    for line in lines:
        before, separator, after = line.partition(" - ")
        parts = before.split(" ")
        if not separator or len(parts) < 5:
            continue
        point = Path(parts[4].encode().decode("unicode_escape"))
        # Later mounts lie over earlier ones at the same place.
        if real.is_relative_to(point) and len(point.parts) >= found[0]:
            found = (len(point.parts), after.split(" ")[0])
    return found[1]


def connect(place: Place) -> Engine:
    """An engine for a place. Nothing is opened yet.

    Raises
    ------
    CannotOpen
        When the driver for PostgreSQL is not installed.
    """
    if place.is_sqlite:
        return _connect_sqlite(place)
    given = place.url.query.get("options", "")
    arguments = {
        "options": " ".join([given if isinstance(given, str) else " ".join(given), *SESSION]),
        "connect_timeout": BUSY_SECONDS,
        "application_name": f"allotment-hub {os.getpid()}",
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    try:
        return create_engine(place.url, connect_args=arguments, pool_pre_ping=True)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise CannotOpen(
            "the driver for PostgreSQL is missing; pip install 'jupyter-allotment[postgres]'"
        ) from None


def _connect_sqlite(place: Place) -> Engine:
    arguments: dict[str, Any] = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    if place.path is None:
        engine = create_engine(place.url, connect_args=arguments, poolclass=StaticPool)
    else:
        engine = create_engine(place.url, connect_args=arguments)
    event.listen(engine, "connect", lambda raw, _: _prepare_sqlite(raw, place))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(raw: sqlite3.Connection, place: Place) -> None:
    raw.isolation_level = (
        None  # transactions begin where _begin_sqlite says, not where pysqlite does
    )
    cursor = raw.cursor()
    if place.path is not None:
        cursor.execute(f"PRAGMA journal_mode={place.journal}")
    for setting in SETTINGS:
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITER)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def make_private(path: Path) -> None:
    """Create the file so that only its owner reads it; leave an existing one as it is.

    Raises
    ------
    CannotOpen
        When it may not be written.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise CannotOpen(f"{path} cannot be written: {error.strerror}") from None
