"""The governor's client to the hub, against answers that hubs have really given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from allotment_hub.gateapi import LEASE_OPTION
from allotment_hub.runtime.errors import Busy, Refused, Unreachable
from allotment_hub.runtime.servers import HubServers


def server(**more: Any) -> dict[str, Any]:
    return {
        "name": "", "ready": False, "pending": None, "stopped": True, "user_options": {},
        "started": None, "last_activity": None, **more,
    }  # fmt: skip


UP = {"ready": True, "stopped": False}


class Hub:
    """Answers as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.page = 2
        self.rows_are_servers = False
        self.link_loses_parameters = False

    def add(self, name: str, **servers: dict[str, Any]) -> None:
        named = {key.removeprefix("_"): {**value, "name": key} for key, value in servers.items()}
        self.users[name] = {"name": name, "groups": ["vision"], "servers": named}

    def listing(self, query: dict[str, list[str]]) -> dict[str, Any]:
        offset, limit = int(query["offset"][0]), min(int(query["limit"][0]), self.page)
        rows = [
            user for user in self.users.values()
            for _ in (user["servers"] if self.rows_are_servers else [0])
        ]  # fmt: skip
        items = {user["name"]: user for user in rows[offset : offset + limit]}
        following = offset + limit
        more = {"offset": following, "limit": limit, "url": "http://127.0.0.1:1/elsewhere"}
        return {
            "items": list(items.values()),
            "_pagination": {
                "offset": offset, "limit": limit, "total": len(rows),
                "next": more if following < len(rows) else None,
            },
        }  # fmt: skip


class _Api(RequestHandler):
    def initialize(self, hub: Hub) -> None:
        self.hub = hub

    def answer(self, _path: str) -> None:
        path = urlsplit(self.request.uri).path.removeprefix("/hub/api/")
        assert self.request.headers["Authorization"] == "token t"
        body = json.loads(self.request.body) if self.request.body else None
        self.hub.asked.append((self.request.method or "", path, body))
        if (told := self.hub.answers.get(self.request.method or "")) is not None:
            self.set_status(told[0])
            if told[1] != "":
                self.write(told[1] if isinstance(told[1], str) else json.dumps(told[1]))
        elif path == "users":
            self.finish(json.dumps(self.hub.listing(parse_qs(urlsplit(self.request.uri).query))))
        elif (user := self.hub.users.get(unquote(path.split("/")[1]))) is not None:
            self.finish(json.dumps(user))
        else:
            self.set_status(404)
            self.finish(json.dumps({"status": 404, "message": "Not Found"}))

    get = post = delete = answer


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub()
    http = HTTPServer(Application([(r"/hub/api/(.*)", _Api, {"hub": hub})]))
    sockets = bind_sockets(0, "127.0.0.1")
    http.add_sockets(sockets)
    hub.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/hub/api"  # type: ignore[attr-defined]  # known only now
    yield hub
    http.stop()
    await http.close_all_connections()


@pytest.fixture
async def servers(hub: Hub) -> AsyncIterator[HubServers]:
    client = HubServers(hub.url, "t")  # type: ignore[attr-defined]  # set by the fixture
    yield client
    client.close()


# -- looking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "state"),
    [
        (server(**UP), "ready"),
        (server(pending="spawn", stopped=False), "pending"),
        (server(pending="stop", stopped=False), "stopping"),
        (server(pending="check", stopped=False), "unknown"),
        (server(stopped=False), "unknown"),
        (server(), "absent"),
        (server(user_options={LEASE_OPTION: "l1"}), "stopping"),
        (server(user_options=None), "absent"),
        (server(user_options={LEASE_OPTION: 7}), "absent"),
    ],
    ids=lambda v: str(v)[:60],
)
async def test_states(hub: Hub, servers: HubServers, model: dict[str, Any], state: str) -> None:
    hub.add("ann", _=model)
    assert (await servers.look("ann", "")).state == state


async def test_no_server_and_no_user_are_absent(hub: Hub, servers: HubServers) -> None:
    hub.add("ann")
    assert (await servers.look("ann", "x")).state == "absent"
    assert (await servers.look("nobody", "")).state == "absent"
    assert await servers.groups("nobody") is None
    assert await servers.groups("ann") == ("vision",)


@pytest.mark.parametrize("answer", [(500, {}), (503, "down"), (200, "<html>"), (200, [1])])
async def test_no_answer_is_not_absence(
    hub: Hub, servers: HubServers, answer: tuple[int, Any]
) -> None:
    hub.answers["GET"] = answer
    with pytest.raises(Unreachable):
        await servers.look("ann", "")
    if answer != (200, [1]):
        with pytest.raises(Unreachable):
            await servers.active()


async def test_nobody_listening_is_unreachable() -> None:
    client = HubServers("http://127.0.0.1:1/hub/api", "t")
    for call in (client.look("ann", ""), client.active(), client.start("ann", "", {})):
        with pytest.raises(Unreachable):
            await call


@pytest.mark.parametrize("missing", ["servers", "groups"])
async def test_a_missing_scope_is_named(hub: Hub, servers: HubServers, missing: str) -> None:
    hub.add("ann")
    del hub.users["ann"][missing]
    with pytest.raises(Refused, match=f"lacks the scope read:(users:)?{missing}"):
        await (servers.groups("ann") if missing == "groups" else servers.look("ann", ""))


