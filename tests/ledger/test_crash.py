"""Acknowledged survives: kill -9 of the writer, and of the database (invariant 23)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allotment_hub.ledger import CommitFailed, Ledger
from tests.ledger import build
from tests.support.paths import ROOT
from tests.support.postgres import Cluster


def crash(url: str, *options: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.ledger.crash", url, *options],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(ledger_url: str) -> None:
    assert crash(ledger_url, "--rounds", "8")["faults"] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_in_two_hundred_kills(ledger_url: str) -> None:
    assert crash(ledger_url, "--rounds", "200", "--seed", "7")["faults"] == []


def test_a_network_file_system_survives_a_thousand_concurrent_writes_and_a_kill__policy_10(
    tmp_path: Path,
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 0:30 / {tmp_path} rw shared:1 - nfs4 server:/home rw\n")
    path = tmp_path / "ledger.sqlite"
    options = ("--rounds", "2", "--acks", "1000", "--mounts", str(mounts))
    result = crash(f"sqlite:///{path}", *options)
    assert result["faults"] == []
    assert int(str(result["acknowledged"])) >= 2000
    assert not path.with_name("ledger.sqlite-wal").exists()


@pytest.mark.postgres
def test_nothing_acknowledged_is_lost_when_the_database_crashes(
    postgres_cluster: Cluster, emptied_postgres_url: str
) -> None:
    with Ledger.open(emptied_postgres_url) as ledger:
        ledger.lead(since=1)
        for number in range(1, 31):
            ledger.commit(build.granted(number), offset_ms=0)
        postgres_cluster.crash()
        assert not ledger.leads()
        with pytest.raises(CommitFailed, match="nothing was written"):
            ledger.commit(build.granted(31), offset_ms=0)
        ledger.step_down()
        ledger.lead(since=2)
        assert ledger.load().fence == 30
        ledger.commit(build.granted(31), offset_ms=0)
        assert ledger.verify().rows == 62
        assert ledger.differences() == []
