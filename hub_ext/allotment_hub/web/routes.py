"""One table of all REST calls: from it come the handlers, the OpenAPI document and a test.

A call is declared where it is written::

    @route("POST", "/leases/{id}/renew", who="user", change=True, answer=LeaseView)
    async def renew(call: Call) -> Answer: ...

There is no other way to be reachable under ``/api/v1``, so nothing is reachable that the table
does not know, and who may call it is written down.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ..views.frame import Frame, Viewer
from .identity import Identity, Role, viewer

if TYPE_CHECKING:
    from ..governor.governor import Governor
    from .site import Site

SMALL_BODY = 64 * 1024
REPORT_BODY = 256 * 1024

_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass
class Answer:
    """What a call answers with: a JSON-able ``body``, or ``raw`` bytes of ``content_type``."""

    body: Any = None
    status: int = 200
    raw: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One request, checked: who asks, with which path parameters, query and body."""

    site: Site
    identity: Identity | None
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]

    @property
    def now(self) -> int:
        """Steady milliseconds."""
        return self.governor.clock.now_ms()

    @property
    def who(self) -> Identity:
        """The identity behind a call that only known people reach."""
        if self.identity is None:
            raise RuntimeError("this route is declared to be open to anyone")
        return self.identity

    @property
    def governor(self) -> Governor:
        """The governor; a route that needs one is not called without."""
        return self.site.governor

    @property
    def viewer(self) -> Viewer:
        """Whose rows the asker may see and change under the policy in force."""
        return viewer(self.who, self.governor.state.policy)

    def frame(self) -> Frame:
        """The state as the asker may see it, now."""
        return self.site.frame(self.viewer, self.headers.get("Accept-Language"))


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call of the table.

    Parameters
    ----------
    who : Role
        The least that the asker must be. ``owner`` lets owners of any tenant in (the call then
        looks at which), ``server`` only a single-user server's own token, ``hub`` only the hub.
    change : bool
        It changes something: identity is checked afresh, XSRF applies, and a governor that does
        not decide at the moment answers 503.
    needs_governor : bool
        It reads the state, so it answers 503 until there is one.
    stream : bool
        Answered by the handler of event streams.
    servers : bool
        A single-user server's own token may make this call.
    gate : bool
        Lies beside ``/api/v1``, for the hub alone.
    identify : bool
        Open to anyone, yet looks at who asks.
    """

    method: str
    path: str
    who: Role
    summary: str
    handler: Handler
    change: bool
    needs_governor: bool = True
    fresh: bool = False
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    most_bytes: int = SMALL_BODY
    stream: bool = False
    servers: bool = True
    gate: bool = False
    identify: bool = False

    @property
    def pattern(self) -> str:
        """The regular expression of the path."""
        return _PARAMETER.sub(r"(?P<\1>[^/]+)", self.path)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(_PARAMETER.findall(self.path))


TABLE: list[Route] = []


def route(
    method: str, path: str, *, who: Role, change: bool = False, **options: Any
) -> Callable[[Handler], Handler]:
    """Declare a call. Its summary is the first line of its docstring."""

    def declare(handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").strip().split("\n", 1)[0]
        if not summary:
            raise TypeError(f"{handler.__name__} has no docstring to take the summary from")
        if any((r.method, r.path) == (method, path) for r in TABLE):
            raise TypeError(f"{method} {path} is declared twice")
        TABLE.append(
            Route(
                method=method,
                path=path,
                who=who,
                summary=summary,
                handler=handler,
                change=change,
                **options,
            )
        )
        return handler

    return declare


def by_path() -> dict[str, dict[str, Route]]:
    """The table as path → method → route."""
    table: dict[str, dict[str, Route]] = {}
    for entry in TABLE:
        table.setdefault(entry.path, {})[entry.method] = entry
    return table
