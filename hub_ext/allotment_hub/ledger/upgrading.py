"""An older ledger is brought to the revision of this program, after a backup (case POLICY-04)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from .backup import backup
from .connect import Place, connect, locate
from .errors import AlreadyLed, CannotOpen, Holder, RevisionMismatch
from .leadership import lock_for
from .schema import found_revision, is_empty, known_revisions, migrate
from .tables import REVISION


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade did. ``found`` equal to ``now`` did nothing."""

    place: Place
    found: str
    now: str = REVISION
    backup: Path | None = None


def upgrade(
    address: str, *, now_ms: int, backup_to: Path | None = None, make_backup: bool = True
) -> Upgraded:
    """Migrate a ledger while no governor runs on it.

    Parameters
    ----------
    address : str
        As in :func:`.connect.locate`.
    now_ms : int
        UTC in milliseconds since 1970: a part of the name of the backup.
    backup_to : Path or None
        A new file for the backup; None makes one beside the ledger (for PostgreSQL: in the
        working directory).
    make_backup : bool
        False trusts that there is one.

    Raises
    ------
    AlreadyLed, BackupFailed, CannotOpen, RevisionMismatch
        Nothing was changed.
    """
    place = locate(address, allow_network=True)
    if place.path is not None and not place.path.exists():
        raise CannotOpen(f"there is no ledger at {place}")
    engine = connect(place)
    try:
        return _upgrade(place, engine, now_ms, backup_to, make_backup)
    except DBAPIError as error:
        raise CannotOpen(f"ledger {place} cannot be upgraded: {error.orig}") from error
    finally:
        engine.dispose()


def _upgrade(
    place: Place, engine: Engine, now_ms: int, target: Path | None, make_backup: bool
) -> Upgraded:
    found = _revision(place, engine)
    if found == REVISION:
        return Upgraded(place=place, found=found)
    lock = lock_for(place, engine)
    if not lock.acquire(Holder(pid=os.getpid(), host=socket.gethostname(), since=now_ms)):
        raise AlreadyLed(str(place), lock.holder())
    try:
        copy = backup(place, target or _beside(place, found, now_ms)) if make_backup else None
        migrate(engine)
    finally:
        lock.release()
    return Upgraded(place=place, found=found, backup=copy)


def _revision(place: Place, engine: Engine) -> str:
    with engine.connect() as connection:
        if is_empty(connection):
            raise CannotOpen(f"there is no ledger at {place}")
        found = found_revision(connection)
    if found is None or found not in known_revisions():
        raise RevisionMismatch(str(place), found, REVISION, known=False)
    return found


def _beside(place: Place, found: str, now_ms: int) -> Path:
    path = place.path or Path(f"{place.url.database or 'ledger'}.dump")
    return path.with_name(f"{path.name}.{found}.{now_ms // 1000}.backup")
