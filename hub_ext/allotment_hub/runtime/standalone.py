"""Servers that are only said to run: for the governor that stands alone.

Binder, tools and load tests have no hub. A server here "starts" after a set time and "stops" after
another; nothing is executed and no device is touched. What was said to run is forgotten when the
process ends, as after a power cut: the next governor finds the leases without servers and ends
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Unreachable
from .servers import Server, ServerState

Key = tuple[str, str]


@dataclass(slots=True)
class _Row:
    state: ServerState
    lease: str | None
    timer: asyncio.TimerHandle | None = None


@dataclass
class StandaloneServers:
    """See the module.

    Parameters
    ----------
    start_after_ms, stop_after_ms : int
        How long a start and a stop take.
    groups_of : callable
        The groups of a user; None when there is no such user.
    lease_of : callable
        The lease that a server is started for.
    reachable : bool
        False makes every call fail, as when the backend is away.
    """

    start_after_ms: int = 2_000
    stop_after_ms: int = 1_000
    groups_of: Callable[[str], tuple[str, ...] | None] = lambda _user: ()
    lease_of: Callable[[str, str], str | None] = lambda _user, _server: None
    reachable: bool = True
    rows: dict[Key, _Row] = field(default_factory=dict)
    started: list[Key] = field(default_factory=list)

    def _check(self) -> None:
        if not self.reachable:
            raise Unreachable("the stand-in for the hub is switched off")

    async def start(self, user: str, server: str, options: Mapping[str, Any]) -> None:
        """Begin to start a server; one that is up or coming up stays so."""
        self._check()
        key = (user, server)
        row = self.rows.get(key)
        if row is not None and row.state in ("pending", "ready"):
            return
        if row is not None and row.timer is not None:
            row.timer.cancel()
        self.started.append(key)
        row = self.rows[key] = _Row("pending", self.lease_of(user, server))
        row.timer = self._later(self.start_after_ms, lambda: self._become_ready(key))

    async def stop(self, user: str, server: str) -> None:
        """Begin to stop a server; one that is not there is no error."""
        self._check()
        key = (user, server)
        row = self.rows.get(key)
        if row is None or row.state == "stopping":
            return
        if row.timer is not None:
            row.timer.cancel()
        row.state = "stopping"
        row.timer = self._later(self.stop_after_ms, lambda: self.rows.pop(key, None))

    @staticmethod
    def _later(milliseconds: int, call: Callable[[], Any]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(milliseconds / 1000, call)

    def _become_ready(self, key: Key) -> None:
        row = self.rows.get(key)
        if row is not None and row.state == "pending":
            row.state = "ready"

    def lose(self, user: str, server: str) -> None:
        """Let a server vanish without a word, as one that was killed."""
        row = self.rows.pop((user, server), None)
        if row is not None and row.timer is not None:
            row.timer.cancel()

    async def look(self, user: str, server: str) -> Server:
        """The state of one server."""
        self._check()
        row = self.rows.get((user, server))
        if row is None:
            return Server(user=user, server=server, state="absent")
        return Server(user=user, server=server, state=row.state, lease=row.lease)

    async def active(self) -> Sequence[Server]:
        """All servers that are not absent."""
        self._check()
        return [
            Server(user=user, server=server, state=row.state, lease=row.lease)
            for (user, server), row in self.rows.items()
        ]

    async def groups(self, user: str) -> tuple[str, ...] | None:
        """The groups of a user."""
        self._check()
        return self.groups_of(user)

    def close(self) -> None:
        """Forget everything."""
        for row in self.rows.values():
            if row.timer is not None:
                row.timer.cancel()
        self.rows.clear()
