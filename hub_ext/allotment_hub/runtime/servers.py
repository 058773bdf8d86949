"""Servers of sessions, through JupyterHub's REST API.

Every act is confirmed by asking for the state afterwards, since the hub's own answers cannot be
relied upon: a start that goes on may answer 500, one that was ignored 202, a cancelled one leaves
``ready: true`` behind. Users are never listed as a whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

from tornado.httpclient import HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from allotment_hub.clock import parse_time
from allotment_hub.gateapi import LEASE_OPTION

from .errors import Busy, Refused, Unreachable

ServerState = Literal["ready", "pending", "stopping", "absent", "unknown"]

PAGE = 100
MOST_PAGES = 1000
MOST_AT_ONCE = 16
CONNECT_S = 5.0
ANSWER_S = 30.0
"""Longer than the hub's ``slow_spawn_timeout`` of 10 s, after which it answers in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the hub says about one server at one moment.

    Parameters
    ----------
    state : str
        ``absent`` only where the spawner has confirmed that nothing runs: a server that the hub
        has given up while its lease's mark is still on it counts as ``stopping``.
    lease : str or None
        The lease that its spawner holds.
    started, last_activity : int or None
        UTC milliseconds; None where the hub has none, which is not zero.
    """

    user: str
    server: str
    state: ServerState
    lease: str | None = None
    started: int | None = None
    last_activity: int | None = None


class HubServers:
    """Starts, stops and looks at servers.

    Parameters
    ----------
    api_url : str
        The hub's API, such as ``http://127.0.0.1:8081/hub/api``.
    token : str
        The service's token.
    """

    def __init__(self, api_url: str, token: str) -> None:
        self._api = api_url.rstrip("/")
        self._token = token
        self._client: SimpleAsyncHTTPClient | None = None

    # -- acts --------------------------------------------------------------------------------

    async def start(self, user: str, server: str, options: Mapping[str, Any]) -> None:
        """Ask for a server to be started; returns when that is accepted, not when it is up.

        Raises
        ------
        Unreachable, Busy, Refused
        """
        try:
            response = await self._send("POST", _server_path(user, server), dict(options))
        except Unreachable:
            # Perhaps it arrived all the same and only the answer is lost.
            if (await self.look(user, server)).state in ("pending", "ready"):
                return
            raise
        if response.code in (201, 202):
            return
        said = _message(response)
        seen = await self.look(user, server)
        if seen.state in ("pending", "ready"):
            return
        if response.code == 404:
            raise Refused(f"the hub knows no user {user!r}")
        if response.code == 403 and "scope" in said.lower():
            raise Refused(f"the hub's role for this service lacks a scope: {said}")
        if response.code in (429, 503) or seen.state in ("stopping", "unknown"):
            raise Busy(f"the hub cannot start the server just now: {said}")
        raise Refused(said)

    async def stop(self, user: str, server: str) -> None:
        """Ask for a server to be stopped; one that is not there is no error, and none is removed.

        Raises
        ------
        Unreachable, Busy, Refused
        """
        response = await self._send("DELETE", _server_path(user, server))
        if response.code in (202, 204, 404):
            return
        seen = await self.look(user, server)
        if seen.state in ("absent", "stopping"):
            return
        said = _message(response)
        if response.code >= 500 or seen.state in ("pending", "unknown"):
            raise Busy(f"the hub cannot stop the server just now: {said}")
        raise Refused(said)

    # -- looking -----------------------------------------------------------------------------

    async def look(self, user: str, server: str) -> Server:
        """Return the state of one server, asked afresh."""
        model = await self._user(user)
        if model is None:
            return Server(user=user, server=server, state="absent")
        for seen in _servers(model):
            if seen.server == server:
                if seen.state == "stopping" and not model["servers"][server].get("pending"):
                    await self._wake(user, server)
                return seen
        return Server(user=user, server=server, state="absent")

    async def _wake(self, user: str, server: str) -> None:
        """Let the hub load a server that it has given up while its lease is not given back.

        After a restart nothing else might make it do so; the spawner then goes on with the end.
        Nothing is started meanwhile: the spawner refuses as long as the mark is there.
        """
        with contextlib.suppress(Unreachable):
            await self._send("DELETE", _server_path(user, server))

    async def active(self) -> list[Server]:
        """Return all servers that are up, coming up or going down, each once."""
        found: dict[tuple[str, str], Server] = {}
        offset = 0
        for _ in range(MOST_PAGES):
            page = await self._page(offset)
            for model in page["items"]:
                for seen in _servers(model):
                    if seen.state != "absent":
                        found[seen.user, seen.server] = seen
            further = _next_offset(page)
            if further is None or further <= offset:
                return list(found.values())
            offset = further
        raise Unreachable(f"the hub's list of active servers has no end after {MOST_PAGES} pages")

    async def groups(self, user: str) -> tuple[str, ...] | None:
        """Return the groups of a user as of now; None when there is no such user."""
        model = await self._user(user)
        if model is None:
            return None
        groups = model.get("groups")
        if not isinstance(groups, list):
            raise Refused("the hub's role for this service lacks the scope read:users:groups")
        return tuple(str(name) for name in groups)

    async def _user(self, user: str) -> Mapping[str, Any] | None:
        response = await self._send(
            "GET", f"users/{quote(user, safe='')}?include_stopped_servers=1"
        )
        if response.code == 404:
            return None
        model = _json(response)
        if not isinstance(model, dict):
            raise Unreachable("the hub's answer about a user is not an object")
        return model

    async def _page(self, offset: int) -> Mapping[str, Any]:
        # The link to the next page that the hub gives has lost parameters before: never followed.
        query = urlencode({"state": "active", "offset": offset, "limit": PAGE})
        response = await self._send("GET", f"users?{query}")
        body = _json(response)
        if isinstance(body, list):
            return {"items": body}
        if not isinstance(body, dict) or not isinstance(body.get("items"), list):
            raise Unreachable("the hub's list of active servers is not a list")
        return body

    # -- the wire ----------------------------------------------------------------------------

    async def _send(self, method: str, path: str, body: Any = None) -> HTTPResponse:
        if self._client is None:
            self._client = SimpleAsyncHTTPClient(force_instance=True, max_clients=MOST_AT_ONCE)
        request = HTTPRequest(
            f"{self._api}/{path}",
            method=method,
            body=None if body is None else json.dumps(body),
            headers={
                "Authorization": f"token {self._token}",
                "Accept": "application/jupyterhub-pagination+json, application/json",
            },
            allow_nonstandard_methods=True,
            connect_timeout=CONNECT_S,
            request_timeout=ANSWER_S,
            follow_redirects=False,
        )
        try:
            response = await self._client.fetch(request, raise_error=False)
        except (OSError, ValueError) as error:
            raise Unreachable(f"the hub does not answer: {error}") from error
        if response.code in (502, 504, 599):
            raise Unreachable(f"the hub does not answer: {response.error or response.code}")
        return response

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _server_path(user: str, server: str) -> str:
    path = f"users/{quote(user, safe='')}"
    return f"{path}/servers/{quote(server, safe='')}" if server else f"{path}/server"


def _message(response: HTTPResponse) -> str:
    try:
        body = json.loads(response.body or b"")
        text = body["message"]
    except (ValueError, TypeError, KeyError):
        text = ""
    return str(text)[:1000] or f"the hub answers {response.code}"


def _json(response: HTTPResponse) -> Any:
    if response.code == 403:
        raise Refused(f"the hub's role for this service lacks a scope: {_message(response)}")
    if response.code != 200:
        raise Unreachable(f"the hub answers {response.code}: {_message(response)}")
    try:
        return json.loads(response.body)
    except ValueError:
        raise Unreachable("the hub's answer is not JSON") from None


def _next_offset(page: Mapping[str, Any]) -> int | None:
    pagination = page.get("_pagination")
    following = pagination.get("next") if isinstance(pagination, Mapping) else None
    offset = following.get("offset") if isinstance(following, Mapping) else None
    return offset if isinstance(offset, int) and not isinstance(offset, bool) else None


def _servers(model: Any) -> Iterator[Server]:
    """Read the servers of a user model; what cannot be read does not stop the others."""
    if not isinstance(model, Mapping) or not isinstance(model.get("name"), str):
        return
    servers = model.get("servers")
    if servers is None:
        raise Refused("the hub's role for this service lacks the scope read:servers")
    for name, server in servers.items():
        if isinstance(server, Mapping):
            yield _server(model["name"], str(name), server)


def _server(user: str, name: str, model: Mapping[str, Any]) -> Server:
    options = model.get("user_options")
    mark = options.get(LEASE_OPTION) if isinstance(options, Mapping) else None
    lease = mark if isinstance(mark, str) and mark else None
    return Server(
        user=user,
        server=name,
        state=_state(model, lease),
        lease=lease,
        started=_time(model.get("started")),
        last_activity=_time(model.get("last_activity")),
    )


def _state(model: Mapping[str, Any], lease: str | None) -> ServerState:
    pending = model.get("pending")
    if pending == "spawn":
        return "pending"
    if pending == "stop":
        return "stopping"
    if pending == "check":
        return "unknown"  # after a restart, until the hub has asked the backend
    if model.get("ready"):
        return "ready"
    if model.get("stopped", True) is False and pending is None:
        return "unknown"
    return "absent" if lease is None else "stopping"


def _time(value: Any) -> int | None:
    """Read a time of the hub; servers in transition have none, and that is not an error."""
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None
