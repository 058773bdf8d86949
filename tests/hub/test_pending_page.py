"""The hub's page of a pending start, with what is mended in it, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.playing import play
from tests.hub.conftest import ENVS, MakeHub
from tests.hub.test_facts import EXTRA, ONE
from tests.support.gatepeer import GatePeer
from tests.support.hub import RealHub

pytestmark = [
    pytest.mark.browser, pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip


class Host:
    """What a story asks this side to do."""

    def __init__(self, hub: RealHub, peer: GatePeer) -> None:
        self.hub = hub
        self.peer = peer

    def begin(self, user: str, server: str) -> bool:
        self.hub.spawn_in_background(user, {**ONE, "args": ["--deaf"]}, server)
        return bool(self.hub.wait(lambda: self.hub.server_pids(user, server), 20))

    def stopped(self, user: str, server: str) -> bool:
        self.hub.wait(lambda: not self.hub.server_pids(user, server), 20, "it runs on")
        self.hub.wait(lambda: not self.peer.leases, 20, "the lease is left")
        return True

    def restart(self) -> bool:
        self.hub.kill_hub()
        self.hub.start()
        return True


@pytest.fixture(scope="module", params=ENVS)
def host(request: pytest.FixtureRequest, make_hub: MakeHub) -> Iterator[Host]:
    peer = GatePeer(devices=1).up()
    hub = make_hub(request.param, peer=peer, users={"ann": []}, tiny=True, extra=EXTRA)
    yield Host(hub, peer)
    hub.close()
    peer.down()


def story(host: Host, name: str) -> None:
    play("../hub/pending.mjs", name, host, {"url": f"{host.hub.service_url}/", "hub": host.hub.url})


def test_who_must_wait_is_taken_to_the_waiting_room(host: Host) -> None:
    host.peer.devices, host.peer.slow = 0, 3
    story(host, "who_must_wait_is_taken_to_the_waiting_room")
    host.peer.devices, host.peer.slow = 1, 0
    host.peer.queue.clear()


def test_the_stop_button_stops_the_server_of_its_page(host: Host) -> None:
    if host.hub.generation < 6:
        pytest.skip("JupyterHub 5 has no such button")
    story(host, "the_stop_button_stops_the_server_of_its_page")


def test_a_hub_that_restarts_is_noticed(host: Host) -> None:
    story(host, "a_hub_that_restarts_is_noticed")
