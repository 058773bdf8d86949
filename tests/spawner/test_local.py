"""Local processes: proof by the kernel, leftovers, a lost process id."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from jupyterhub.user import User

from allotment_hub import gateapi
from allotment_hub.spawner.carriers import find_carriers
from tests.spawner.test_ending import restart
from tests.support.boxes import Site
from tests.support.gatepeer import GatePeer
from tests.support.until import until

ONE = {"allotment": {"gpus": 1}}

# A server that answers, and a process in the background that outlives it.
SERVER = """
import http.server, os, subprocess, sys
port = int(os.environ["JUPYTERHUB_SERVICE_URL"].rsplit(":", 1)[1].split("/")[0])
if os.path.exists(sys.argv[1] + "/leave"):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Ok).serve_forever()
"""


class ScriptSpawner(SimpleLocalProcessSpawner):
    """A local spawner of a small script instead of a single-user server."""

    folder: Path

    def get_args(self) -> list[str]:
        return ["-c", SERVER, str(self.folder)]


@pytest.fixture
def local(make_site: Callable[..., Site], tmp_path: Path) -> Site:
    class Here(ScriptSpawner):
        folder = tmp_path

    return make_site(
        Here, cmd=[sys.executable], home_dir_template=str(tmp_path / "{username}"),
        interrupt_timeout=1, term_timeout=1, absence_interval=60,
    )  # fmt: skip


def carriers(lease: str) -> tuple[int, ...]:
    return find_carriers(lease, os.geteuid()).pids


async def spawned(site: Site) -> User:
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    return ann


async def test_absence_is_proved_by_the_kernel(local: Site, peer: GatePeer) -> None:
    ann = await spawned(local)
    assert carriers("l1") == (ann.spawner.pid,)
    await ann.stop()
    assert peer.ended == ["l1"]
    assert peer.names(gateapi.ABSENT)[0]["proof"] == "process"


async def test_what_a_server_leaves_behind_is_ended_first(
    local: Site, peer: GatePeer, tmp_path: Path
) -> None:
    (tmp_path / "leave").touch()
    ann = await spawned(local)
    await until(lambda: len(carriers("l1")) == 2)
    os.kill(ann.spawner.pid, signal.SIGKILL)
    await until(lambda: len(carriers("l1")) == 1)
    assert await ann.spawner.poll() is not None  # the server is dead, and the hub hears it
    await until(lambda: peer.ended == ["l1"])
    assert carriers("l1") == ()


async def test_leftovers_that_may_stay_hold_the_lease(
    local: Site, peer: GatePeer, tmp_path: Path
) -> None:
    local.config[local.spawner_class.__name__].end_leftovers = False
    (tmp_path / "leave").touch()
    ann = await spawned(local)
    await until(lambda: len(carriers("l1")) == 2)
    await ann.stop()
    assert peer.leases
    for pid in carriers("l1"):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: peer.ended == ["l1"], 15)


async def test_a_server_whose_process_id_is_lost_is_found_by_its_mark(
    local: Site, peer: GatePeer
) -> None:
    """The hub died between the start of the process and the writing of its id."""
    ann = await spawned(local)
    row = ann.orm_user.orm_spawners[""]
    row.state = {"allotment": row.state["allotment"]}
    local.db.commit()
    again = await restart(local, "ann")
    assert again.spawner.pid == 0
    assert await again.spawner.poll() is not None
    await again.stop()
    await until(lambda: peer.ended == ["l1"])
    assert carriers("l1") == ()
    ann.spawner.proc.wait()


async def test_a_stored_process_id_of_somebody_else_is_not_signalled(
    local: Site, peer: GatePeer
) -> None:
    """After a reboot a stored id may be another process; it does not carry the mark."""
    ann = await spawned(local)
    bystander = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(600)"
    )
    row = ann.orm_user.orm_spawners[""]
    row.state = {**row.state, "pid": bystander.pid}
    local.db.commit()
    os.kill(ann.spawner.pid, signal.SIGKILL)
    ann.spawner.proc.wait()
    again = await restart(local, "ann")
    try:
        assert await again.spawner.poll() is not None
        await again.stop()
        await until(lambda: peer.ended == ["l1"])
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def test_the_users_environment_cannot_say_otherwise(local: Site, peer: GatePeer) -> None:
    section = local.config[local.spawner_class.__name__]
    section.environment = {
        "CUDA_VISIBLE_DEVICES": "0,1,2,3", "NVIDIA_VISIBLE_DEVICES": "all",
        "ALLOTMENT_LEASE": "l99", "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
    }  # fmt: skip
    ann = await spawned(local)
    env = ann.spawner.get_env()
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
    assert (env["ALLOTMENT_LEASE"], env["CUDA_DEVICE_ORDER"]) == ("l1", "PCI_BUS_ID")
    bob = local.user("bob")
    await bob.spawn()
    env = bob.spawner.get_env()
    assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert "ALLOTMENT_LEASE" not in env
    await asyncio.gather(ann.stop(), bob.stop())


def test_a_listing_that_cannot_be_read_is_no_absence(tmp_path: Path) -> None:
    assert find_carriers("l1", 0, tmp_path / "nothing").blind
    assert find_carriers("l1", 0, tmp_path).blind  # no process at all is no listing
    entry = tmp_path / "123"
    entry.mkdir()
    (entry / "environ").write_bytes(b"A=1\0ALLOTMENT_LEASE=l1\0")
    (entry / "stat").write_bytes(b"123 (a b) S 1")
    found = find_carriers("l1", 0, tmp_path)
    assert (found.pids, found.blind) == ((123,), False)
    (entry / "stat").write_bytes(b"123 (a) b) Z 1")
    assert find_carriers("l1", 0, tmp_path).pids == ()
    assert find_carriers("l", 0, tmp_path).pids == ()


def test_an_unreadable_process_makes_the_answer_incomplete(tmp_path: Path) -> None:
    entry = tmp_path / "123"
    (entry / "environ").mkdir(parents=True)  # reading it fails, whoever reads
    owner: Any = entry.stat().st_uid
    assert find_carriers("l1", owner, tmp_path).blind
    assert not find_carriers("l1", owner + 1, tmp_path).blind
