"""Never two deciders: one lock, and an epoch for whoever lost it without noticing (case UI-25)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from allotment_hub.ledger import AlreadyLed, Ledger, LostLeadership
from tests.ledger import build
from tests.ledger.crash import waiting_for_lead
from tests.support.paths import ROOT

LEAD = """
import sys
from allotment_hub.ledger import AlreadyLed, Ledger
ledger = Ledger.open(sys.argv[1], create=False)
input()                                   # all start together
try:
    ledger.lead(since=5)
    print("leads", flush=True)
except AlreadyLed as error:
    print("waits", error, flush=True)
input()                                   # keep what was got until told
"""


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LEAD, url],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_second_is_told_who_leads(ledger: Ledger) -> None:
    with Ledger.open(str(ledger.place.url.render_as_string(hide_password=False))) as standby:
        with pytest.raises(AlreadyLed) as caught:
            standby.lead(since=2)
        message = f"is led by process {os.getpid()} on {socket.gethostname()}; stop it first"
        assert message in str(caught.value)
        assert caught.value.holder is not None
        assert caught.value.holder.since == 1_700_000_000_000
        before = ledger.epoch
        ledger.step_down()
        assert standby.lead(since=3).epoch == before + 1
        assert standby.leads()
        assert not ledger.leads()


def test_of_processes_that_start_together_one_leads(ledger_url: str) -> None:
    Ledger.open(ledger_url).close()
    processes = [start(ledger_url) for _ in range(3)]
    try:
        for process in processes:
            tell(process)
        heard = [hear(process) for process in processes]
        leaders = [p for p, line in zip(processes, heard, strict=True) if line == "leads"]
        assert len(leaders) == 1
        assert sum("waits" in line for line in heard) == 2
        with Ledger.open(ledger_url) as reader:
            holder = reader.leader()
            assert holder is not None
            assert holder.pid == leaders[0].pid
    finally:
        for process in processes:
            end(process)


def test_leadership_ends_with_its_process_however_that_ends(ledger_url: str) -> None:
    Ledger.open(ledger_url).close()
    process = start(ledger_url)
    try:
        tell(process)
        assert hear(process) == "leads"
        with Ledger.open(ledger_url) as standby:
            with pytest.raises(AlreadyLed, match=f"process {process.pid} on"):
                standby.lead(since=6)
            process.send_signal(signal.SIGKILL)
            process.wait()
            with waiting_for_lead(standby):
                assert standby.epoch == 2
    finally:
        end(process)


def test_who_lost_the_lock_without_noticing_cannot_write__invariant_8(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as old, Ledger.open(ledger_url) as new:
        old.lead(since=1)
        old.commit(build.granted(1), offset_ms=0)
        take_away_the_lock(ledger_url)
        assert not old.leads()
        new.lead(since=2, pid=77, host="other")
        with pytest.raises(LostLeadership, match="leadership 1 has ended; process 77 on other"):
            old.commit(build.granted(2), offset_ms=0)
        with pytest.raises(LostLeadership):
            old.load()
        new.load()
        new.commit(build.granted(2), offset_ms=0)
        assert new.verify().rows == 4


def take_away_the_lock(url: str) -> None:
    """What an overzealous clean-up or a broken connection does."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///") + ".lock").unlink()
        return
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        )
    engine.dispose()


def test_a_program_started_by_the_leader_does_not_inherit_the_lock(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.lead(since=1)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
        try:
            ledger.step_down()
            assert ledger.lead(since=2).epoch == 2
        finally:
            child.communicate()


def test_reading_who_leads_does_not_end_the_leadership(ledger: Ledger) -> None:
    assert ledger.leader() is not None
    url = ledger.place.url.render_as_string(hide_password=False)
    with Ledger.open(url) as other, pytest.raises(AlreadyLed):
        other.lead(since=1)
