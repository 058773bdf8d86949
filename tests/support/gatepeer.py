"""A small real HTTP server that speaks the gate, for tests of the hub's side alone.

It shares a number of devices among whoever asks first, queues the rest, and keeps every call.
It stands for the governor in tests where the governor's rules are not what is looked at.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from allotment_hub import gateapi
from allotment_hub.gateapi import GateError, LeaseCall, ServerCall, StartCall

TOKEN = "gate-token-of-the-test-suite"
PREFIX = "/services/allotment"


@dataclass
class GatePeer:
    """Devices, leases and a queue behind the gate's calls.

    Parameters
    ----------
    devices : int
        How many there are.
    """

    devices: int = 2
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    queue: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answer_with: tuple[int, dict[str, Any]] | None = None
    preparing_with: int | None = None
    slow: float = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._fence = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HTTPServer | None = None
        self._thread: threading.Thread | None = None

    # -- life ---------------------------------------------------------------------------------

    def up(self) -> GatePeer:
        """Listen, on the same port as before."""
        ready = threading.Event()

        async def main() -> None:
            sockets = bind_sockets(self.port, "127.0.0.1")
            self.port = sockets[0].getsockname()[1]
            self._server = HTTPServer(Application([(PREFIX + "/(.*)", _Handler, {"peer": self})]))
            self._server.add_sockets(sockets)
            self._ended = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            ready.set()
            await self._ended.wait()
            self._server.stop()
            await self._server.close_all_connections()

        self._thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def down(self) -> None:
        """Stop listening; what is granted stays granted."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(10)
            self._thread = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- what it does -------------------------------------------------------------------------

    def free(self) -> list[str]:
        held = {d["uuid"] for lease in self.leases.values() for d in lease["devices"]}
        return [f"GPU-{n}" for n in range(self.devices) if f"GPU-{n}" not in held]

    def names(self, path: str) -> list[dict[str, Any]]:
        """The bodies of all calls of one path so far."""
        return [body for name, body in self.calls if name == path]

    def lease_of(self, user: str, server: str = "") -> dict[str, Any] | None:
        found = [x for x in self.leases.values() if (x["user"], x["server"]) == (user, server)]
        return found[0] if found else None

    def start(self, call: StartCall) -> tuple[int, dict[str, Any]]:
        key = gateapi.server_key(call.user, call.server)
        held = self.lease_of(call.user, call.server)
        if held is not None:
            return 200, {"lease": held}
        free = self.free()
        count = max(1, int(call.wants["gpus"]))
        if len(free) < count:
            request = self.queue.setdefault(
                key, {"id": f"r{len(self.queue) + 1}", "state": "queued", "server": call.server}
            )
            request["position"] = list(self.queue).index(key) + 1
            request["reasons"] = [{"code": "AllInUse", "text": "All <GPUs> are in use."}]
            return 202, {"request": request}
        self.queue.pop(key, None)
        self._fence += 1
        lease: dict[str, Any] = {
            "id": f"l{self._fence}", "fence": self._fence, "user": call.user,
            "server": call.server, "tenant": "t", "class": "notebook", "pool": "default",
            "flavor": "a100", "gpus": count, "state": "granted", "term_ends_at": None,
            "devices": [
                {"node": "n1", "uuid": uuid, "index": n, "flavor": "a100", "share": 1}
                for n, uuid in enumerate(free[:count])
            ],
        }  # fmt: skip
        self.leases[lease["id"]] = lease
        return 200, {"lease": lease}

    def about(self, path: str, call: LeaseCall) -> int:
        lease = self.leases.get(call.lease)
        if path == gateapi.PREPARING and self.preparing_with is not None:
            return self.preparing_with
        if lease is None:
            return 200 if call.lease in self.ended else 404
        if call.fence < lease["fence"]:
            return 409
        if path == gateapi.ABSENT:
            del self.leases[call.lease]
            self.ended.append(call.lease)
        elif path in (gateapi.PREPARING, gateapi.READY):
            lease["state"] = {gateapi.PREPARING: "preparing", gateapi.READY: "active"}[path]
        return 200


class _Handler(RequestHandler):
    def initialize(self, peer: GatePeer) -> None:
        self.peer = peer

    def prepare(self) -> None:
        if self.request.headers.get("Authorization") != f"token {TOKEN}":
            self._problem(401, "Unauthorized", "wrong gate token")

    def _problem(self, status: int, code: str, detail: str) -> None:
        self.set_status(status)
        self.finish(json.dumps({"code": code, "title": code, "detail": detail}))

    async def post(self, path: str) -> None:
        body = json.loads(self.request.body)
        self.peer.calls.append((path, body))
        if self.peer.slow:
            await asyncio.sleep(self.peer.slow)
        if self.peer.answer_with is not None:
            status, answer = self.peer.answer_with
            self.set_status(status)
            self.finish(json.dumps(answer))
            return
        try:
            self._answer(path, body)
        except GateError as error:
            self._problem(400, "BadRequest", str(error))

    def _answer(self, path: str, body: dict[str, Any]) -> None:
        if path == gateapi.START:
            status, answer = self.peer.start(StartCall.from_json(body))
            self.set_status(status)
            self.finish(json.dumps(answer))
        elif path == gateapi.WITHDRAW:
            call = ServerCall.from_json(body)
            self.peer.queue.pop(gateapi.server_key(call.user, call.server), None)
            self.finish("{}")
        else:
            status = self.peer.about(path, LeaseCall.from_json(body))
            if status != 200:
                self._problem(status, "StaleFence" if status == 409 else "NoSuchLease", "no")
                return
            self.finish("{}")

    def get(self, path: str) -> None:
        user, server = self.get_argument("user"), self.get_argument("server", "")
        if path == gateapi.FORM:
            self.finish(
                json.dumps({
                    "tenants": [{"name": "t", "text": "Team <t>"}],
                    "flavors": [{"name": "a100", "text": "A100, 80 GiB"}],
                    "classes": [],
                })
            )  # fmt: skip
        elif path == gateapi.LEASES:
            held = self.peer.lease_of(user, server)
            self.finish(json.dumps({"leases": [held] if held else []}))
        else:
            waiting = self.peer.queue.get(gateapi.server_key(user, server))
            self.finish(json.dumps({"requests": [waiting] if waiting else []}))
