"""``allotment-hub audit``, ``backup`` and ``upgrade-db`` as an operator calls them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from sqlalchemy import text

from allotment_hub.cli import main
from allotment_hub.domain.events import Event, Switch
from allotment_hub.ledger import Ledger
from allotment_hub.ledger.tables import VERSION_TABLE
from tests.ledger import build


@pytest.fixture
def filled(ledger: Ledger) -> str:
    """The address of a ledger with five rows, led by a running process."""
    ledger.commit(build.events(Switch(name="grants", on=True), at=1_000), offset_ms=build.OFFSET)
    ledger.commit(
        build.events(*[build.request(n) for n in (1, 2)], at=2_000), offset_ms=build.OFFSET
    )
    told = Event(
        3_000, "request.cancelled", build.request(1, "cancelled"), "user:ann", "=HYPERLINK()"
    )
    ledger.commit([told], offset_ms=build.OFFSET)
    ledger.commit(build.granted(2)[1:], offset_ms=build.OFFSET)
    return ledger.place.url.render_as_string(hide_password=False)


def spoil(ledger: Ledger, statement: str) -> None:
    """What somebody with a tool for databases does, past the guards."""
    sqlite = ledger.place.is_sqlite
    table = statement.split()[1 if statement.startswith("UPDATE") else 2]
    with ledger._engine.begin() as connection:
        if not sqlite:
            connection.execute(text("SET session_replication_role = replica"))
        else:
            for event in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_keep_{event}"))
        connection.execute(text(statement))
        if not sqlite:
            connection.execute(text("SET session_replication_role = DEFAULT"))


def test_verify_proves_an_untouched_history(
    filled: str, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "verify", "--database", filled]) == 0
    head = ledger.head()[1]
    assert capsys.readouterr().out == f"5 rows, complete and unchanged; head 5:{head}\n"
    assert main(["audit", "verify", "--database", filled, "--noted", f"5:{head}"]) == 0
    assert main(["audit", "verify", "--database", filled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["rows"] == 5


SPOILT = [
    ("changed", "UPDATE events SET why = 'nothing' WHERE seq = 4", "content of row 4 has been"),
    (
        "changed record",
        "UPDATE events SET record = '{}' WHERE seq = 2",
        "content of row 2 has been",
    ),
    ("removed", "DELETE FROM events WHERE seq = 3", "row 3 is missing"),
    (
        "cut off",
        "DELETE FROM events WHERE seq = 5",
        "ends at row 4, but the last commit wrote row 5",
    ),
    (
        "moved in time",
        "UPDATE events SET wall = wall + 1 WHERE seq = 1",
        "content of row 1 has been",
    ),
]


@pytest.mark.parametrize(
    ("statement", "message"), [s[1:] for s in SPOILT], ids=[s[0] for s in SPOILT]
)
def test_verify_names_the_first_row_that_is_not_what_it_was(
    filled: str, ledger: Ledger, capsys: pytest.CaptureFixture[str], statement: str, message: str
) -> None:
    spoil(ledger, statement)
    assert main(["audit", "verify", "--database", filled]) == 1
    assert message in capsys.readouterr().err
    assert main(["audit", "verify", "--database", filled, "--json"]) == 1
    assert message in json.loads(capsys.readouterr().out)["faults"][0]


def test_verify_finds_a_history_written_anew_by_a_head_noted_before(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = "3:" + "a" * 64
    assert main(["audit", "verify", "--database", filled, "--noted", noted]) == 1
    assert "row 3 is not the one whose hash was noted" in capsys.readouterr().err
    assert main(["audit", "verify", "--database", filled, "--noted", "9:" + "a" * 64]) == 1
    assert "ends at row 5, but a hash of row 9 was noted" in capsys.readouterr().err


BEHIND = [
    ("UPDATE leases SET state = 'frozen', doc = replace(doc, '\"granted\"', '\"frozen\"')",
     "Lease l2: the tables differ from the history"),
    ("DELETE FROM holdings", "device GPU-2: lease l2 holds 0 in the tables, 1000 in the history"),
    ("UPDATE requests SET state = 'queued' WHERE id = 'r1'", "Request r1: live in the tables, not"),
    ("UPDATE devices SET used = 7", "device GPU-2: 7 counted, 1000 held"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), BEHIND)
def test_verify_names_what_differs_between_tables_and_history__quota_11(
    filled: str, ledger: Ledger, capsys: pytest.CaptureFixture[str], statement: str, message: str
) -> None:
    spoil(ledger, statement)
    assert main(["audit", "verify", "--database", filled]) == 1
    assert message in capsys.readouterr().err


def test_verify_of_a_damaged_file_is_told_and_not_a_traceback(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.lead(since=1)
        for number in range(1, 60):
            ledger.commit(build.granted(number), offset_ms=0)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    content = path.read_bytes()
    middle = content.index(b"r30")
    path.write_bytes(content[: middle - 2_000] + b"\xff" * 4_000 + content[middle + 2_000 :])
    assert main(["audit", "verify", "--database", sqlite_url]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all("damaged" in line or "cannot be read" in line for line in lines)


def test_export_writes_every_row_and_the_head(
    filled: str, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "export", "--database", filled]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[3]["wall"] == "2023-11-14T22:13:23.000Z"
    assert rows[3]["record"]["state"] == "cancelled"
    assert rows[-1]["hash"] == ledger.head()[1]
    assert printed.err == f"head 5:{ledger.head()[1]}\n"


def test_export_as_csv_is_safe_to_open_in_a_spreadsheet(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ["--since", "2023-11-14T22:13:22Z", "--until", "2023-11-14T22:13:24Z"]
    assert main(["audit", "export", "--database", filled, "--format", "csv", *times]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["seq"] for row in rows] == ["2", "3", "4"]
    assert rows[2]["why"] == "'=HYPERLINK()"


def test_export_goes_into_a_new_file_only(
    filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "audit.jsonl"
    command = ["audit", "export", "--database", filled, "--output", str(out)]
    assert main(command) == 0
    assert len(out.read_text().splitlines()) == 5
    assert main(command) == 2
    assert "audit.jsonl cannot be made: File exists; name a new file" in capsys.readouterr().err


def test_backup_copies_beside_a_running_governor(
    filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy"
    assert main(["backup", "--database", filled, str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert main(["backup", "--database", filled, str(target)]) == 1
    assert "copy exists already; name a new file" in capsys.readouterr().err
    if filled.startswith("sqlite"):
        assert main(["audit", "verify", "--database", str(target)]) == 0


def test_upgrade_says_what_it_did(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(sqlite_url) as ledger, ledger._engine.begin() as connection:
        for name in ("events_keep_update", "events_keep_delete", "requests_keep_update"):
            connection.execute(text(f"DROP TRIGGER {name}"))
    assert main(["upgrade-db", "--database", sqlite_url]) == 0
    assert "has schema revision 0002 already" in capsys.readouterr().out
    with Ledger.open(sqlite_url) as ledger, ledger._engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0999'"))  # noqa: S608  # a constant
    assert main(["upgrade-db", "--database", sqlite_url]) == 1
    assert "revision 0999, this program needs 0002" in capsys.readouterr().err
    assert main(["audit", "verify", "--database", sqlite_url]) == 1


WRONG = [
    (["audit", "verify", "--database", "sqlite:////no/such/place"], "folder /no/such does not"),
    (["audit", "verify"], "required: --database"),
    (["audit", "verify", "--database", "x", "--noted", "5"], "'5' is no head; write it as verify"),
    (["audit", "export", "--database", "x", "--since", "noon"], "'noon' is not a time; write a"),
    (["backup", "--database", "mysql://h/x", "f"], "cannot be kept in 'mysql'; write sqlite:"),
    (["upgrade-db", "--database", "missing.sqlite"], "there is no ledger at"),
]


@pytest.mark.parametrize(("command", "message"), WRONG)
def test_wrong_usage_is_told_in_one_line(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        code = main(command)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
