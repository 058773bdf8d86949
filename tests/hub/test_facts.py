"""What JupyterHub really does around a start, with a peer for the governor and tiny servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from allotment_hub import gateapi
from allotment_hub.gateapi import LEASE_OPTION
from allotment_hub.runtime.servers import HubServers
from tests.hub.conftest import ENVS, MakeHub
from tests.support.gatepeer import GatePeer
from tests.support.hub import RealHub

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(200)]

ONE = {"allotment": {"gpus": 1}}
EXTRA = """
c.JupyterHub.api_page_default_limit = 1
c.JupyterHub.api_page_max_limit = 1

def args(spawner):
    spawner.args = (spawner.user_options or {}).get("args", [])
c.Spawner.pre_spawn_hook = args
"""


@pytest.fixture(scope="module")
def peer() -> Iterator[GatePeer]:
    peer = GatePeer(devices=4).up()
    yield peer
    peer.down()


@pytest.fixture(scope="module", params=ENVS)
def tiny(request: pytest.FixtureRequest, make_hub: MakeHub, peer: GatePeer) -> Iterator[RealHub]:
    """A hub whose servers are up in no time."""
    users = {"ann": ["vision"], "bob": [], "cat": []}
    hub = make_hub(
        request.param, peer=peer, users=users, tiny=True, extra=EXTRA, settings={"gate_wait": 0}
    )
    yield hub
    hub.close()


@pytest.fixture(autouse=True)
def _clean(tiny: RealHub, peer: GatePeer) -> Iterator[None]:
    peer.devices = 4
    yield
    peer.devices = 4
    for name in tiny.users:
        for server in tiny.api("GET", f"users/{name}").json().get("servers", {}):
            tiny.stop_server(name, server)
    tiny.wait(lambda: not peer.leases, 30, "leases are left")
    peer.queue.clear()
    peer.calls.clear()


def service(hub: RealHub) -> HubServers:
    """The governor's client with the governor's own, smallest role."""
    token = json.loads((hub.folder / "settings.json").read_text())["configure"]["service_token"]
    return HubServers(hub.api_url, token)


async def test_the_smallest_role_is_enough(tiny: RealHub, peer: GatePeer) -> None:
    """UI-06: with pages of one user each."""
    servers = service(tiny)
    for name, server in (("ann", ""), ("ann", "x"), ("ann", "y"), ("bob", "z")):
        await servers.start(name, server, ONE)
    for name, server in (("ann", ""), ("ann", "x"), ("ann", "y"), ("bob", "z")):
        await asyncio.to_thread(tiny.wait_ready, name, server)
    seen = {(s.user, s.server): s for s in await servers.active()}
    assert set(seen) == {("ann", ""), ("ann", "x"), ("ann", "y"), ("bob", "z")}
    assert {s.state for s in seen.values()} == {"ready"}
    assert {s.lease for s in seen.values()} == set(peer.leases)
    assert all(s.started and s.last_activity for s in seen.values())
    assert await servers.groups("ann") == ("vision",)
    assert await servers.groups("bob") == ()
    assert await servers.groups("nobody") is None
    for _ in range(2):
        await servers.stop("ann", "x")
    await asyncio.to_thread(tiny.wait, lambda: not tiny.is_ready("ann", "x"))
    looked = await servers.look("ann", "x")
    assert (looked.state, looked.lease) == ("absent", None)
    assert tiny.server("ann", "x")["name"] == "x"  # stopped, not removed
    servers.close()


def test_a_pending_start_is_cancelled_without_a_phantom(tiny: RealHub, peer: GatePeer) -> None:
    """SPAWN-01, SPAWN-02: DELETE while the server comes up."""
    pending = tiny.spawn_in_background("ann", {**ONE, "args": ["--deaf"]})
    tiny.wait(lambda: tiny.server_pids("ann"), 20, "no process")
    assert tiny.server("ann")["pending"] == "spawn"
    answer = tiny.stop_server("ann")
    assert answer.status_code in (202, 204), answer.text
    pending.join(30)
    tiny.wait(lambda: not peer.leases, 30, "the lease is left")
    assert tiny.server_pids("ann") == []
    assert not tiny.is_ready("ann")
    assert tiny.start_server("ann", ONE).status_code in (201, 202)
    tiny.wait_ready("ann")


def test_who_watches_a_cancelled_start_is_not_told_that_it_is_ready(tiny: RealHub) -> None:
    pending = tiny.spawn_in_background("ann", {**ONE, "args": ["--deaf"]}, "x")
    tiny.wait(lambda: tiny.server_pids("ann", "x"), 20, "no process")
    told: list[dict[str, Any]] = []
    with tiny.client.stream(
        "GET", f"{tiny.api_url}/users/ann/servers/x/progress",
        headers={"Authorization": f"token {tiny.token}"},
    ) as stream:  # fmt: skip
        stopping = tiny.stop_in_background("ann", "x")
        for line in stream.iter_lines():
            if line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
                if told[-1].get("failed") or told[-1].get("ready"):
                    break
    stopping.join(30)
    pending.join(30)
    assert told[-1].get("failed") is True, told
    assert not any(event.get("ready") for event in told)


def test_a_server_that_dies_at_once_is_said_so_at_once(tiny: RealHub, peer: GatePeer) -> None:
    """SPAWN-12: long before the hub's own time limits."""
    answer = tiny.start_server("ann", {**ONE, "args": ["--dead"]})
    assert answer.status_code == 500
    assert "exit code 7" in answer.json()["message"]
    tiny.wait(lambda: not peer.leases, 10, "the lease is left")
    assert "exit code 7" in peer.names(gateapi.FAILED)[0]["detail"]
    assert tiny.start_server("ann", {**ONE, "args": []}).status_code in (201, 202)


