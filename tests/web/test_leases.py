"""What is held: renewed, kept, given back, and shown afterwards."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.clock import ManualClock
from tests.support.governed import governed

HOUR = 3_600_000


async def test_a_lease_that_is_given_back_is_free_once_its_server_is_gone(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = await world.active((await world.submit("ann", 2))["id"])
        world.runtime.stop_after_ms = 3_600_000
        shown = await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        assert shown["state"] == "stopping"
        await world.until(lambda: world.runtime.rows[("ann", "")].state == "stopping")
        capacity = await world.call("bob", "GET", "/capacity")
        assert capacity["free"] == 4
        world.runtime.lose("ann", "")
        await world.until(lambda: lease.id not in world.state.leases)
        capacity = await world.call("bob", "GET", "/capacity")
        assert capacity["free"] == 6
        for _ in range(2):
            again = await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
            assert again["state"] == "released"
        ended = await world.call("ann", "GET", f"/ended/{lease.id}")
        assert [step["what"] for step in ended["steps"]][-2:] == [
            "lease.stopping",
            "lease.released",
        ]


async def test_renewals_are_counted_and_refused_in_words(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        lease = await world.active((await world.submit("ann", 1, duration="4h"))["id"])
        shown = await world.call("ann", "POST", f"/leases/{lease.id}/renew", {})
        assert shown["renewals_left"] == lease.renewals_left - 1
        for _ in range(shown["renewals_left"]):
            await world.call("ann", "POST", f"/leases/{lease.id}/renew", {})
        answer = await world.client("ann").post(f"api/v1/leases/{lease.id}/renew", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "NoRenewalLeft")


async def test_a_borrowed_lease_is_asked_back_and_its_user_hears_of_it(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        lease = await world.active((await world.submit("bob", 4))["id"])
        assert lease.basis == "borrowed"
        await world.advance(HOUR)
        asked = await world.submit("ann", 2, start="always")
        assert asked["reasons"][0]["code"] == "WaitingForReturn"
        assert asked["forecast"]["latest_start"] is not None
        mine = await world.call("bob", "GET", f"/leases/{lease.id}")
        assert (mine["state"], mine["reclaim"]["trigger"]) == ("noticed", "return")
        # Whose demand it is concerns the tenant, not the person.
        assert mine["reclaim"]["for_request"] is None
        notices = (await world.call("bob", "GET", "/me"))["notices"]
        assert [notice["kind"] for notice in notices] == ["reclaim"]
        kept = await world.client("bob").post(f"api/v1/leases/{lease.id}/keep", json={})
        assert kept.status_code == 409
        await world.advance(16 * 60_000)
        await world.active(asked["id"])


async def test_a_lease_is_found_by_its_request_too(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        asked = await world.submit("ann", 1)
        lease = await world.active(asked["id"])
        assert (await world.call("ann", "GET", f"/leases/{asked['id']}"))["id"] == lease.id


async def test_only_what_is_stopping_is_released_by_force_and_by_an_admin(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = await world.active((await world.submit("ann", 1))["id"])
        world.runtime.stop_after_ms = 3_600_000
        body = {"reason": "the node burnt down"}
        root = world.client("root")
        early = await root.post(f"api/v1/leases/{lease.id}/force-release", json=body)
        assert early.status_code == 409
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        done = await root.post(f"api/v1/leases/{lease.id}/force-release", json=body)
        assert done.json()["state"] == "released"
        rows = (await world.call("root", "GET", f"/audit?subject={lease.id}&limit=1"))["audit"]
        assert (rows[0]["actor"], rows[0]["why"]) == ("user:root", "forced: the node burnt down")


async def test_use_is_what_was_held_to_the_millisecond_and_does_not_grow_afterwards(
    tmp_path: Path,
) -> None:
    """TIME-12."""
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        lease = await world.active((await world.submit("ann", 2))["id"])
        await world.advance(2 * HOUR)
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await world.until(lambda: lease.id not in world.state.leases)
        for _ in range(3):
            rows = (await world.call("ann", "GET", "/usage"))["usage"]
            assert [(row["milli_gpu_ms"], row["gpu_hours"]) for row in rows] == [
                (2000 * 2 * HOUR, 4.0)
            ]
            assert rows[0]["cost"] == 50.0
            await world.advance(HOUR)
        text = (await world.client("ann").get("api/v1/usage?format=csv")).text
        assert text.splitlines()[0].startswith("tenant,user,class")


async def test_of_a_partly_borrowed_lease_only_that_part_counts_as_borrowed(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        lease = await world.active((await world.submit("ann", 3))["id"])
        assert lease.borrowed == 1000
        await world.advance(HOUR)
        (row,) = (await world.call("ann", "GET", "/usage"))["usage"]
        assert (row["gpu_hours"], row["borrowed_gpu_hours"]) == (3.0, 1.0)


async def test_a_draining_node_gets_nothing_new_and_a_pause_stops_grants(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        node = await world.call("root", "POST", "/nodes/n2/drain", {"on": True})
        assert node == {"node": "n2", "health": "ok", "draining": True}
        assert (await world.submit("ann", 1, "l40s"))["state"] == "queued"
        await world.call("root", "POST", "/nodes/n2/drain", {"on": False})
        await world.call("root", "POST", "/grants/pause", {"on": True, "reason": "a fire drill"})
        waits = await world.submit("ann", 1)
        assert waits["reasons"][0]["code"] == "GrantsPaused"
        assert "fire drill" in str(waits["reasons"])
        await world.call("root", "POST", "/grants/pause", {"on": False})
        await world.active(waits["id"])
        missing = await world.client("root").post("api/v1/nodes/n9/drain", json={})
        assert missing.status_code == 404


async def test_an_exemption_is_for_so_long_or_until_a_time(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        lease = await world.active((await world.submit("ann", 1))["id"])
        said = {"lease": lease.id, "reason": "a demonstration"}
        given = await world.call(
            "root", "POST", "/exemptions", {**said, "until": "2099-01-01T00:00:00Z"}
        )
        assert given["ends_at"] == "2099-01-01T00:00:00.000Z"
        client = world.client("root")
        for wrong in ({}, {"for": "1h", "until": "2099-01-01T00:00:00Z"}, {"until": "soon"}):
            answer = await client.post("api/v1/exemptions", json={**said, **wrong})
            assert (answer.status_code, answer.json()["code"]) == (400, "BadInput")


async def test_decisions_name_their_rule_and_tables_have_a_header(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        empty = (await world.client("root").get("api/v1/waits?format=csv")).text
        assert empty.strip() == "tenant,class,granted,mean_s,p50_s,p95_s,p99_s,max_s"
        lease = await world.active((await world.submit("ann", 1))["id"])
        rows = (await world.call("root", "GET", "/decisions"))["decisions"]
        granted = next(row for row in rows if row["what"] == "lease.granted")
        assert (granted["request"], granted["lease"]) == (lease.request, lease.id)
        assert (granted["rule"], granted["policy_version"]) == (lease.rule, 1)
