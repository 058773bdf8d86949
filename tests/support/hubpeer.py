"""A small real HTTP server that answers for the hub who a token belongs to."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

ACCESS = "access:services!service=allotment"


@dataclass
class HubPeer:
    """Users by token, and what was asked."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 200
    port: int = 0

    def person(self, token: str, name: str, groups: tuple[str, ...] = (), *scopes: str) -> None:
        """A token that a person holds."""
        self.users[token] = {
            "kind": "user", "name": name, "groups": list(groups), "admin": False,
            "scopes": [
                ACCESS, f"access:servers!user={name}", f"read:users:name!user={name}", *scopes,
            ],
        }  # fmt: skip

    def server(
        self, token: str, name: str, server: str, groups: tuple[str, ...] = (), *scopes: str
    ) -> None:
        """The token that a single-user server is given."""
        self.users[token] = {
            "kind": "user", "name": name, "groups": list(groups), "admin": False,
            "scopes": [
                ACCESS, f"access:servers!server={name}/{server}", f"users:activity!user={name}",
                f"read:users:activity!user={name}", f"read:users:name!user={name}", *scopes,
            ],
        }  # fmt: skip


@contextlib.asynccontextmanager
async def hub_peer() -> AsyncIterator[HubPeer]:
    peer = HubPeer()

    class Whoami(RequestHandler):
        def get(self) -> None:
            token = self.request.headers.get("Authorization", "").partition(" ")[2]
            peer.asked.append(token)
            found = peer.users.get(token)
            self.set_status(peer.status if peer.status != 200 else 200 if found else 403)
            self.finish(json.dumps(found or {"message": "no"}))

    server = HTTPServer(Application([(r"/hub/api/user", Whoami)]))
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    peer.port = sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.stop()
        await server.close_all_connections()
