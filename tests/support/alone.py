"""A real governor without a hub, in a process of its own: for pages, commands and clients."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PREFIX = "/services/allotment/"
NASTY = "<img src=x onerror=alert(1)> \"q\" 's' & 名"

POLICY: dict[str, Any] = {
    "version": 1,
    "admins": ["group:gpu-admins"],
    "flavors": {
        "a100-80g": {"model": "A100.*80GB", "memory": "80GiB"},
        "l40s": {"model": "L40S", "memory": "48GiB"},
    },
    "pools": {"interactive": {"classes": ["notebook", "experiment"]}},
    "tenants": {
        "vision": {
            "groups": ["vision"],
            "owners": ["user:lin"],
            "quotas": [
                {"pool": "interactive", "flavor": "a100-80g", "guarantee": 2, "ceiling": 4},
                {"pool": "interactive", "flavor": "l40s", "guarantee": 1, "ceiling": 2},
            ],
        },
        "nlp": {
            "groups": ["nlp"],
            "quotas": [
                {"pool": "interactive", "flavor": "a100-80g", "guarantee": 2, "ceiling": 4},
            ],
        },
    },
    "classes": {
        "notebook": {
            "kind": "interactive", "priority": 100, "interruptible": "stateless", "borrow": True,
            "duration": {"default": "4h", "max": "12h"}, "claim_window": "10m",
        },
        "experiment": {"kind": "interactive", "priority": 50, "interruptible": "no"},
    },
    "borrowing": {"term": "2h", "renewals": 2, "notice": "15m", "protected": "30m"},
}  # fmt: skip

INVENTORY: list[dict[str, Any]] = [
    {
        "node": "n1", "driver": "570.86",
        "devices": [{"model": "NVIDIA A100-SXM4-80GB", "memory": "80GiB", "count": 4}],
    },
    {
        "node": "n2", "driver": "570.86",
        "devices": [{"model": "NVIDIA L40S", "memory": "48GiB", "count": 2}],
    },
]  # fmt: skip

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"groups": ["vision"]},
    "lin": {"groups": ["vision"]},
    "bob": {"groups": ["nlp"]},
    "cyd": {"groups": ["nlp", "vision"]},
    "guest": {"groups": []},
    "root": {"groups": ["gpu-admins"], "admin": True},
    NASTY: {"groups": ["nlp"]},
}


class Alone:
    """One governor with its files in a folder.

    Parameters
    ----------
    folder : Path
    policy, inventory : mappings in the notation of their files
    start_after : str
        How long a stand-in server takes to come up.
    """

    def __init__(
        self,
        folder: Path,
        policy: dict[str, Any] = POLICY,
        inventory: list[dict[str, Any]] = INVENTORY,
        start_after: str = "1s",
    ) -> None:
        self.folder = folder
        self.start_after = start_after
        self.port = _free_port()
        (folder / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
        (folder / "inventory.yaml").write_text(json.dumps(inventory), encoding="utf-8")
        tokens = {self.token(name): {"name": name, **facts} for name, facts in PEOPLE.items()}
        (folder / "tokens.yaml").write_text(json.dumps({"tokens": tokens}), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def token(name: str) -> str:
        return f"token-of-{name.encode().hex()[:24]:0>24}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def start(self) -> Alone:
        """Start it and return when it decides."""
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith(("JUPYTERHUB_", "ALLOTMENT_"))
        }
        with (self.folder / "governor.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "allotment_hub.cli", "serve", "--standalone",
                    "--tokens", "tokens.yaml", "--policy", "policy.yaml",
                    "--inventory", "inventory.yaml",
                    "--db", f"sqlite:///{self.folder}/ledger.sqlite",
                    "--port", str(self.port), "--start-after", self.start_after,
                    "--stop-after", "0s",
                ],
                cwd=self.folder, env=environ, stdout=log, stderr=log,
            )  # fmt: skip
        ends = time.monotonic() + 60
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > ends:
                text = (self.folder / "governor.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"the governor did not come up:\n{text[-4000:]}")
            time.sleep(0.05)
        return self

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self.url}ready", timeout=2):  # noqa: S310  # our own loopback address
                return True
        except (URLError, OSError):
            return False

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        """One REST call as somebody; the answer, or the problem of a refusal."""
        request = Request(  # noqa: S310  # our own loopback address
            f"{self.url}api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"token {self.token(who)}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310  # our own loopback address
                return json.loads(answer.read() or b"{}")
        except HTTPError as error:
            with error:
                return json.loads(error.read())

    def ask(self, who: str, **wants: Any) -> dict[str, Any]:
        """Ask for a session; the request as answered."""
        answer: dict[str, Any] = self.call(who, "POST", "requests", {"kind": "session", **wants})
        return answer

    def wait_for(self, who: str, request: str, state: str, seconds: float = 30) -> dict[str, Any]:
        """The lease of a request once it is in a state."""
        return self.wait_until(lambda: self.call(who, "GET", f"leases/{request}"), state, seconds)

    def wait_until(
        self, look: Callable[[], dict[str, Any]], state: str, seconds: float = 30
    ) -> dict[str, Any]:
        """What is looked at, once it is in a state."""
        ends = time.monotonic() + seconds
        while (row := look()).get("state") != state:
            assert time.monotonic() < ends, f"it did not become {state}: {row}"
            time.sleep(0.05)
        return dict(row)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
