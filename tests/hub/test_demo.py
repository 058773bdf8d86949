"""The demonstration: its story holds on a real hub, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from allotment_hub.cli import main
from allotment_hub.demo.folder import MARK, make_setup, write_files
from allotment_hub.demo.waiting import DemoError, Interrupted, Patience, WrongUse
from allotment_hub.policyfile import load_inventory, load_policy
from tests.support.hub import ENVIRONMENTS, free_ports

STEPS = 9


def left_of(folder: Path) -> list[psutil.Process]:
    """What still runs of the demonstration in a folder."""
    mark = json.loads((folder / "settings.json").read_text())["mark_value"]
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def begin(env: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "ALLOTMENT_"))}
    return subprocess.Popen(
        [str(ENVIRONMENTS[env] / "bin" / "allotment-hub"), "demo", "--dir", str(folder), *more],
        env=keep, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.fixture
def _ended(tmp_path: Path) -> Iterator[None]:
    """Whatever a test that failed has left is ended."""
    yield
    if (tmp_path / "demo" / "settings.json").exists():
        for process in left_of(tmp_path / "demo"):
            process.kill()


@pytest.mark.hub
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("env", ["hub6", "hub5"])
@pytest.mark.usefixtures("_ended")
def test_the_main_story_holds_and_nothing_is_left(env: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    running = begin(env, folder, "--check")
    said, _ = running.communicate(timeout=560)
    assert running.returncode == 0, said + (folder / "hub.log").read_text()[-4000:]
    assert said.count("   ok, ") == STEPS, said
    assert "Everything holds" in said
    assert left_of(folder) == []


@pytest.mark.hub
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("_ended")
def test_an_interrupt_ends_all_of_it_and_the_folder_can_be_used_again(tmp_path: Path) -> None:
    folder, port = tmp_path / "demo", free_ports(1)[0]
    for run in ("first", "second"):
        running = begin("hub6", folder, "--port", str(port))
        assert running.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = running.stdout.readline()
            assert line, said
            said += line
        assert f"http://127.0.0.1:{port}" in said
        assert ("Going on where" in said) == (run == "second")
        left = " ".join(word for process in left_of(folder) for word in process.cmdline())
        for part in ("jupyterhub_config.py", "configurable-http-proxy", "allotment_hub.cli"):
            assert part in left
        running.send_signal(signal.SIGINT)
        rest, _ = running.communicate(timeout=60)
        assert running.returncode == 0, rest
        assert "nothing is left running" in rest
        assert left_of(folder) == []


def test_the_secrets_are_for_this_user_only(tmp_path: Path) -> None:
    first, second = (make_setup(tmp_path, None) for _ in range(2))
    write_files(first)
    assert (tmp_path / "settings.json").stat().st_mode & 0o077 == 0
    assert first.password != second.password
    assert len(first.admin_password) >= 32  # what JupyterHub wants of one


def test_its_policy_fits_its_inventory(tmp_path: Path) -> None:
    write_files(make_setup(tmp_path, None))
    nodes = load_inventory(tmp_path / "inventory.yaml")
    assert sum(len(node.devices) for node in nodes) == 8
    loaded = load_policy(tmp_path / "policy.yaml", inventory=nodes)
    assert loaded.warnings == ()
    assert set(loaded.policy.tenants) == {"vision", "nlp", "robotics"}


def test_a_port_that_is_taken_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["demo", "--dir", str(tmp_path / "new"), "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is taken" in capsys.readouterr().err


def test_a_folder_with_something_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    assert main(["demo", "--dir", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_story_begins_in_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("settings.json", "allotment.sqlite"):
        (tmp_path / name).touch()
    assert main(["demo", "--check", "--dir", str(tmp_path)]) == 2
    assert "begins one in a new folder" in capsys.readouterr().err


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_wrong_usage(port: int, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="from 1 to 65535"):
        make_setup(tmp_path, port)


def test_waiting_ends_when_it_is_so_takes_too_long_or_is_told() -> None:
    patience = Patience()
    answers = iter([None, 0, "so"])
    assert patience.until(lambda: next(answers), 60, "it") == "so"
    with pytest.raises(DemoError, match="the moon falls: not within 0 s"):
        patience.until(lambda: False, 0, "the moon falls")
    patience.tell()
    since = time.monotonic()
    with pytest.raises(Interrupted):
        patience.until(lambda: False, 60, "it")
    assert time.monotonic() - since < 30
