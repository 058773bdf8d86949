"""B8: what the gate and the governor cost the hub, against the same hub without them.

Two real hubs run side by side, one with the bare spawner and one governed; starts alternate
between them, so that whatever else the machine does falls on both. Then both hold many servers
that do nothing, and the processor time of the hub is compared while nobody asks for anything.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from tests.bench.common import figure
from tests.bench.stub_spawner import PORT
from tests.support.hub import RealHub
from tests.support.paths import ROOT

STARTS = 40
SERVERS = 1_000
WINDOW_S = 20.0
OPTIONS = {"allotment": {"gpus": 1, "flavor": "gpu"}}
POLICY = """
version: 1
flavors: {gpu: {model: Stub}}
tenants:
  team: {groups: [team], quotas: [{flavor: gpu, guarantee: 2000}], limits: {queued_per_user: 100}}
classes: {notebook: {kind: interactive}}
"""
INVENTORY = """
- {node: n1, devices: [{model: Stub, memory: 80GiB, count: 1000}]}
- {node: n2, devices: [{model: Stub, memory: 80GiB, count: 1000}]}
"""
BARE = """
c.JupyterHub.spawner_class = {spawner!r}
c.JupyterHub.services = c.JupyterHub.services[:1]
c.JupyterHub.load_roles = [r for r in c.JupyterHub.load_roles if r["name"] == "tester"]
c.JupyterHub.custom_scopes = {{}}
c.Spawner.pop("server_token_scopes", None)
"""
STUB = "tests.bench.stub_spawner.StubSpawner"


def run(scale: float) -> Iterator[Mapping[str, Any]]:
    """All figures; ``scale`` shortens the work, not its kind."""
    with tempfile.TemporaryDirectory() as folder:
        yield from latency(Path(folder), max(4, round(STARTS * scale)))
    with tempfile.TemporaryDirectory() as folder:
        yield from standing(Path(folder), max(20, round(SERVERS * scale)))


def latency(folder: Path, starts: int) -> Iterator[Mapping[str, Any]]:
    """Time and processor time of one start, governed beside bare."""
    users = {f"u{i}": ["team"] for i in range(2)}
    with (
        _hub(folder / "bare", users, bare="simple") as bare,
        _hub(folder / "governed", users) as governed,
    ):
        times: dict[str, list[float]] = {"bare": [], "governed": []}
        cpu = {"bare": _cpu(bare), "governed": _cpu(governed)}
        for number in range(starts):
            for name, hub in (("bare", bare), ("governed", governed)):
                times[name].append(_start_and_stop(hub, f"u{number % 2}", name == "governed"))
        spent = {
            "bare": _cpu(bare) - cpu["bare"],
            "governed": _cpu(governed) - cpu["governed"],
        }
    added = 1000 * (statistics.median(times["governed"]) - statistics.median(times["bare"]))
    reference = 1000 * statistics.median(times["bare"])
    yield figure("added_spawn_ms@median", round(added, 1), at_most=30, bare_ms=round(reference, 1))
    share = 100 * (spent["governed"] - spent["bare"]) / spent["bare"]
    yield figure("added_hub_cpu_pct_of_a_spawn", round(share, 1), at_most=2)


def standing(folder: Path, servers: int) -> Iterator[Mapping[str, Any]]:
    """Processor time of a hub that holds many servers and has nothing to do."""
    users = {f"u{i}": ["team"] for i in range(servers)}
    share: dict[str, float] = {}
    with _stub() as port:
        os.environ[PORT] = str(port)
        for name in ("bare", "governed"):
            with _hub(
                folder / name, users, bare=STUB if name == "bare" else None, stub=True
            ) as hub:
                options = OPTIONS if name == "governed" else {}
                for user in users:
                    hub.api("POST", f"users/{user}/server", options)
                began, at = _cpu(hub), time.monotonic()
                time.sleep(WINDOW_S)
                share[name] = 100 * (_cpu(hub) - began) / (time.monotonic() - at)
                if name == "governed":
                    lists = re.findall(r"GET /hub/api/users(?:\?(\S*))? ", hub.log())
    yield figure(
        f"hub_cpu_pct_of_a_core@{servers}", round(share["governed"], 2),
        at_most=5, bare=round(share["bare"], 2),
    )  # fmt: skip
    yield figure("full_lists_of_users", sum("state=" not in query for query in lists), at_most=0)


def _hub(
    folder: Path, users: Mapping[str, list[str]], bare: str | None = None, stub: bool = False
) -> RealHub:
    folder.mkdir()
    before = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    return RealHub(
        folder,
        policy=POLICY,
        inventory=INVENTORY,
        users=users,
        tiny=True,
        settings={"spawner": STUB} if stub else {},
        before=before,
        # A hub without Allotment: nobody is there to be asked, and the spawner is the bare one.
        peer=SimpleNamespace(url="http://127.0.0.1:9") if bare else None,
        extra=BARE.format(spawner=bare) if bare else "",
    )


def _start_and_stop(hub: RealHub, user: str, governed: bool) -> float:
    began = time.perf_counter()
    answer = hub.api("POST", f"users/{user}/server", OPTIONS if governed else {})
    took = time.perf_counter() - began
    assert answer.status_code == 201, answer.text  # up within the time that the hub waits
    hub.stop_server(user)
    hub.wait(lambda: not hub.is_ready(user), 30, "the server did not stop")
    return took


def _cpu(hub: RealHub) -> float:
    """Seconds of processor time that the hub's own process has used."""
    assert hub.process is not None
    times = psutil.Process(hub.process.pid).cpu_times()
    return times.user + times.system


@contextlib.contextmanager
def _stub() -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("X-JupyterHub-Version", "6")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
