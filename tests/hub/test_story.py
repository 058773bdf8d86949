"""A real hub with the real governor and real single-user servers, from start to return.

The tests of this module use one hub in turn; each leaves it without sessions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from allotment_hub.gateapi import LEASE_OPTION
from tests.support.hub import RealHub

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(300)]

ONE = {"allotment": {"gpus": 1}}


def leases(hub: RealHub, user: str) -> list[dict[str, Any]]:
    answer = hub.governor("GET", "/leases", user)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["leases"]
    return [lease for lease in found if lease["user"] == user and lease["state"] != "released"]


def faults(hub: RealHub) -> float:
    counts = hub.metric("jupyterhub_server_spawn_duration_seconds_count")
    return sum(value for key, value in counts.items() if 'status="error"' in key)


def waiting(hub: RealHub, user: str) -> list[dict[str, Any]]:
    answer = hub.governor("GET", "/requests", user)
    assert answer.status_code == 200, answer.text
    return [r for r in answer.json()["requests"] if r["state"] in ("queued", "parked")]


@pytest.fixture(autouse=True)
def _clean(hub: RealHub) -> Iterator[None]:
    yield
    for name in hub.users:
        for request in waiting(hub, name):
            hub.governor("DELETE", f"/requests/{request['id']}", name)
        path = f"users/{quote(name, safe='')}"
        for server in hub.api("GET", path).json().get("servers", {}):
            hub.stop_server(name, server)
    hub.wait(lambda: not any(leases(hub, name) for name in hub.users), 60, "leases are left")


def test_within_the_guarantee_it_starts_at_once(hub: RealHub) -> None:
    answer = hub.start_server("ann", ONE)
    assert answer.status_code in (201, 202), answer.text
    model = hub.wait_ready("ann")
    (lease,) = hub.wait(lambda: [x for x in leases(hub, "ann") if x["state"] == "active"])
    assert (lease["basis"], lease["tenant"]) == ("guaranteed", "vision")
    assert model["user_options"][LEASE_OPTION] == lease["id"]
    env = hub.server_environment("ann")
    assert env["CUDA_VISIBLE_DEVICES"] == lease["devices"][0]["uuid"]
    assert env["ALLOTMENT_LEASE"] == lease["id"]

    # The server's own token: its owner's rows, and nobody else's (UI-01, UI-02).
    token = {"Authorization": f"token {env['JUPYTERHUB_API_TOKEN']}"}
    mine = hub.client.get(f"{env['ALLOTMENT_URL']}/api/v1/me", headers=token)
    assert mine.status_code == 200, mine.text
    assert mine.json()["user"] == "ann"
    others = hub.api("GET", "users/bob", token=env["JUPYTERHUB_API_TOKEN"])
    assert others.status_code in (403, 404)

    assert hub.stop_server("ann").status_code in (202, 204)
    hub.wait(lambda: not leases(hub, "ann"))
    assert LEASE_OPTION not in hub.server("ann")["user_options"]


def test_a_borrowed_gpu_goes_back_and_the_one_who_waits_starts_by_itself(hub: RealHub) -> None:
    hub.start_server("ann", {"allotment": {"gpus": 2}})
    hub.start_server("cat", ONE)
    hub.start_server("bob", ONE)
    for name in ("ann", "cat", "bob"):
        hub.wait_ready(name)
    (borrowed,) = leases(hub, "cat")
    assert (borrowed["basis"], borrowed["lenders"]) == ("borrowed", {"nlp": 1})

    answer = hub.start_server("dan", {"allotment": {"gpus": 1, "start": "always"}})
    assert answer.status_code == 409, answer.text
    assert "number 1 in the queue" in answer.json()["message"]
    (place,) = waiting(hub, "dan")
    assert place["reasons"][0]["code"] == "WaitingForReturn"
    assert f"/services/allotment/waiting/{place['id']}" in answer.json()["message"]

    hub.wait_ready("dan", seconds=90)
    assert not hub.is_ready("cat")
    assert leases(hub, "dan")[0]["basis"] == "guaranteed"
    assert hub.is_ready("ann")
    assert hub.is_ready("bob")


def test_no_group_no_gpu_and_no_failure(hub: RealHub) -> None:
    """Neither the refusal nor its repetition is a malfunction (SPAWN-16, SPAWN-18)."""
    before = faults(hub)
    for _ in range(3):
        answer = hub.start_server("guest", ONE)
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["message"]
    if hub.generation >= 6:  # JupyterHub 5 has no way to tell a refusal from a fault
        assert faults(hub) == before
    assert hub.start_server("guest", {}).status_code in (201, 202)
    hub.wait_ready("guest")
    assert hub.server_environment("guest")["CUDA_VISIBLE_DEVICES"] == ""


def test_what_can_never_be_met_does_not_wait(hub: RealHub) -> None:
    """SPAWN-14."""
    answer = hub.start_server("bob", {"allotment": {"gpus": 1, "flavor": "h100"}})
    assert 400 <= answer.status_code < 500, answer.text
    assert "h100" in answer.json()["message"]
    assert waiting(hub, "bob") == []


def test_three_servers_at_once_are_counted_as_one_step(hub: RealHub) -> None:
    """SPAWN-23: the limit is two GPUs a user."""
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda n: hub.start_server("eve", ONE, n), ["a", "b", "c"]))
    codes = sorted(answer.status_code for answer in answers)
    assert codes[2] == 409, [answer.text for answer in answers]
    assert set(codes[:2]) <= {201, 202}
    (place,) = waiting(hub, "eve")
    assert place["reasons"][0]["code"] == "UserLimitReached"
    assert len(leases(hub, "eve")) == 2


def test_cancelled_before_its_turn_it_is_gone_from_the_queue(hub: RealHub) -> None:
    """SPAWN-01: and a repeated DELETE does no harm."""
    hub.start_server("ann", {"allotment": {"gpus": 2}})
    hub.wait_ready("ann")
    hub.start_server("ann", ONE, "second")
    (place,) = waiting(hub, "ann")
    answer = hub.governor("DELETE", f"/requests/{place['id']}", "ann")
    assert answer.status_code in (200, 204), answer.text
    assert waiting(hub, "ann") == []
    for _ in range(2):
        assert hub.stop_server("ann", "second").status_code in (202, 204)


def test_a_hostile_name_is_carried_safely(hub: RealHub) -> None:
    name = "o'<b>ä &\"y"
    answer = hub.start_server(name, ONE)
    assert answer.status_code in (201, 202), answer.text
    hub.wait_ready(name)
    assert leases(hub, name)[0]["user"] == name


def test_the_hubs_own_pages_lead_to_the_waiting_room(hub: RealHub) -> None:
    hub.start_server("ann", {"allotment": {"gpus": 2}})
    hub.wait_ready("ann")
    with contextlib.closing(hub.browser("ann")) as browser:
        form = browser.get(f"{hub.url}/hub/spawn/ann/second")
        assert 'name="allotment_gpus"' in form.text
        assert "/services/allotment/spawn?server=second" in form.text
        option = "opt-allotment_gpus" if hub.generation >= 6 else "allotment_gpus"
        by_link = browser.get(f"{hub.url}/hub/spawn/ann/second?{option}=1")
        assert "A link cannot start a session with GPUs" in by_link.text
        assert waiting(hub, "ann") == []
        answer = browser.post(
            f"{hub.url}/hub/spawn/ann/second",
            params={"_xsrf": next(c.value for c in browser.cookies.jar if c.name == "_xsrf")},
            data={"allotment_gpus": "1"},
        )
        (place,) = waiting(hub, "ann")
        room = f"/services/allotment/waiting/{place['id']}"
        assert room in answer.text
        if answer.status_code == 409:
            assert answer.headers["Refresh"] == f"0; url={room}"
        assert browser.get(f"{hub.url}{room}").status_code == 200


@pytest.fixture
def _governor_back(hub: RealHub) -> Iterator[None]:
    yield
    hub.wait_up()


@pytest.mark.usefixtures("_governor_back")
def test_without_a_governor_only_gpus_wait(hub: RealHub) -> None:
    hub.start_server("ann", ONE)
    hub.wait_ready("ann")
    lease = leases(hub, "ann")[0]["id"]
    pid = hub.governor_pid()
    hub.kill_governor()
    answer = hub.start_server("bob", ONE)
    assert answer.status_code == 503, answer.text
    assert "Sessions without GPUs start as usual" in answer.json()["message"]
    # None at all would be those of the last time, as the hub has it.
    assert hub.start_server("cat", {"allotment": {"gpus": 0}}).status_code in (201, 202)
    hub.wait_ready("cat")
    assert hub.is_ready("ann")
    # The hub brings the governor back, which finds what it had granted.
    hub.wait(lambda: hub.governor_pid() not in (None, pid), 90, "no governor comes back")
    hub.wait_up()
    assert [x["id"] for x in leases(hub, "ann")] == [lease]
    assert hub.start_server("bob", ONE).status_code in (201, 202)
    hub.wait_ready("bob")
