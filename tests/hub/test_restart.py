"""``kill -9`` of hub, governor and both: no lease twice, no place lost, nothing untracked."""

from __future__ import annotations

from typing import Any

import pytest

from allotment_hub.gateapi import LEASE_OPTION
from tests.hub.conftest import ENVS, MakeHub
from tests.hub.test_story import ONE, leases, waiting
from tests.support.hub import RealHub

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(400)]

USERS = {"ann": ["vision"], "bob": ["nlp"], "cat": ["vision"], "dan": ["nlp"]}


def held(hub: RealHub) -> dict[str, str]:
    """Who holds which device, by all live leases; fails when one is held twice."""
    found: dict[str, str] = {}
    for name in hub.users:
        for lease in leases(hub, name):
            for device in lease["devices"]:
                assert device["uuid"] not in found, f"{device['uuid']} is leased twice"
                found[device["uuid"]] = name
    return found


def used_by_servers(hub: RealHub) -> dict[str, str]:
    """Which devices the processes that really run were started with; fails on overlap."""
    found: dict[str, str] = {}
    for name in hub.users:
        for pid in hub.server_pids(name):
            environ = hub.environment_of(pid)
            for uuid in filter(None, environ.get("CUDA_VISIBLE_DEVICES", "").split(",")):
                assert uuid not in found, f"{uuid} is used by {found.get(uuid)} and {name}"
                found[uuid] = name
    return found


def crash(hub: RealHub, what: str) -> None:
    if what in ("governor", "both"):
        hub.kill_governor()
    if what in ("hub", "both"):
        hub.kill_hub()
        hub.start()
    hub.wait_up()


@pytest.fixture(scope="module", params=ENVS)
def crashed(request: pytest.FixtureRequest, make_hub: MakeHub) -> RealHub:
    """A hub with one session running and one place in the queue."""
    hub = make_hub(request.param, users=USERS, tiny=True)
    hub.start_server("ann", {"allotment": {"gpus": 2}})
    hub.start_server("bob", {"allotment": {"gpus": 2}})
    hub.wait_ready("ann")
    hub.wait_ready("bob")
    answer = hub.start_server("dan", {"allotment": {"gpus": 1, "start": "always"}})
    assert answer.status_code == 409, answer.text
    return hub


@pytest.mark.parametrize("what", ["governor", "hub", "both"])
def test_running_and_queued_sessions_survive(crashed: RealHub, what: str) -> None:
    """SPAWN-04, SPAWN-05, SPAWN-10, UI-25."""
    before = held(crashed)
    pids = {name: crashed.server_pids(name) for name in ("ann", "bob")}
    (place,) = waiting(crashed, "dan")
    crash(crashed, what)
    for name in ("ann", "bob"):
        crashed.wait_ready(name)
        assert crashed.server_pids(name) == pids[name]
    assert held(crashed) == before == used_by_servers(crashed)
    (again,) = waiting(crashed, "dan")
    assert (again["id"], again["submitted_at"]) == (place["id"], place["submitted_at"])


def test_a_start_that_the_hub_did_not_live_to_see_ends_well(crashed: RealHub) -> None:
    """The server's process is there, its id was never stored: found by its mark, or served."""
    crashed.stop_server("ann")
    crashed.wait(lambda: not leases(crashed, "ann"), 60)
    crashed.wait(lambda: crashed.is_ready("dan"), 90, "the one in the queue is not started")
    before = dict(held(crashed))
    started = crashed.spawn_in_background("cat", ONE)
    crashed.wait(lambda: crashed.server_pids("cat"), 60, "no server of cat comes up")
    crash(crashed, "hub")
    started.join()

    def settled() -> bool:
        mine = leases(crashed, "cat")
        if crashed.is_ready("cat"):
            return bool(mine) and bool(crashed.server_pids("cat"))
        # The place is kept: it may be granted again, and waits for its owner then.
        begun = [lease for lease in mine if lease["state"] != "granted"]
        return not begun and not crashed.server_pids("cat")

    crashed.wait(settled, 150, "neither served nor ended")
    used_by_servers(crashed)
    assert before.items() <= held(crashed).items()
    answer = crashed.start_server("cat", ONE)
    assert answer.status_code in (201, 202, 400), answer.text  # 400: it runs already
    crashed.wait_ready("cat", seconds=90)


def test_servers_that_died_with_the_hub_are_noticed(crashed: RealHub) -> None:
    """SPAWN-21: the service manager took them along; their leases end within one poll."""
    for row in crashed.governor("GET", "/requests", "dan").json()["requests"]:
        if row["state"] in ("queued", "parked"):  # else it would rightly start when bob's end
            crashed.governor("DELETE", f"/requests/{row['id']}", "dan")
    crashed.kill_hub()
    for name in ("bob", "dan"):
        crashed.kill_server(name)
    crashed.start()
    crashed.wait(
        lambda: not leases(crashed, "bob") and not leases(crashed, "dan"), 120, "leases are left"
    )
    assert LEASE_OPTION not in crashed.server("bob")["user_options"]
    assert crashed.start_server("bob", {"allotment": {"gpus": 2}}).status_code in (201, 202)
    crashed.wait_ready("bob")


def test_a_server_that_is_killed_gives_its_gpus_back(crashed: RealHub) -> None:
    crashed.kill_server("bob")
    crashed.wait(lambda: not leases(crashed, "bob"), 60, "the lease is left")
    assert not crashed.is_ready("bob")


def test_the_hub_goes_down_in_order_and_comes_back(crashed: RealHub) -> None:
    """The governor is stopped first then, servers stay."""
    crashed.wait(lambda: held(crashed) == used_by_servers(crashed), 60, "something is under way")
    before = held(crashed)
    pids = {name: crashed.server_pids(name) for name in before.values()}
    crashed.stop_hub()
    assert {name: crashed.server_pids(name) for name in before.values()} == pids
    crashed.start()
    for name in set(before.values()):
        crashed.wait_ready(name)
    assert held(crashed) == before


@pytest.mark.parametrize("env", ENVS)
def test_refusals_never_end_the_hub(make_hub: MakeHub, env: str) -> None:
    """With a limit of three failures, which JupyterHub 5 would count every refusal towards."""
    extra = "\nc.Spawner.consecutive_failure_limit = 3\n"
    hub = make_hub(env, users={"guest": []}, tiny=True, extra=extra)
    codes: list[Any] = [hub.start_server("guest", ONE).status_code for _ in range(6)]
    assert all(400 <= code < 500 for code in codes), codes
    assert hub.process is not None
    with pytest.raises(Exception, match="timed out"):
        hub.process.wait(3)  # the hub would abort two seconds after the last one
    assert hub.start_server("guest", {"allotment": {"gpus": 0}}).status_code in (201, 202)
    hub.wait_ready("guest")
    hub.close()