def test_the_page_of_a_pending_start_knows_its_server(tiny: RealHub) -> None:
    """The Stop button of JupyterHub 6 means the default server on every page."""
    pending = tiny.spawn_in_background("ann", {**ONE, "args": ["--deaf"]}, "x")
    tiny.wait(lambda: tiny.server_pids("ann", "x"), 20, "no process")
    with contextlib.closing(tiny.browser("ann")) as browser:
        page = browser.get(f"{tiny.url}/hub/spawn-pending/ann/x").text
    assert 'var here = "x"' in page
    assert 'a[data-allotment-forward="true"]' in page
    tiny.stop_server("ann", "x")
    pending.join(30)


def test_the_event_stream_of_a_refused_start_leads_to_the_waiting_room(
    tiny: RealHub, peer: GatePeer
) -> None:
    peer.devices = 0
    browser = tiny.browser("ann")  # logging in leads to the spawn form, which forgets a refusal
    assert tiny.start_server("ann", ONE).status_code == 409
    token = tiny.user_token("ann")
    event: dict[str, Any] = {}
    with tiny.client.stream(
        "GET", f"{tiny.api_url}/users/ann/server/progress",
        headers={"Authorization": f"token {token}"},
    ) as stream:  # fmt: skip
        for line in stream.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                break
    assert event["failed"] is True
    assert (
        'href="/services/allotment/waiting/r1" data-allotment-forward="true"'
        in (event["html_message"])
    )
    with contextlib.closing(browser):
        page = browser.get(f"{tiny.url}/hub/spawn-pending/ann")
    assert "/services/allotment/waiting/r1" in page.text


def test_a_mark_is_on_the_server_as_long_as_its_lease(tiny: RealHub, peer: GatePeer) -> None:
    tiny.start_server("ann", ONE)
    (lease,) = peer.leases
    assert tiny.wait_ready("ann")["user_options"][LEASE_OPTION] == lease
    tiny.stop_server("ann")
    tiny.wait(lambda: LEASE_OPTION not in tiny.server("ann")["user_options"])
    assert peer.ended[-1] == lease


def test_two_starts_at_once_are_one(tiny: RealHub, peer: GatePeer) -> None:
    """The second POST is answered 202 and its options are ignored."""
    first = tiny.spawn_in_background("ann", {**ONE, "args": ["--deaf"]}, "x")
    tiny.wait(lambda: tiny.server_pids("ann", "x"), 20, "no process")
    second = tiny.start_server("ann", {"allotment": {"gpus": 3}}, "x")
    assert second.status_code == 202
    assert [lease["gpus"] for lease in peer.leases.values()] == [1]
    tiny.stop_server("ann", "x")
    first.join(30)


def test_a_server_that_waits_or_runs_keeps_its_name(tiny: RealHub, peer: GatePeer) -> None:
    """Servers can be renamed on JupyterHub 6; a request and a lease hang on the name."""
    if tiny.generation < 6:
        pytest.skip("JupyterHub 5 renames nothing")
    peer.devices = 0
    assert tiny.start_server("ann", ONE, "old").status_code == 409
    token = tiny.user_token("ann")
    path, body = "users/ann/servers/old", {"name": "new"}
    answer = tiny.api("PATCH", path, body, token)
    assert answer.status_code == 409
    assert "waits for GPUs" in answer.json()["message"]
    peer.queue.clear()
    assert tiny.api("PATCH", path, body, token).status_code == 200


def test_a_hub_that_is_stopped_in_order_comes_back_with_its_servers(
    tiny: RealHub, peer: GatePeer
) -> None:
    tiny.start_server("ann", ONE)
    tiny.wait_ready("ann")
    pids = tiny.server_pids("ann")
    tiny.kill_hub()
    with pytest.raises(httpx.HTTPError):
        tiny.api("GET", "")
    tiny.start()
    tiny.wait_ready("ann")
    assert tiny.server_pids("ann") == pids
    assert len(peer.leases) == 1
    assert not peer.names(gateapi.ABSENT)
