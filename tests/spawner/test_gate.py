"""The short gate: what it asks, and how each answer ends."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

import pytest

from allotment_hub import gateapi
from allotment_hub.spawner.refusal import StartRefused
from tests.support.boxes import Site
from tests.support.gatepeer import TOKEN, GatePeer
from tests.support.until import until

ONE = {"allotment": {"gpus": 1}}


async def refusal(start: Any) -> StartRefused:
    with pytest.raises(StartRefused) as caught:
        await start
    return caught.value


async def test_a_session_with_gpus_starts_under_its_lease(site: Site, peer: GatePeer) -> None:
    ann = site.user("ann", "vision")
    await ann.spawn(options=ONE)

    asked = peer.names(gateapi.START)[0]
    assert (asked["user"], asked["server"], asked["groups"]) == ("ann", "", ["vision"])
    assert asked["wants"] == {"gpus": 1}
    assert [path for path, _ in peer.calls[:2]] == [gateapi.START, gateapi.PREPARING]
    env = site.runtime.environments["ann|"]
    assert env["ALLOTMENT_LEASE"] == "l1"
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    await until(lambda: peer.leases["l1"]["state"] == "active")


@pytest.mark.parametrize("options", [None, {}, {"allotment": {}}, {"allotment": {"gpus": 0}}])
async def test_a_session_without_gpus_does_not_ask(
    site: Site, peer: GatePeer, options: dict[str, Any] | None
) -> None:
    peer.down()
    ann = site.user("ann")
    await ann.spawn(options=options)
    env = site.runtime.environments["ann|"]
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "ALLOTMENT_LEASE" not in env
    assert peer.calls == []


async def test_who_must_wait_is_led_to_the_waiting_room(site: Site, peer: GatePeer) -> None:
    peer.devices = 0
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert error.status_code == 409
    assert error.label == "queued"
    assert "number 1 in the queue" in error.jupyterhub_message
    html = error.jupyterhub_html_message
    assert 'href="/services/allotment/waiting/r1"' in html
    assert "&lt;GPUs&gt;" in html
    assert "<GPUs>" not in html
    assert error.headers["Refresh"] == "0; url=/services/allotment/waiting/r1"
    assert "start" not in site.runtime.calls


async def test_a_hostile_id_never_becomes_part_of_a_link(site: Site, peer: GatePeer) -> None:
    bad = '"><script>alert(1)</script>'
    peer.answer_with = (202, {"request": {"id": bad, "position": 1, "reasons": [{"text": bad}]}})
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert "<script" not in error.jupyterhub_html_message
    assert error.headers["Refresh"] == "0; url=/services/allotment/waiting/"


async def test_a_refusal_says_what_the_governor_says(site: Site, peer: GatePeer) -> None:
    """SPAWN-14: what can never be met is refused at once."""
    peer.answer_with = (
        422,
        {"code": "NoSuchFlavor", "detail": "There is no such GPU in this hub."},
    )
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert (error.status_code, error.label) == (422, "no-such-flavor")
    assert "no such GPU" in error.jupyterhub_message


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((500, {}), id="fault"),
        pytest.param((503, {"detail": "starting"}), id="starting"),
        pytest.param((200, {}), id="no lease in the answer"),
        pytest.param((200, {"lease": {"id": "l9", "fence": True}}), id="a boolean for a fence"),
        pytest.param((200, {"lease": {"id": "l9", "fence": 1, "devices": []}}), id="no devices"),
        pytest.param((404, {"code": "NotFound"}), id="a wrong gate token"),
        pytest.param((302, {}), id="a redirect"),
    ],
)
async def test_an_answer_that_is_none_fails_closed(
    site: Site, peer: GatePeer, answer: tuple[int, dict[str, Any]]
) -> None:
    peer.answer_with = answer
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert (error.status_code, error.label) == (503, "governor-down")
    assert "start" not in site.runtime.calls


async def test_governor_down_refuses_gpus_in_a_sentence(site: Site, peer: GatePeer) -> None:
    peer.down()
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert error.status_code == 503
    assert "Sessions without GPUs start as usual" in error.jupyterhub_message


async def test_more_is_not_taken_for_less(site: Site, peer: GatePeer) -> None:
    """A lease of one device does not start a session that asks for two."""
    peer.start = lambda call: (200, {"lease": {  # type: ignore[method-assign]  # a wrong governor
        "id": "l1", "fence": 1, "gpus": 1,
        "devices": [{"node": "n1", "uuid": "GPU-0", "index": 0}],
    }})  # fmt: skip
    error = await refusal(site.user("ann").spawn(options={"allotment": {"gpus": 2}}))
    assert error.label == "governor-down"


async def test_a_lease_that_went_elsewhere_starts_nothing(site: Site, peer: GatePeer) -> None:
    peer.preparing_with = 409
    error = await refusal(site.user("ann").spawn(options=ONE))
    assert (error.status_code, error.label) == (409, "lease-lost")
    assert "start" not in site.runtime.calls
    await until(lambda: peer.ended == ["l1"])
    assert peer.names(gateapi.ABSENT)[0]["proof"] == "never-started"


async def test_cancelled_while_it_waits_leaves_the_queue(site: Site, peer: GatePeer) -> None:
    """SPAWN-01: cancelling is a normal transition."""
    peer.devices, peer.slow = 0, 0.5
    ann = site.user("ann")
    spawning = asyncio.ensure_future(ann.spawn(options=ONE))
    await until(lambda: peer.calls)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    await until(lambda: peer.names(gateapi.WITHDRAW))
    assert peer.names(gateapi.WITHDRAW)[0] == {"user": "ann", "server": ""}
    await until(lambda: not peer.queue)


async def test_names_that_escape_alike_stay_apart(site: Site, peer: GatePeer) -> None:
    """POLICY-06: users and servers with names that other systems mix up."""
    peer.devices = 50
    pairs = [("a-b", ""), ("a_2Db", ""), ("a b", ""), ("a_b", ""), ("Ä", ""), ("a/b", "")]
    for user, server in pairs:
        await site.user(user).spawn(server, options=ONE)
    pairs += [("a", "b-c"), ("a-b", "c"), ("x", "y-z"), ("x-y", "z")]
    keys = {gateapi.server_key(*pair) for pair in pairs}
    labels = {gateapi.server_label(*pair) for pair in pairs}
    assert len(keys) == len(labels) == len(pairs)
    assert {gateapi.split_server_key(key) for key in keys} == set(pairs)
    assert len({lease["id"] for lease in peer.leases.values()}) == 6
    assert {(x["user"], x["server"]) for x in peer.leases.values()} == set(pairs[:6])


async def test_the_gate_token_is_not_in_any_log(site: Site, peer: GatePeer) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    ann = site.user("ann")
    ann.spawner.log.addHandler(handler)
    peer.down()
    await refusal(ann.spawn(options=ONE))
    ann.spawner.log.removeHandler(handler)
    assert "gate" in written.getvalue()
    assert TOKEN not in written.getvalue()


async def test_a_final_refusal_is_not_asked_for_again(site: Site, peer: GatePeer) -> None:
    """SPAWN-18: a start that names no options takes the last ones, which were refused."""
    peer.answer_with = (422, {"code": "NoQuota", "detail": "None of your groups has GPUs."})
    ann = site.user("ann")
    await refusal(ann.spawn(options={**ONE, "image": "x"}))
    await ann.spawn(options=None)
    assert ann.spawner.user_options == {"image": "x"}


async def test_a_place_in_the_queue_is_found_again(site: Site, peer: GatePeer) -> None:
    peer.devices = 0
    ann = site.user("ann")
    await refusal(ann.spawn(options=ONE))
    error = await refusal(ann.spawn(options=None))
    assert error.label == "queued"
    assert len(peer.queue) == 1
