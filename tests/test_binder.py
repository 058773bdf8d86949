"""What a visitor of the Binder trial finds, brought up by the script that Binder runs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.until import until

PREFIX = "/user/visitor/"


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[str]:
    """The address of the trial's governor for as long as the test runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "ALLOTMENT_TRIAL": str(tmp_path),
        "ALLOTMENT_TRIAL_PORT": str(port),
    }
    # In place of JupyterLab: something that ends when its input does.
    process = subprocess.Popen(
        [ROOT / "binder" / "start", "cat"],
        env=environment,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    yield f"http://127.0.0.1:{port}{PREFIX}proxy/absolute/{port}/services/allotment/"
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)


def _get(url: str, token: str | None = None) -> Any:
    """What the governor answers; None while it does not."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers)
    except httpx.TransportError:
        return None
    return answer.json() if answer.is_success else None


@pytest.mark.slow
async def test_a_visitor_finds_two_teams_at_work_and_one_person_waiting(
    trial: str, tmp_path: Path
) -> None:
    await until(lambda: _get(f"{trial}ready"), 60)
    eve = re.findall(r"(eve-\w+): ", (tmp_path / "tokens.yaml").read_text())[0]

    def waiting() -> list[Any]:
        answer = _get(f"{trial}api/v1/requests", eve) or {"requests": []}
        return [request for request in answer["requests"] if request["state"] == "queued"]

    (request,) = await until(waiting, 60)
    assert request["position"] == 1
    assert request["reasons"]
    assert _get(f"{trial}api/v1/me")["user"] == "ann"
