"""One life after the other: restart, standing by, failing, migrating, closing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allotment_hub.clock import ManualClock
from allotment_hub.ledger import Ledger
from allotment_hub.runtime.standalone import StandaloneServers
from tests.support.governed import governed


async def test_a_restart_keeps_every_place_and_lease(tmp_path: Path, database_url: str) -> None:
    runtime = StandaloneServers(start_after_ms=0, stop_after_ms=0)
    kept = []
    async with governed(tmp_path, runtime=runtime, database=database_url) as world:
        for who in ("ann", "bob"):
            kept.append((await world.active((await world.submit(who, 2))["id"])).id)
        waits = [await world.submit("ann", 1, start="always") for _ in range(3)]
        runtime.close = lambda: None  # type: ignore[method-assign]  # servers outlive the governor
    async with governed(tmp_path, runtime=runtime, database=database_url) as world:
        assert sorted(world.state.leases) == sorted(kept)
        shown = [await world.call("ann", "GET", f"/requests/{one['id']}") for one in waits]
        assert [one["position"] for one in shown] == [1, 2, 3]
        assert [one["submitted_at"] for one in shown] == [one["submitted_at"] for one in waits]
        await world.call("bob", "POST", f"/leases/{kept[1]}/release", {})
        await world.active(waits[0]["id"])


async def test_what_ended_while_the_governor_was_away_is_found_before_the_first_grant(
    tmp_path: Path,
) -> None:
    """SPAWN-21."""
    async with governed(tmp_path) as world:
        lost = await world.active((await world.submit("ann", 2))["id"])
        await world.active((await world.submit("bob", 2))["id"])
        waits = await world.submit("ann", 2, start="always")
    async with governed(tmp_path) as world:
        await world.active(waits["id"])
        shown = await world.call("ann", "GET", f"/leases/{lost.id}")
        assert shown["end_reason"] == "ended while the governor or the hub was down"
        rows = (await world.call("root", "GET", "/audit?limit=200"))["audit"]
        what = [(row["what"], row["subject"]) for row in reversed(rows)]
        end = max(place for place, (name, _) in enumerate(what) if name == "switch.reconciling")
        grant = next(
            place
            for place, (name, s) in enumerate(what)
            if (name, s) == ("lease.granted", f"{waits['id']}.1")
        )
        assert grant > end


async def test_nothing_is_granted_before_the_backend_has_answered(tmp_path: Path) -> None:
    async with governed(tmp_path, wait_for=None) as world:
        world.runtime.reachable = False
        await world.until(lambda: world.service.phase == "reconciling")
        asked = await world.submit("ann", 1)
        assert asked["reasons"][0]["code"] == "Reconciling"
        ready = await world.client(None).get("ready")
        assert (ready.status_code, ready.json()["phase"]) == (503, "reconciling")
        world.runtime.reachable = True
        await world.active(asked["id"])
        assert (await world.client(None).get("ready")).status_code == 200


async def test_of_two_governors_one_decides_and_the_other_says_that_it_stands_by(
    tmp_path: Path, database_url: str
) -> None:
    """UI-25: never two deciders, and the message names the one that is."""
    first_folder, second_folder = tmp_path / "1", tmp_path / "2"
    first_folder.mkdir()
    second_folder.mkdir()
    async with governed(first_folder, database=database_url) as first:
        asked = await first.submit("ann", 1)
        async with governed(second_folder, database=database_url, wait_for="standby") as second:
            assert "process" in second.service.detail
            answer = await second.client("ann").get("api/v1/me")
            assert (answer.status_code, answer.json()["code"]) == (503, "standby")
            assert int(answer.headers["retry-after"]) >= 1
            health = await second.client(None).get("health")
            assert (health.status_code, health.json()["phase"]) == (200, "standby")
            first.service.begin_closing()
            await second.until(lambda: second.service.phase == "ready")
            shown = await second.call("ann", "GET", f"/requests/{asked['id']}")
            assert shown["state"] in ("granted", "done", "queued")


async def test_a_deposed_leader_grants_nothing_more(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        life = world.service.life
        life.ledger._epoch -= 1  # as if somebody had taken over
        answer = await world.client("ann").post(
            "api/v1/requests", json={"gpus": 1, "flavor": "l40s"}
        )
        assert answer.status_code in (500, 503)
        await world.until(lambda: world.service.life not in (None, life))
        await world.until(lambda: world.service.phase == "ready")
        assert world.state.requests == {}
        assert (await world.submit("ann", 1))["state"] == "granted"


async def test_a_disk_that_fails_takes_nothing_that_was_said_and_the_governor_comes_back(
    tmp_path: Path,
) -> None:
    runtime = StandaloneServers(start_after_ms=0, stop_after_ms=0)
    async with governed(tmp_path, runtime=runtime) as world:
        kept = await world.active((await world.submit("ann", 1))["id"])
        life = world.service.life

        def full(*_: object, **__: object) -> int:
            raise OSError(28, "No space left on device")

        life.ledger.commit_all = full
        answer = await world.client("ann").post(
            "api/v1/requests", json={"gpus": 1, "flavor": "l40s"}
        )
        assert answer.status_code >= 500
        await world.until(lambda: world.service.life not in (None, life))
        await world.until(lambda: world.service.phase == "ready")
        assert list(world.state.leases) == [kept.id]
        assert runtime.rows["ann", ""].state == "ready"


async def test_the_state_in_memory_is_what_the_ledger_gives_again(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        for number in range(6):
            await world.submit(("ann", "bob")[number % 2], 1 + number % 2)
        await world.advance(45 * 60_000)
        await world.governor.settled()
        state = world.state
        loaded = await world.service.query(lambda ledger: ledger.load())
        records = {(type(r).__name__, getattr(r, "id", None)): r for r in loaded.records}
        for row in (*state.requests.values(), *state.leases.values()):
            assert records[type(row).__name__, row.id] == row
        assert (loaded.sequence, loaded.fence) == (state.sequence, state.fence)


async def test_a_policy_that_is_wrong_keeps_a_new_governor_from_starting_and_says_why(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path, wait_for=None) as world:
        world.service._parts.read_policy = lambda: (_ for _ in ()).throw(
            ValueError("policy.yaml:3: tenants: write a mapping")
        )
        await world.until(lambda: world.service.phase in ("failed", "ready"))
        if world.service.phase == "failed":
            assert "policy.yaml:3" in world.service.detail
            answer = await world.client(None).get("ready")
            # Paths are for the log, not for whoever asks.
            assert "policy.yaml" not in answer.text


async def test_an_error_in_a_changed_file_leaves_the_old_policy_in_force(tmp_path: Path) -> None:
    async with governed(tmp_path):
        pass
    async with governed(tmp_path, wait_for=None) as world:

        def wrong() -> None:
            raise ValueError("policy.yaml:3: tenants: write a mapping")

        world.service._parts.read_policy = wrong
        await world.until(lambda: world.service.phase == "ready")
        assert world.state.version.number == 1


async def test_closing_ends_within_seconds_whoever_listens(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        clients = [world.client("ann").stream("GET", "api/v1/events") for _ in range(5)]
        opened = [await client.__aenter__() for client in clients]
        loop = asyncio.get_running_loop()
        began = loop.time()
        world.service.begin_closing()
        refused = await world.client("ann").post("api/v1/requests", json={"gpus": 1})
        assert refused.status_code == 503
        await world.until(lambda: world.service.life is None)
        assert loop.time() - began < 10
        for answer in opened:
            await answer.aclose()


async def test_a_leader_dies_and_the_ledger_is_whole(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for _ in range(5):
            await world.submit("ann", 1, server="x")
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    try:
        assert ledger.verify().broken is None
        assert ledger.differences() == []
    finally:
        ledger.close()
