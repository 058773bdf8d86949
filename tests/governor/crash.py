"""Kills the governor under load, again and again, and looks for what was acknowledged and is gone.

``python -m tests.governor.crash --database URL --times 200 [--seed N]``. The governor runs in a
forked process with everything loaded, so that a life is a fraction of a second; the load comes over
real HTTP from threads of this process. Prints one JSON line; exit code 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from allotment_hub.ledger import Ledger
from tests.support.governed import PREFIX, governed, token_of

POLICY = """
version: 1
flavors: {l40s: {model: L40S, memory: 48GiB}}
tenants:
  vision: {groups: [vision], quotas: [{flavor: l40s, guarantee: 20, ceiling: 40, lend: 20}]}
  nlp: {groups: [nlp], quotas: [{flavor: l40s, guarantee: 20, ceiling: 40, lend: 20}]}
classes:
  notebook: {kind: interactive, borrow: true, interruptible: stateless}
"""
INVENTORY = """
- {node: n1, devices: [{model: "NVIDIA L40S", memory: 48GiB, count: 20}]}
- {node: n2, devices: [{model: "NVIDIA L40S", memory: 48GiB, count: 20}]}
"""
CLIENTS = 4
READY_WITHIN_S = 30.0


def child(folder: Path, database: str, handed: socket.socket) -> None:
    """The governor until it is killed; it says its port once it decides."""

    async def live() -> None:
        async with governed(
            folder, policy=POLICY, inventory=INVENTORY, database=database, wait_for="ready"
        ) as world:
            handed.sendall(f"{world.url}\n".encode())
            await asyncio.Event().wait()

    asyncio.run(live())


class Load:
    """What one life was asked, and what it acknowledged."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.random = random.Random(seed)
        self.acknowledged: dict[str, str] = {}
        self.ended: set[str] = set()
        self.keys: dict[str, str] = {}
        self.faults: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n, self.random.random()))
            for n in range(CLIENTS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, seed: float) -> None:
        dice = random.Random(seed)
        who = ("ann", "bob")[number % 2]
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                key = f"{self.port}-{number}-{dice.random()}"
                body = {
                    "gpus": dice.choice((1, 1, 2)),
                    "flavor": "l40s",
                    "server": f"s{dice.random()}",
                }
                status, row = call(self.port, who, "POST", "/requests", body, key)
                if status != 201:
                    self.faults.append(f"submit: {status} {row}")
                    return
                self.acknowledged[row["id"]] = who
                self.keys[key] = row["id"]
                if dice.random() < 0.7:
                    status, row = call(self.port, who, "DELETE", f"/requests/{row['id']}")
                    if status == 200 and row["state"] in ("cancelled", "done"):
                        self.ended.add(row["id"])


def call(
    port: int, who: str, method: str, path: str, body: Any = None, key: str | None = None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Authorization": f"token {token_of(who)}", "Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, f"{PREFIX}api/v1{path}", text, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


def fork(folder: Path, database: str) -> tuple[int, int]:
    """(pid, port) of a governor that decides."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            child(folder, database, theirs)
        finally:
            os._exit(1)
    theirs.close()
    ours.settimeout(READY_WITHIN_S)
    with ours:
        text = ours.recv(200).decode()
    if not text:
        raise RuntimeError("the governor did not come up")
    return pid, int(text.split(":")[2].split("/")[0])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def check(port: int, load: Load) -> list[str]:
    """What the life before acknowledged and this one does not know."""
    lost = [*load.faults]
    for request_id, who in load.acknowledged.items():
        status, row = call(port, who, "GET", f"/requests/{request_id}")
        if status != 200:
            lost.append(f"request {request_id}: {status} {row}")
        elif request_id in load.ended and row["state"] not in ("cancelled", "done"):
            lost.append(f"request {request_id} was ended and is {row['state']}")
    for key, request_id in list(load.keys.items())[-3:]:
        who = load.acknowledged[request_id]
        status, row = call(port, who, "POST", "/requests", {"gpus": 9}, key)
        if status != 409:
            lost.append(f"key {key}: {status} {row}")
    return lost


def crash(database: str, times: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill so many lives; what was lost and how much was acknowledged."""
    dice = random.Random(seed)
    lost: list[str] = []
    acknowledged = 0
    before: Load | None = None
    for _ in range(times):
        pid, port = fork(folder, database)
        try:
            if before is not None:
                lost += check(port, before)
            load = Load(port, dice.randrange(1 << 30))
            load.start()
            time.sleep(dice.uniform(0.02, 0.4))
        finally:
            kill(pid)
        load.join()
        acknowledged += len(load.acknowledged)
        before = load
    pid, port = fork(folder, database)
    try:
        if before is not None:
            lost += check(port, before)
    finally:
        kill(pid)
    with contextlib.closing(Ledger.open(database)) as ledger:
        broken = ledger.verify().broken
        lost += [] if broken is None else [f"the audit chain is broken at {broken}"]
        lost += ledger.differences()
    return {"kills": times, "acknowledged": acknowledged, "lost": len(lost), "what": lost[:10]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.governor.crash")
    parser.add_argument("--database", required=True)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = crash(options.database, options.times, options.seed, Path(folder))
    print(json.dumps(found))
    return 1 if found["lost"] or not found["acknowledged"] else 0


if __name__ == "__main__":
    sys.exit(main())
