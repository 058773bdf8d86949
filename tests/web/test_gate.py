"""The governor's side of the spawner gate, by the rules of :mod:`allotment_hub.gateapi`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from allotment_hub import gateapi
from allotment_hub.clock import ManualClock
from allotment_hub.gateapi import HeldLease, LeaseCall, ServerCall, StartCall
from allotment_hub.governor.actor import Pace
from tests.support.governed import FAST, World, governed


def start_of(user: str = "ann", server: str = "", gpus: float = 1, **wants: Any) -> dict[str, Any]:
    groups = {"ann": ("vision",), "bob": ("nlp",)}.get(user, ())
    wants = {"gpus": gpus, "flavor": "a100-80g", **wants}
    return StartCall(
        user=user, server=server, groups=groups, wants=wants,
        options={"allotment": wants, "profile": {"image": "x", "sizes": [1, 2]}},
    ).to_json()  # fmt: skip


async def start(world: World, wait: float = 0, **call: Any) -> httpx.Response:
    return await world.gate().post(f"{gateapi.START}?wait={wait}", json=start_of(**call))


async def tell(world: World, path: str, lease: HeldLease, **more: str) -> httpx.Response:
    body = LeaseCall(lease=lease.id, fence=lease.fence, **more).to_json()
    return await world.gate().post(path, json=body)


def held(answer: httpx.Response) -> HeldLease:
    assert answer.status_code == 200, answer.text
    return HeldLease.from_view(answer.json()["lease"])


async def test_a_start_within_the_guarantee_goes_on_and_is_started_once(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = held(await start(world))
        assert (lease.gpus, len(lease.devices), lease.tenant) == (1, 1, "vision")
        again = held(await start(world))
        assert (again.id, again.fence) == (lease.id, lease.fence)
        assert world.state.leases[lease.id].state == "preparing"
        assert (await tell(world, gateapi.PREPARING, lease)).status_code == 200
        assert (await tell(world, gateapi.READY, lease)).status_code == 200
        assert world.state.leases[lease.id].state == "active"
        # The hub starts it: the governor must not ask the hub for it a second time.
        assert world.runtime.started == []


async def test_who_must_wait_is_told_so_at_once_and_keeps_one_place(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        held(await start(world, gpus=2))
        held(await start(world, user="bob", gpus=2))
        first = await start(world, wait=15, server="more", gpus=2)
        assert first.status_code == 202
        request = first.json()["request"]
        assert (request["state"], request["position"]) == ("queued", 1)
        second = await start(world, server="more", gpus=2)
        assert second.json()["request"]["id"] == request["id"]
        assert len([r for r in world.state.requests.values() if r.state == "queued"]) == 1
        withdrawn = await world.gate().post(
            gateapi.WITHDRAW, json=ServerCall(user="ann", server="more").to_json()
        )
        assert withdrawn.json() == {"cancelled": request["id"]}
        assert request["id"] not in world.state.requests


async def test_what_was_chosen_for_the_server_is_used_when_its_turn_comes(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {}
    async with governed(tmp_path) as world:
        plain = world.runtime.start

        async def start_with(user: str, server: str, options: Any) -> None:
            chosen.update(options)
            await plain(user, server, options)

        world.runtime.start = start_with  # type: ignore[method-assign]  # looks at what passes
        first = held(await start(world, gpus=2))
        held(await start(world, user="bob", gpus=2))
        waits = (await start(world, server="more", gpus=1, duration="2h")).json()["request"]
        await tell(world, gateapi.FAILED, first, detail="exit code 1")
        await tell(world, gateapi.ABSENT, first, proof="exit")
        await world.active(waits["id"])
        assert chosen["profile"] == {"image": "x", "sizes": [1, 2]}
        assert chosen["allotment"] == {
            "tenant": "vision", "class": "notebook", "flavor": "a100-80g", "gpus": 1,
            "duration": "2h",
        }  # fmt: skip


async def test_a_refusal_is_a_4xx_with_its_reason_and_counted_as_one(tmp_path: Path) -> None:
    """SPAWN-16: refusals have a count of their own and are no failures."""
    async with governed(tmp_path) as world:
        for _ in range(3):
            refused = await start(world, gpus=3, flavor="l40s")
            assert (refused.status_code, refused.json()["code"]) == (422, "CeilingReached")
            assert refused.json()["reasons"][0]["text"] == refused.json()["detail"]
        assert (await start(world, user="eve")).json()["code"] == "NoQuota"
        text = (await world.client("root").get("api/v1/metrics")).text
        assert 'allotment_requests_total{outcome="rejected:CeilingReached"} 3.0' in text


async def test_forged_options_are_refused_in_words(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for wants, path in (
            ({"gpus": True}, "gpus"), ({"gpus": 1e30}, "gpus"), ({"gpus": 1, "fence": 9}, "fence"),
            ({"gpus": 1, "tolerations": ["x"]}, "tolerations"), ({}, "gpus"),
        ):  # fmt: skip
            body = {**start_of(), "wants": wants}
            answer = await world.gate().post(gateapi.START, json=body)
            assert answer.status_code == 400, wants
            assert answer.json()["errors"][0]["path"] == path
        answer = await world.gate().post(gateapi.START, json={**start_of(), "root": True})
        assert answer.status_code == 400
        assert world.state.requests == {}


async def test_an_older_fence_is_refused_and_what_ended_long_ago_is_not_an_error(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path) as world:
        lease = held(await start(world))
        await tell(world, gateapi.READY, lease)
        old = HeldLease(id=lease.id, fence=lease.fence - 1)
        stale = await tell(world, gateapi.ABSENT, old, proof="poll")
        assert (stale.status_code, stale.json()["code"]) == (409, "StaleFence")
        assert world.state.leases[lease.id].state == "active"
        assert (await tell(world, gateapi.ABSENT, lease, proof="poll")).status_code == 200
        for path in (gateapi.ABSENT, gateapi.READY, gateapi.FAILED, gateapi.PREPARING):
            assert (await tell(world, path, lease)).status_code == 200, path
        assert lease.id not in world.state.leases
        never = await tell(world, gateapi.READY, HeldLease(id="r-none.1", fence=1))
        assert never.status_code == 404


async def test_a_server_that_still_ends_starts_no_other(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = held(await start(world))
        await tell(world, gateapi.READY, lease)
        await world.runtime.start("ann", "", {})
        world.runtime.stop_after_ms = 3_600_000
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        again = await start(world)
        assert (again.status_code, again.json()["code"]) == (409, "LeaseEnding")


async def test_more_than_the_lease_holds_is_another_request(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        held(await start(world))
        more = await start(world, gpus=2)
        assert (more.status_code, more.json()["code"]) == (409, "OtherLease")


async def test_a_gate_waits_for_what_is_about_to_be_free(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock, wait_for=None) as world:
        world.runtime.reachable = False
        await world.until(lambda: world.service.phase == "reconciling")
        answering = asyncio.ensure_future(start(world, wait=15))
        await world.until(lambda: world.state.requests)
        world.runtime.reachable = True
        lease = held(await answering)
        assert world.state.leases[lease.id].state == "preparing"


async def test_starts_beyond_the_slots_go_on_in_the_waiting_room(tmp_path: Path) -> None:
    pace = Pace(**{**{name: getattr(FAST, name) for name in FAST.__slots__}, "starts": 1})
    async with governed(tmp_path, pace=pace) as world:
        lease = held(await start(world))
        second = await start(world, server="b")
        assert second.status_code == 202
        shown = second.json()["request"]
        assert (shown["state"], shown["start_slot"]) == ("granted", {"position": 1, "starting": 1})
        await tell(world, gateapi.READY, lease)
        await world.active(shown["id"])
        assert world.runtime.started == [("ann", "b")]


async def test_the_form_offers_what_the_groups_may_have(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        answer = (await world.gate().get(f"{gateapi.FORM}?user=ann&group=vision&group=x")).json()
        assert [one["name"] for one in answer["tenants"]] == ["vision"]
        assert [one["name"] for one in answer["flavors"]] == ["a100-80g", "l40s"]
        assert [one["name"] for one in answer["classes"]] == ["notebook", "urgent"]
        nobody = (await world.gate().get(f"{gateapi.FORM}?user=eve")).json()
        assert nobody["flavors"] == []


async def test_live_leases_and_requests_of_a_server_are_listed(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = held(await start(world))
        rows = (await world.gate().get(f"{gateapi.LEASES}?user=ann&server=")).json()["leases"]
        assert [row["id"] for row in rows] == [lease.id]
        assert (await world.gate().get(f"{gateapi.LEASES}?user=bob")).json()["leases"] == []
        rows = (await world.gate().get(f"{gateapi.REQUESTS}?user=ann")).json()["requests"]
        assert [row["state"] for row in rows] == ["granted"]