# -- listing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_are_servers", [False, True])
async def test_each_server_is_seen_once(
    hub: Hub, servers: HubServers, rows_are_servers: bool
) -> None:
    """UI-06: pages that count servers while their items are users."""
    hub.rows_are_servers = rows_are_servers
    hub.add("one", _a=server(**UP), _b=server(**UP), _c=server(**UP))
    hub.add("two", _=server(**UP))
    hub.add("three", _x=server(), _y=server(user_options={LEASE_OPTION: "l9"}))
    seen = await servers.active()
    assert sorted((s.user, s.server) for s in seen) == [
        ("one", "a"), ("one", "b"), ("one", "c"), ("three", "y"), ("two", ""),
    ]  # fmt: skip
    assert all(path == "users" for _, path, _ in hub.asked)


async def test_the_hubs_own_links_are_not_followed(hub: Hub, servers: HubServers) -> None:
    """UI-08: the link of this hub's page leads elsewhere; every page is asked for by ourselves."""
    hub.page = 1
    for name in ("a", "b", "c"):
        hub.add(name, _=server(**UP))
    assert len(await servers.active()) == 3
    assert len(hub.asked) == 3


async def test_a_page_that_does_not_advance_ends_the_walk(hub: Hub, servers: HubServers) -> None:
    page = {"items": [], "_pagination": {"next": {"offset": 0}}}
    hub.answers["GET"] = (200, page)
    assert await servers.active() == []
    assert len(hub.asked) == 1


async def test_an_incomplete_record_does_not_stop_the_others(hub: Hub, servers: HubServers) -> None:
    """IDLE-19, TIME-01."""
    times = [
        "2018-07-16T18:29:41.920000", "2018-07-16T18:29:41Z", "2018-07-16T20:29:41+02:00",
        "2018-07-16T18:29:41.920Z",
    ]  # fmt: skip
    hub.add("ann", **{f"_t{n}": server(**UP, last_activity=t) for n, t in enumerate(times)})
    hub.add(
        "bob", _=server(**UP), _p=server(pending="spawn"), _s=server(last_activity=times[0]),
        _w=server(**UP, last_activity="yesterday", started=7), _n=server(**UP),
    )  # fmt: skip
    hub.users["bob"]["servers"]["odd"] = "text"
    seen = {(s.user, s.server): s for s in await servers.active()}
    seconds = {seen["ann", f"t{n}"].last_activity // 1000 for n in range(4)}  # type: ignore[operator]  # none is None
    assert len(seconds) == 1
    assert seen["bob", ""].last_activity is None
    assert seen["bob", "w"].last_activity is seen["bob", "w"].started is None
    assert ("bob", "s") not in seen
    assert seen["bob", "p"].state == "pending"


# -- starting --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [201, 202])
async def test_an_accepted_start(hub: Hub, servers: HubServers, code: int) -> None:
    hub.answers["POST"] = (code, "")
    await servers.start("o'<b>/x", "a b", {"allotment": {"gpus": 1}})
    path = "users/o%27%3Cb%3E%2Fx/servers/a%20b"
    assert hub.asked == [("POST", path, {"allotment": {"gpus": 1}})]


@pytest.mark.parametrize("model", [server(**UP), server(pending="spawn", stopped=False)])
@pytest.mark.parametrize("code", [400, 500])
async def test_a_start_that_goes_on_in_spite_of_the_answer(
    hub: Hub, servers: HubServers, code: int, model: dict[str, Any]
) -> None:
    """After a slow start the hub may answer 500, and 400 for one that runs already."""
    hub.add("ann", _=model)
    hub.answers["POST"] = (code, {"message": "Unhandled error"})
    await servers.start("ann", "", {})


@pytest.mark.parametrize(
    ("code", "message", "model", "error"),
    [
        (400, "ann is pending stop", server(pending="stop"), Busy),
        (409, "has not ended yet", server(user_options={LEASE_OPTION: "l1"}), Busy),
        (429, "Too many users", server(), Busy),
        (503, "does not answer", server(), Busy),
        (500, "exit code 3", server(), Refused),
        (422, "no such GPU", server(), Refused),
        (403, "Action is not authorized with current scopes", server(), Refused),
        (404, "", None, Refused),
    ],
)
async def test_a_start_that_does_not_go_on(
    hub: Hub, servers: HubServers, code: int, message: str, model: Any, error: type[Exception]
) -> None:
    if model is not None:
        hub.add("ann", _=model)
    hub.answers["POST"] = (code, {"message": message})
    with pytest.raises(error, match=message.split(" (")[0] or "no user 'ann'"):
        await servers.start("ann", "", {})


# -- stopping --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [202, 204, 404])
async def test_a_stop_is_repeated_without_harm(hub: Hub, servers: HubServers, code: int) -> None:
    hub.answers["DELETE"] = (code, "")
    await servers.stop("ann", "x")
    await servers.stop("ann", "x")
    assert [body for _, _, body in hub.asked] == [None, None]  # and nothing is removed


@pytest.mark.parametrize(
    ("code", "model", "error"),
    [
        (500, server(pending="stop"), None),
        (500, server(), None),
        (500, server(**UP), Busy),
        (400, server(pending="spawn"), Busy),
        (403, server(**UP), Refused),
    ],
)
async def test_a_stop_is_judged_by_what_is_there(
    hub: Hub, servers: HubServers, code: int, model: Any, error: type[Exception] | None
) -> None:
    """A cancelled start slower than a second answers 500."""
    hub.add("ann", _=model)
    hub.answers["DELETE"] = (code, {"message": "no"})
    if error is None:
        await servers.stop("ann", "")
        return
    with pytest.raises(error):
        await servers.stop("ann", "")
