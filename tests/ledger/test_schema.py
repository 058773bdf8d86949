"""Old, new and foreign databases (case POLICY-04), back-ups, and what the migrations make."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from allotment_hub.ledger import (
    AlreadyLed,
    CannotOpen,
    CommitFailed,
    LeaseFilter,
    Ledger,
    NetworkFileSystem,
    RevisionMismatch,
)
from allotment_hub.ledger.backup import BackupFailed
from allotment_hub.ledger.connect import connect, file_system, locate
from allotment_hub.ledger.schema import MIGRATIONS, migrate
from allotment_hub.ledger.tables import NAMES, REVISION, VERSION_TABLE
from allotment_hub.ledger.upgrading import upgrade
from tests.ledger import build


def engine_of(url: str) -> Engine:
    return connect(locate(url))


def old_ledger_with_five_sessions(url: str) -> list[object]:
    """A ledger as revision 0001 left it: the tables are there, the guards are not."""
    engine = engine_of(url)
    migrate(engine, "0001")
    rows = [build.lease(n, "active", active_at=n) for n in range(1, 6)]
    with Ledger.open("sqlite://") as new:  # what it held, taken from a present one
        new.lead(since=1)
        for lease in rows:
            new.commit(build.granted(lease.fence), offset_ms=0)
            new.commit(build.events(lease), offset_ms=0)
        copy_rows(new, engine)
        found: list[object] = list(new.load().records)
    engine.dispose()
    return found


def copy_rows(source: Ledger, target: Engine) -> None:
    with source._reading() as reading, target.begin() as writing:
        writing.execute(NAMES.tables["leader"].delete())
        for table in NAMES.sorted_tables:
            found = reading.execute(table.select()).mappings()
            rows = [{column.key: row[column] for column in table.c} for row in found]
            if table.name == "devices":
                rows = [row | {"used": 0} for row in rows]  # nobody counted in those days
            if rows:
                writing.execute(table.insert(), rows)


def test_an_old_ledger_is_refused_with_both_revisions_and_the_way_out(database_url: str) -> None:
    old_ledger_with_five_sessions(database_url)
    with pytest.raises(RevisionMismatch, match=r"0001, this program needs 0002; run .*upgrade-db"):
        Ledger.open(database_url)


def test_an_old_ledger_is_migrated_after_a_backup_and_keeps_its_sessions__policy_04a(
    database_url: str, tmp_path: Path
) -> None:
    before = old_ledger_with_five_sessions(database_url)
    done = upgrade(database_url, now_ms=1_700_000_000_000, backup_to=tmp_path / "copy")
    assert (done.found, done.now, done.backup) == ("0001", "0002", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size > 1_000
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    with Ledger.open(database_url) as ledger:
        assert list(ledger.load().records) == before
        assert ledger.differences() == []
        ledger.lead(since=1)
        with pytest.raises(CommitFailed, match="one_live_lease_per_slot"):
            ledger.commit(build.granted(9, shares={"GPU-3": 1000}), offset_ms=0)
    assert upgrade(database_url, now_ms=1).backup is None


def test_the_backup_lies_beside_the_ledger_and_can_be_put_back(sqlite_url: str) -> None:
    before = old_ledger_with_five_sessions(sqlite_url)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    copy = upgrade(sqlite_url, now_ms=1_700_000_000_000).backup
    assert copy == path.with_name("ledger.sqlite.0001.1700000000.backup")
    assert upgrade(str(copy), now_ms=2).found == "0001"
    with Ledger.open(str(copy)) as ledger:
        assert list(ledger.load().records) == before


def test_a_newer_ledger_is_refused_with_both_revisions__policy_04b(database_url: str) -> None:
    Ledger.open(database_url).close()
    engine = engine_of(database_url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0999'"))  # noqa: S608  # a constant
    engine.dispose()
    message = r"revision 0999, this program needs 0002; it was written by another version"
    with pytest.raises(RevisionMismatch, match=message):
        Ledger.open(database_url)
    with pytest.raises(RevisionMismatch, match=message):
        upgrade(database_url, now_ms=1)


def test_a_ledger_is_not_migrated_under_a_running_governor(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.lead(since=1)
        with ledger._engine.begin() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))  # noqa: S608  # a constant
        with pytest.raises(AlreadyLed, match="is led by process"):
            upgrade(sqlite_url, now_ms=1)


def test_a_migration_that_fails_changes_nothing(database_url: str, tmp_path: Path) -> None:
    Ledger.open(database_url).close()
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    for file in [*MIGRATIONS.glob("*.py"), *MIGRATIONS.glob("versions/*.py")]:
        (folder / file.relative_to(MIGRATIONS)).write_text(file.read_text())
    (folder / "versions" / "0003.py").write_text(
        "from alembic import op\nrevision, down_revision = '0003', '0002'\n"
        "def upgrade():\n    op.drop_table('meta')\n    op.execute('no such statement')\n"
    )
    engine = engine_of(database_url)
    with pytest.raises(Exception, match=r"syntax error"):
        migrate(engine, "0003", migrations=folder)
    engine.dispose()
    with Ledger.open(database_url) as ledger:
        assert ledger.meta("x") is None


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hub.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE events (id INTEGER)")
    other.close()
    with pytest.raises(RevisionMismatch, match="revision none, this program needs 0002"):
        Ledger.open(str(path))


def test_the_program_knows_the_newest_revision() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == REVISION


def test_the_migrations_make_the_tables_that_the_program_uses(ledger: Ledger) -> None:
    with ledger._engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, NAMES) == []


def test_a_copy_made_under_load_is_whole(sqlite_url: str, tmp_path: Path) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.lead(since=1)
        for number in range(1, 20):
            ledger.commit(build.granted(number), offset_ms=0)
        copy = ledger.backup(tmp_path / "copy.sqlite")
        ledger.commit(build.granted(20), offset_ms=0)
    assert not (tmp_path / "copy.sqlite-wal").exists()
    with Ledger.open(str(copy), create=False) as copied:
        assert copied.verify().rows == 38
        assert copied.differences() == []
        assert len(copied.query_leases(LeaseFilter())) == 19


def test_a_backup_never_overwrites(sqlite_url: str, tmp_path: Path) -> None:
    with Ledger.open(sqlite_url) as ledger:
        (tmp_path / "copy").write_text("mine")
        with pytest.raises(BackupFailed, match="copy exists already; name a new file"):
            ledger.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_a_backup_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    with Ledger.open("sqlite://") as ledger, pytest.raises(CannotOpen, match="no ledger"):
        ledger.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


MOUNTED = [
    ("nfs4", "36 35 0:30 / {} rw shared:1 - nfs4 server:/home rw"),
    ("cifs", "36 35 0:30 / {} rw - cifs //server/home rw"),
    ("fuse.sshfs", "36 35 0:30 / {} rw shared:1 master:2 - fuse.sshfs host:/ rw"),
    ("nfs", "20 1 8:1 / {} rw - ext4 /dev/a rw\n36 20 0:30 / {} rw - nfs server:/home rw"),
]


@pytest.mark.parametrize(("kind", "lines"), MOUNTED)
def test_a_network_file_system_is_refused_with_advice__policy_10(
    tmp_path: Path, kind: str, lines: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("1 0 8:1 / / rw - ext4 /dev/root rw\n" + lines.replace("{}", str(tmp_path)))
    message = f"lies on {kind}, whose locks cannot be trusted: keep the ledger on a local disk or"
    with pytest.raises(NetworkFileSystem, match=message):
        Ledger.open(str(tmp_path / "ledger.sqlite"), mounts=mounts)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_whoever_insists_gets_a_rollback_journal_and_a_warning__policy_10(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 0:30 / {tmp_path} rw shared:1 - nfs4 server:/home rw\n")
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(str(path), allow_network=True, mounts=mounts) as ledger:
        with ledger._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        ledger.lead(since=1)
        ledger.commit(build.granted(1), offset_ms=0)
        assert not path.with_name("ledger.sqlite-wal").exists()
    assert "lies on nfs4: no write-ahead log there" in caplog.text


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("1 0 8:1 / / rw - ext4 a rw\n2 1 0:3 / /my\\040home rw - nfs4 s:/ rw\n")
    assert file_system(Path("/my home/x"), mounts) == "nfs4"
    assert file_system(Path("/my homes/x"), mounts) == "ext4"
    assert file_system(Path("/x"), tmp_path / "missing") is None


def test_a_local_ledger_has_the_settings_that_durability_needs(ledger: Ledger) -> None:
    with ledger._engine.connect() as connection:
        if not ledger.place.is_sqlite:
            assert connection.scalar(text("SHOW synchronous_commit")) == "on"
            return
        found = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 10_000]


def test_the_history_cannot_be_changed_by_a_careless_hand(ledger: Ledger) -> None:
    ledger.commit(build.granted(1), offset_ms=0)
    for statement in ("UPDATE events SET why = 'x'", "DELETE FROM events", "DELETE FROM devices"):
        with (
            pytest.raises(Exception, match=r"append-only|for ever"),
            ledger._engine.begin() as connection,
        ):
            connection.execute(text(statement))
