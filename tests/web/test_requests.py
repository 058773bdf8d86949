"""Asking, waiting, changing one's mind: over real HTTP, on a real ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allotment_hub.clock import ManualClock
from tests.support.governed import governed


async def test_a_request_within_the_guarantee_is_granted_and_its_server_starts(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path) as world:
        asked = await world.submit("ann", 2)
        assert (asked["state"], asked["user"], asked["tenant"]) == ("granted", "ann", "vision")
        lease = await world.active(asked["id"])
        shown = await world.call("ann", "GET", f"/leases/{lease.id}")
        assert (shown["basis"], len(shown["devices"])) == ("guaranteed", 2)
        assert world.runtime.started == [("ann", "")]
        seen = await world.call("ann", "GET", f"/requests/{asked['id']}")
        steps = [step["what"] for step in seen["history"]]
        assert steps[:3] == ["request.queued", "lease.granted", "request.granted"]
        assert steps[-1] == "lease.active"


async def test_who_cannot_start_waits_with_place_reason_and_what_would_help(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        waits = await world.submit("ann", 2)
        assert (waits["state"], waits["position"], waits["ahead"]) == ("queued", 1, 0)
        assert waits["reasons"][0]["code"] == "NothingToBorrow"
        assert waits["reasons"][0]["text"]
        assert {"flavor": "l40s"} in [one["change"] for one in waits["reasons"][0]["helps"]]
        behind = await world.submit("ann", 2)
        assert (behind["position"], behind["ahead"]) == (2, 1)


async def test_a_repeated_call_with_its_key_is_one_request(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        body, key = {"gpus": 1, "flavor": "l40s"}, {"Idempotency-Key": "k-1"}
        client = world.client("ann")
        answers = await asyncio.gather(
            *(client.post("api/v1/requests", json=body, headers=key) for _ in range(8))
        )
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
        other = await client.post("api/v1/requests", json={"gpus": 2}, headers=key)
        assert (other.status_code, other.json()["code"]) == (409, "KeyReused")
        bob = await world.client("bob").post("api/v1/requests", json=body, headers=key)
        assert bob.json()["id"] != answers[0].json()["id"]


async def test_a_key_is_remembered_by_the_next_governor(tmp_path: Path) -> None:
    body, key = {"gpus": 1, "flavor": "l40s"}, {"Idempotency-Key": "k-1"}
    async with governed(tmp_path) as world:
        first = await world.client("ann").post("api/v1/requests", json=body, headers=key)
    async with governed(tmp_path) as world:
        again = await world.client("ann").post("api/v1/requests", json=body, headers=key)
    assert again.status_code == 200
    assert again.json()["id"] == first.json()["id"]


async def test_three_servers_in_the_same_moment_never_exceed_the_users_limit(
    tmp_path: Path,
) -> None:
    """SPAWN-23: the check and the reservation are one step."""
    async with governed(tmp_path) as world:
        asked = await asyncio.gather(
            *(world.submit("ann", 2, server=f"s{number}") for number in range(3))
        )
        states = sorted(one["state"] for one in asked)
        assert states == ["granted", "granted", "queued"]
        waiting = next(one for one in asked if one["state"] == "queued")
        assert waiting["reasons"][0]["code"] == "UserLimitReached"


async def test_cancelling_is_harmless_to_repeat_and_others_move_up(tmp_path: Path) -> None:
    """SPAWN-01."""
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        first, second = await world.submit("bob", 2), await world.submit("bob", 2)
        for _ in range(2):
            gone = await world.call("bob", "DELETE", f"/requests/{first['id']}")
            assert gone["state"] == "cancelled"
        left = await world.call("bob", "GET", f"/requests/{second['id']}")
        assert left["position"] == 1


async def test_asking_for_less_keeps_the_age_and_starts(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who, gpus in (("ann", 2), ("bob", 1)):
            await world.active((await world.submit(who, gpus))["id"])
        waits = await world.submit("bob", 3)
        assert waits["state"] == "queued"
        less = await world.call("bob", "PATCH", f"/requests/{waits['id']}", {"gpus": 1})
        assert (less["state"], less["submitted_at"]) == ("granted", waits["submitted_at"])


async def test_a_request_that_can_never_start_is_refused_at_once_and_kept(tmp_path: Path) -> None:
    """UI-27, SPAWN-14."""
    async with governed(tmp_path) as world:
        for body, code in (
            ({"gpus": 5, "flavor": "a100-80g"}, "UserLimitReached"),
            ({"gpus": 1, "flavor": "h200"}, "NoSuchFlavor"),
            ({"gpus": 3, "flavor": "l40s"}, "CeilingReached"),
        ):
            refused = await world.submit("ann", **body)
            assert (refused["state"], refused["reasons"][0]["code"]) == ("rejected", code)
            kept = await world.call("ann", "GET", f"/requests/{refused['id']}")
            assert kept["state"] == "rejected"
        assert world.state.requests == {}


async def test_a_claim_window_passes_and_a_claim_brings_the_ticket_back(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        waits = await world.submit("ann", 1)
        await world.advance(30 * 60_000)  # nobody looks any more
        lease = next(row for row in world.state.leases.values() if row.user == "ann")
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await world.until(lambda: world.state.requests[waits["id"]].state == "granted")
        me = await world.call("ann", "GET", "/me")
        assert [notice["kind"] for notice in me["notices"]] == ["claim"]
        await world.advance(11 * 60_000)
        parked = await world.call("ann", "GET", f"/requests/{waits['id']}")
        assert parked["state"] == "parked"
        back = await world.call("ann", "POST", f"/requests/{waits['id']}/claim", {})
        assert (back["state"], back["submitted_at"]) == ("granted", waits["submitted_at"])
        await world.active(waits["id"])


async def test_looking_at_the_waiting_room_starts_what_was_granted(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        waits = await world.submit("ann", 1)
        await world.advance(30 * 60_000)
        lease = next(row for row in world.state.leases.values() if row.user == "ann")
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await world.until(lambda: world.state.requests[waits["id"]].state == "granted")
        assert ("ann", "gpu-1") not in world.runtime.started
        await world.call("ann", "POST", f"/requests/{waits['id']}/presence", {})
        await world.active(waits["id"])


async def test_a_preview_asks_for_nothing(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        before = len(await _audit(world))
        shown = await world.call(
            "ann", "POST", "/requests/preview", {"gpus": 2, "flavor": "a100-80g"}
        )
        assert (shown["decision"], shown["position"], shown["now"]) == ("queued", 1, False)
        assert shown["reasons"][0]["code"] == "NothingToBorrow"
        assert {"flavor": "l40s"} in [one["change"] for one in shown["alternatives"]]
        good = await world.call("ann", "POST", "/requests/preview", {"gpus": 1, "flavor": "l40s"})
        assert (good["decision"], good["lease"]["basis"], good["id"]) == (
            "granted",
            "guaranteed",
            None,
        )
        bad = await world.call("ann", "POST", "/requests/preview", {"gpus": 99, "flavor": "l40s"})
        assert bad["decision"] == "rejected"
        assert len(await _audit(world)) == before


async def _audit(world: object) -> list[object]:
    return (await world.call("root", "GET", "/audit?limit=1000"))["audit"]  # type: ignore[attr-defined, no-any-return]  # JSON


async def test_a_session_without_a_name_never_replaces_another(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        first, second = await world.submit("ann", 1), await world.submit("ann", 1)
        assert (first["server"], second["server"]) == ("", "gpu-1")
        third = await world.submit("ann", 1, server="gpu-1")
        await world.active(third["id"])
        assert world.state.requests[first["id"]].state == "granted"
        assert second["id"] not in world.state.requests


async def test_a_start_that_waits_for_a_slot_says_so_and_all_start_in_order(tmp_path: Path) -> None:
    """SPAWN-15: none is refused, all are ready in the order of arrival without a click."""
    people = {f"u{number:02}": {"groups": ["vision"]} for number in range(30)}
    people["root"] = {"groups": ["gpu-admins"], "admin": True}
    policy = """
