"""One decider at a time: an exclusive lock that ends with its process.

SQLite: a locked file beside the database (``ledger.sqlite.lock``), which also says who holds
it. The file is never removed: removing it would let two processes lock two files of one name.
PostgreSQL: an advisory lock on a connection of its own, which the server ends when the process
dies. Either lock only keeps honest processes apart; that a deposed one cannot write is up to the
epoch, which every commit checks (:mod:`.writing`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from .connect import Place
from .errors import CannotOpen, Holder

ADVISORY_KEY = 0x616C6C6F746D656E
"""The letters of the product's name; advisory locks are numbers that applications agree on."""


class Lock(Protocol):
    """An exclusive lock between processes."""

    def acquire(self, holder: Holder) -> bool:
        """Take the lock if it is free, without waiting; whether it is ours now."""

    def holder(self) -> Holder | None:
        """Who wrote its name last, where the lock itself knows."""

    def held(self) -> bool:
        """Whether the lock is still ours."""

    def release(self) -> None:
        """Let go; nothing happens when it is not held."""


class FileLock:
    """A ``flock`` on a file.

    Not a POSIX record lock, which ends as soon as its process closes *any* descriptor of the
    file, for instance after reading who holds it. It ends with the process whatever way that
    ends; programs that the process starts do not inherit it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, holder: Holder) -> bool:
        """Take the lock if it is free."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise CannotOpen(f"{self._path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        self._descriptor = descriptor
        return True

    def holder(self) -> Holder | None:
        """Who wrote its name into the file."""
        try:
            return Holder(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def held(self) -> bool:
        """Whether the lock is ours, and on the file that others would lock."""
        if self._descriptor is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        return False

    def release(self) -> None:
        """Let go of the lock; the file stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class AdvisoryLock:
    """A session lock of PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def acquire(self, holder: Holder) -> bool:
        """Take the lock if it is free."""
        if self._connection is not None and self.held():
            return True
        self.release()
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": ADVISORY_KEY}):
            connection.close()
            return False
        connection.detach()  # the lock belongs to the session: never hand it back to the pool
        self._connection = connection
        return True

    def holder(self) -> Holder | None:
        """Not known to the lock: the table ``leader`` says who took over last."""
        return None

    def held(self) -> bool:
        """Whether the session that holds the lock still lives."""
        if self._connection is None:
            return False
        try:
            self._connection.scalar(text("SELECT 1"))
        except DBAPIError:
            return False
        return True

    def release(self) -> None:
        """End the session and with it the lock."""
        if self._connection is not None:
            with contextlib.suppress(DBAPIError):
                self._connection.close()
            self._connection = None


class NoLock:
    """For a ledger in memory, which no other process can reach."""

    def acquire(self, holder: Holder) -> bool:
        """Nobody else is there."""
        return True

    def holder(self) -> Holder | None:
        """Nobody else is there."""
        return None

    def held(self) -> bool:
        """Nobody else is there."""
        return True

    def release(self) -> None:
        """Nothing to let go of."""


def lock_for(place: Place, engine: Engine) -> Lock:
    """The lock that belongs to a place."""
    if not place.is_sqlite:
        return AdvisoryLock(engine)
    if place.path is None:
        return NoLock()
    return FileLock(place.path.with_name(place.path.name + ".lock"))
