"""What the governor needs of the world outside. Concrete parts are built in ``app.py`` only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from ..domain.inventory import Node
from ..domain.leases import Lease

Pause = Callable[[int], Awaitable[None]]
"""Waits so many milliseconds. Injected, so that no test has to."""


SESSIONS = frozenset({"session"})
"""The kinds of work that a runtime of the hub's servers runs."""


def server_of(lease: Lease) -> str:
    """The name under which the runtime knows the work of a lease: of a session its server, of
    other work its request.
    """
    if lease.kind == "session":
        return lease.server or ""
    return lease.server or lease.request


class Sighting(Protocol):
    """What the runtime says about one server at one moment.

    ``state`` is ``ready``, ``pending`` (coming up), ``stopping``, ``absent`` or ``unknown``;
    ``absent`` is a statement of the backend, never the lack of one. ``lease`` is the id of the
    lease that the server was started for, None where it was started for none.
    """

    @property
    def user(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def lease(self) -> str | None: ...


class Runtime(Protocol):
    """Starts and stops the servers of sessions. Every call may be repeated without harm.

    Each raises ``runtime.errors.Unreachable`` when the backend does not answer, and
    ``runtime.errors.Refused`` when it says no.
    """

    async def start(self, user: str, server: str, options: Mapping[str, Any]) -> None:
        """Ask for a server to be started; returns when that is accepted, not when it is up."""

    async def stop(self, user: str, server: str) -> None:
        """Ask for a server to be stopped; a server that is not there is no error."""

    async def look(self, user: str, server: str) -> Sighting:
        """The state of one server, asked afresh."""

    async def active(self) -> Sequence[Sighting]:
        """All servers that are up, coming up or going down. Never walks all users."""

    async def groups(self, user: str) -> tuple[str, ...] | None:
        """The groups of a user as of now; None when there is no such user."""


class Journal(Protocol):
    """Commits events, several callers' together where they come at the same time."""

    @property
    def commit(self) -> Callable[..., Awaitable[Any]]:
        """Takes a sequence of events, and by name what is to be kept with them.

        Returns when all is durable; raises when it is not and never will be.
        """


class Stock(Protocol):
    """Where the nodes and their devices are known from."""

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes as of now."""
