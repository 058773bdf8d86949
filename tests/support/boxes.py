"""A small container runtime with its spawner, and JupyterHub's own user object around it.

The runtime is real as far as a spawner can tell (a started box answers HTTP), and can be told to
misbehave in the ways in which real ones do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jupyterhub import orm, roles
from jupyterhub.auth import DummyAuthenticator
from jupyterhub.objects import Hub
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from traitlets.config import Config

from allotment_hub.spawner import governed
from tests.support.gatepeer import TOKEN, GatePeer


class _Statsd:
    """JupyterHub 5 counts in it; nobody looks."""

    def incr(self, *_: object) -> None:
        return


@dataclass
class Runtime:
    """Boxes by name, and what is wrong with the runtime at the moment."""

    boxes: dict[str, int] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    poll_fault: Callable[[], Any] | None = None
    stop_fault: Callable[[], Any] | None = None
    before_start: Callable[[], Any] | None = None
    dies_at_once: bool = False

    def __post_init__(self) -> None:
        self._servers: dict[str, asyncio.Server] = {}

    async def run(self, name: str, environment: dict[str, str]) -> int:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        self._servers[name] = server
        self.boxes[name] = server.sockets[0].getsockname()[1]
        self.environments[name] = environment
        port = self.boxes[name]
        if self.dies_at_once:
            self.end(name)
        return port

    def end(self, name: str) -> None:
        self.boxes.pop(name, None)
        server = self._servers.pop(name, None)
        if server is not None:
            server.close()

    def close(self) -> None:
        for name in list(self._servers):
            self.end(name)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()


class BoxSpawner(Spawner):
    """A plain spawner of a third party. Keeps no state: a box is named after its server."""

    runtime: Runtime

    @property
    def box(self) -> str:
        return f"{self.user.name}|{self.name}"

    async def start(self) -> str:
        self.runtime.calls.append("start")
        if self.runtime.before_start is not None:
            await self.runtime.before_start()
        port = await self.runtime.run(self.box, self.get_env())
        return f"http://127.0.0.1:{port}"

    async def poll(self) -> int | None:
        self.runtime.calls.append("poll")
        if self.runtime.poll_fault is not None:
            answer = await self.runtime.poll_fault()
            if answer != "truth":
                return answer  # type: ignore[no-any-return]  # an exit code, as the test says
        return None if self.box in self.runtime.boxes else 3

    async def stop(self, now: bool = False) -> None:
        self.runtime.calls.append("stop")
        if self.runtime.stop_fault is not None:
            await self.runtime.stop_fault()
        self.runtime.end(self.box)


class Site:
    """What a hub keeps in its process: a database, users, settings.

    Parameters
    ----------
    peer : GatePeer
    spawner_class : type
        The class to be governed.
    traits : mapping
        Traits of the governed class.
    """

    def __init__(
        self, peer: GatePeer, spawner_class: type = BoxSpawner, config: Config | None = None,
        **traits: Any,
    ) -> None:  # fmt: skip
        self.peer = peer
        self.runtime = Runtime()
        self.db = orm.new_session_factory("sqlite:///:memory:")()
        for role in roles.get_default_roles():
            roles.create_role(self.db, role)
        self.db.add(orm.OAuthClient(identifier="jupyterhub", secret="s", redirect_uri="/"))
        self.db.commit()
        runtime = self.runtime
        self.spawner_class = governed(
            type(spawner_class.__name__, (spawner_class,), {"runtime": runtime})
        )
        self.config = Config() if config is None else config
        section = self.config[self.spawner_class.__name__]
        fast: dict[str, Any] = {
            "governor_url": peer.url, "gate_token": TOKEN, "gate_wait": 0, "gate_timeout": 3,
            "absence_interval": 0.1, "poll_limit": 0.3, "start_watch": 0.05, "http_timeout": 5,
            "start_timeout": 10,
        }  # fmt: skip
        for name, value in {**fast, **traits}.items():
            section[name] = value
        self.settings: dict[str, Any] = {
            "config": self.config,
            "spawner_class": self.spawner_class,
            "authenticator": DummyAuthenticator(),
            "hub": Hub(base_url="/hub/", port=8081, routespec="/", connect_ip="127.0.0.1"),
            "base_url": "/",
            "internal_ssl": False,
            "statsd": _Statsd(),  # of JupyterHub 5
        }

    def user(self, name: str, *groups: str) -> User:
        """A user, as the hub has it after login."""
        known = orm.User.find(self.db, name)
        if known is None:
            known = orm.User(name=name)
            self.db.add(known)
            for group in groups:
                row = orm.Group.find(self.db, group) or orm.Group(name=group)
                self.db.add(row)
                row.users.append(known)
            self.db.commit()
            roles.assign_default_roles(self.db, entity=known)
        return User(known, self.settings, self.db)

    async def close(self) -> None:
        """Leave nothing behind in the loop."""
        self.runtime.close()
        self.db.close()
