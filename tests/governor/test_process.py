"""The governor as a process: early to answer, quick to end, killed without loss."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from allotment_hub.web.early import Early
from tests.support.alone import Alone

ROOT = Path(__file__).parents[2]
CANARY = "canary-4f1d9c2e77aa"


def _get(url: str, **headers: str) -> tuple[int, bytes]:
    answer = httpx.get(url, timeout=5, headers=headers, trust_env=False)
    return answer.status_code, answer.content


def test_before_it_is_there_it_says_that_it_is_starting() -> None:
    """UI-24: within the first moment, and pages never with an error that a hub would give up on."""
    early = Early("127.0.0.1", 0, "/services/allotment/")
    base = f"http://127.0.0.1:{early.port}/services/allotment/"
    try:
        for path, status in (
            ("health", 200), ("ready", 503), ("api/v1/me", 503), ("gate/start", 503), ("", 200),
            ("waiting/r-1", 200), ("api/v1/health", 200),
        ):  # fmt: skip
            code, body = _get(base + path)
            assert code == status, path
            assert b"tarting" in body or b"starting" in body, path
        with socket.create_connection(("127.0.0.1", early.port)) as silent:
            silent.sendall(b"GET")
        assert _get(base + "health")[0] == 200
    finally:
        held = early.hand_over()
        assert held.getsockname()[1] == early.port if held.fileno() >= 0 else True
        held.close()


def test_a_process_ends_within_ten_seconds_whoever_listens(tmp_path: Path) -> None:
    alone = Alone(tmp_path)
    alone.start()
    log = (tmp_path / "governor.log").read_text()
    assert "phase ready" in log
    headers = {"Authorization": f"token {alone.token('ann')}"}
    with httpx.stream(
        "GET", f"{alone.url}api/v1/events", headers=headers, trust_env=False
    ) as opened:
        assert opened.status_code == 200
        assert alone.process is not None
        began = time.monotonic()
        alone.process.send_signal(signal.SIGTERM)
        assert alone.process.wait(15) == 0
        assert time.monotonic() - began < 10
    with pytest.raises(httpx.ConnectError):
        _get(f"{alone.url}health")


def test_two_processes_on_one_ledger_and_the_second_takes_over(tmp_path: Path) -> None:
    first = Alone(tmp_path).start()
    asked = first.ask("ann", gpus=1, flavor="l40s")
    second = Alone(tmp_path)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTERHUB_")}
    with (tmp_path / "second.log").open("ab") as log:
        second.process = subprocess.Popen(
            [
                sys.executable, "-m", "allotment_hub.cli", "serve", "--standalone", "--tokens",
                "tokens.yaml", "--policy", "policy.yaml", "--inventory", "inventory.yaml", "--db",
                f"sqlite:///{tmp_path}/ledger.sqlite", "--port", str(second.port),
            ],
            cwd=tmp_path, env=environ, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _wait(lambda: b"standby" in _quiet(f"{second.url}health"))
        assert f"process {first.process.pid}" in (tmp_path / "second.log").read_text()  # type: ignore[union-attr]  # it runs
        first.kill()
        _wait(lambda: _quiet(f"{second.url}ready").startswith(b'{"ready":true'))
        row = second.call("ann", "GET", f"requests/{asked['id']}")
        assert row["id"] == asked["id"]
    finally:
        first.stop()
        second.stop()


def _quiet(url: str) -> bytes:
    try:
        return _get(url)[1]
    except httpx.TransportError:
        return b""


def _wait(holds: object, seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]  # a callable without arguments
        assert time.monotonic() < ends, "did not come about"
        time.sleep(0.05)


def test_no_secret_reaches_the_log(tmp_path: Path) -> None:
    """A canary in each place where a secret passes; the log is as talkative as it gets."""
    alone = Alone(tmp_path)
    tokens = json.loads((tmp_path / "tokens.yaml").read_text())
    tokens["tokens"][f"token-{CANARY}"] = {"name": "eve", "groups": []}
    (tmp_path / "tokens.yaml").write_text(json.dumps(tokens))
    (tmp_path / "config.py").write_text("c.GovernorApp.log_level = 'DEBUG'\n")
    environ = {
        **os.environ,
        "ALLOTMENT_GATE_TOKEN": f"gate-{CANARY}",
        "JUPYTERHUB_API_TOKEN": f"api-{CANARY}",
    }
    with (tmp_path / "governor.log").open("ab") as log:
        alone.process = subprocess.Popen(
            [
                sys.executable, "-m", "allotment_hub.cli", "serve", "--config", "config.py",
                "--standalone", "--tokens", "tokens.yaml", "--policy", "policy.yaml", "--inventory",
                "inventory.yaml", "--db", f"sqlite:///{tmp_path}/ledger.sqlite", "--port",
                str(alone.port), "--ip", "127.0.0.1",
            ],
            cwd=tmp_path, env=environ, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _wait(lambda: _quiet(f"{alone.url}ready").startswith(b'{"ready":true'))
        for path, headers in (
            ("api/v1/me", {"Authorization": f"token token-{CANARY}"}),
            ("api/v1/me", {"Authorization": f"Bearer wrong-{CANARY}"}),
            ("api/v1/me", {"Authorization": f"Basic {CANARY}"}),
            (f"api/v1/me?token=t-{CANARY}&_xsrf=x-{CANARY}", {}),
            (f"oauth_callback?code=c-{CANARY}&state=s-{CANARY}", {}),
            ("api/v1/me", {"Cookie": f"allotment-login=c-{CANARY}; _xsrf=x-{CANARY}"}),
            ("gate/leases", {"Authorization": f"token gate-{CANARY}"}),
            ("gate/leases", {"Authorization": f"token not-{CANARY}"}),
        ):
            _get(alone.url + path, **headers)
    finally:
        alone.stop()
    log_text = (tmp_path / "governor.log").read_text()
    assert "GET /services/allotment/api/v1/me" in log_text
    assert CANARY not in log_text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_under_load_nothing_acknowledged_is_lost(database_url: str) -> None:
    """The whole number of times: ``python -m tests.governor.crash --times 200``."""
    times = os.environ.get("ALLOTMENT_CRASHES", "8")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.governor.crash", "--times", times]
    done = subprocess.run(
        [*command, "--database", database_url],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["lost"], found["kills"]) == (0, int(times))
