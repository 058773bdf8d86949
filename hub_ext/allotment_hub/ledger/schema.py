"""The revision of a database: found, compared, migrated.

Alembic is imported only where a migration runs: the everyday start compares two words.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from .connect import WRITER, Place
from .errors import RevisionMismatch
from .leadership import ADVISORY_KEY
from .tables import REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATION_KEY = ADVISORY_KEY + 1
MIGRATIONS = Path(__file__).parent / "migrations"


def found_revision(connection: Connection) -> str | None:
    """The revision that a database says it has; None where it has none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608 - a constant of ours
    return revision


def is_empty(connection: Connection) -> bool:
    """Whether nothing of ours is there: no revision and no event history."""
    return found_revision(connection) is None and not inspect(connection).has_table("events")


def check_revision(engine: Engine, place: Place) -> str:
    """The revision of a database that this program can use.

    Raises
    ------
    RevisionMismatch
        Naming both revisions.
    """
    with engine.connect() as connection:
        found = found_revision(connection)
    if found != REVISION:
        raise RevisionMismatch(str(place), found, REVISION, known=found in known_revisions())
    return REVISION


def known_revisions(migrations: Path = MIGRATIONS) -> frozenset[str]:
    """Every revision that the chain of migrations contains."""
    from alembic.script import ScriptDirectory

    return frozenset(r.revision for r in ScriptDirectory(str(migrations)).walk_revisions())


def migrate(engine: Engine, target: str = REVISION, *, migrations: Path = MIGRATIONS) -> None:
    """Bring a database to a revision in one transaction: wholly or not at all."""
    from alembic import command

    with engine.connect().execution_options(**{WRITER: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE keeps others out
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_KEY})
        command.upgrade(_configuration(connection, migrations), target)


def _configuration(connection: Connection, migrations: Path) -> Config:
    from alembic.config import Config

    configuration = Config()
    # A per cent sign in the path would be taken for an interpolation.
    configuration.set_main_option("script_location", str(migrations).replace("%", "%%"))
    configuration.attributes["connection"] = connection
    return configuration