version: 1
flavors: {l40s: {model: L40S}}
tenants: {vision: {groups: [vision], quotas: [{flavor: l40s, guarantee: 30}]}}
"""
    inventory = '[{node: n1, devices: [{model: "NVIDIA L40S", memory: 48GiB, count: 30}]}]'
    async with governed(tmp_path, policy=policy, inventory=inventory, people=people) as world:
        world.runtime.start_after_ms = 3_600_000
        names = [name for name in people if name != "root"]
        asked = [await world.submit(name, 1, "l40s") for name in names]
        assert {one["state"] for one in asked} == {"granted"}
        await world.until(lambda: len(world.runtime.started) == 4)
        last = await world.call(names[-1], "GET", f"/requests/{asked[-1]['id']}")
        assert last["start_slot"] == {"position": 26, "starting": 4}
        world.runtime.start_after_ms = 0
        for user, server in list(world.runtime.started):
            world.runtime._become_ready((user, server))
        for one in asked:
            await world.active(one["id"])
        assert [user for user, _ in world.runtime.started] == names


async def test_in_a_large_pool_people_share_one_view_of_capacity(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    inventory = '[{node: n1, devices: [{model: "NVIDIA L40S", memory: 48GiB, count: 600}]}]'
    async with governed(tmp_path, clock=clock, inventory=inventory) as world:
        assert (await world.call("ann", "GET", "/capacity"))["free"] == 600
        await world.active((await world.submit("ann", 1, "l40s"))["id"])
        assert (await world.call("bob", "GET", "/capacity"))["free"] == 600
        clock.advance(1_000)
        shown = await world.call("bob", "GET", "/capacity")
        assert shown["free"] == 599
        assert all(device["leases"] == [] for device in shown["devices"])
        admin = await world.call("root", "GET", "/capacity")
        assert any(device["leases"] for device in admin["devices"])
