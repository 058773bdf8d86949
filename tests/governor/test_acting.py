"""Starting, stopping and comparing: whatever the backend does, nothing is held twice or lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allotment_hub.governor.reconcile import compare
from allotment_hub.runtime.errors import Busy, Refused, Unreachable
from allotment_hub.runtime.servers import Server
from allotment_hub.runtime.standalone import StandaloneServers
from tests.support.governed import World, governed


class Troubled(StandaloneServers):
    """Servers whose calls fail as often as a test wants."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(start_after_ms=0, stop_after_ms=0, **settings)
        self.start_errors: list[Exception] = []
        self.stop_errors: list[Exception] = []
        self.looks: dict[tuple[str, str], list[Server]] = {}
        self.stops = 0

    async def start(self, user: str, server: str, options: Any) -> None:
        if self.start_errors:
            raise self.start_errors.pop(0)
        await super().start(user, server, options)

    async def stop(self, user: str, server: str) -> None:
        self.stops += 1
        if self.stop_errors:
            raise self.stop_errors.pop(0)
        await super().stop(user, server)

    async def look(self, user: str, server: str) -> Server:
        scripted = self.looks.get((user, server))
        if scripted:
            return scripted.pop(0)
        return await super().look(user, server)


async def gone(world: World, lease_id: str) -> None:
    await world.until(lambda: lease_id not in world.state.leases, f"{lease_id} released")


async def test_a_start_is_tried_again_until_the_backend_takes_it(tmp_path: Path) -> None:
    runtime = Troubled()
    runtime.start_errors = [Unreachable("x"), Busy("still stopping"), Unreachable("x")]
    async with governed(tmp_path, runtime=runtime) as world:
        asked = await world.submit("ann", 1)
        await world.active(asked["id"])
        assert runtime.started == [("ann", "")]


async def test_a_start_that_is_refused_gives_the_devices_back_and_says_why(tmp_path: Path) -> None:
    runtime = Troubled()
    runtime.start_errors = [Refused("named servers are not allowed here")]
    async with governed(tmp_path, runtime=runtime) as world:
        asked = await world.submit("ann", 1)
        await gone(world, asked["lease"])
        shown = await world.call("ann", "GET", f"/leases/{asked['lease']}")
        assert "named servers are not allowed here" in shown["end_reason"]


async def test_a_backend_that_is_away_stops_grants_and_lets_them_go_on(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        world.runtime.reachable = False
        first = await world.submit("ann", 1)
        await world.until(lambda: world.state.on("unreachable"))
        waits = await world.submit("ann", 1)
        assert waits["reasons"][0]["code"] == "BackendUnreachable"
        running = world.state.requests[first["id"]]
        assert running.state == "granted"
        world.runtime.reachable = True
        await world.active(first["id"])
        await world.active(waits["id"])
        assert not world.state.on("unreachable")


async def test_who_left_the_team_while_waiting_is_not_started(tmp_path: Path) -> None:
    """Authority is checked at the grant as well, however long ago it was asked for."""
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        waits = await world.submit("ann", 1, start="always")
        groups = {"ann": (), "bob": ("nlp",)}
        world.runtime.groups_of = groups.get
        lease = next(row for row in world.state.leases.values() if row.user == "ann")
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await world.until(lambda: waits["id"] not in world.state.requests)
        assert ("ann", "gpu-1") not in world.runtime.started
        shown = await world.call("ann", "GET", f"/leases/{waits['id']}.1")
        assert shown["end_reason"] == "ann does not belong to vision any more"


async def test_nothing_is_free_before_two_looks_agree(tmp_path: Path) -> None:
    """SPAWN-05: one "not there" is no proof."""
    runtime = Troubled()
    async with governed(tmp_path, runtime=runtime) as world:
        lease = await world.active((await world.submit("ann", 1))["id"])
        runtime.stop_after_ms = 3_600_000
        there = Server(user="ann", server="", state="ready", lease=lease.id)
        absent = Server(user="ann", server="", state="absent")
        unknown = Server(user="ann", server="", state="unknown")
        runtime.looks["ann", ""] = [absent, there, absent, unknown, unknown, there] * 5
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await world.until(lambda: not runtime.looks["ann", ""])
        assert world.state.leases[lease.id].state == "stopping"
        runtime.lose("ann", "")
        await gone(world, lease.id)


async def test_a_stop_that_fails_is_tried_again_and_frees_once(tmp_path: Path) -> None:
    """SPAWN-20."""
    runtime = Troubled()
    async with governed(tmp_path, runtime=runtime) as world:
        lease = await world.active((await world.submit("ann", 1))["id"])
        runtime.stop_errors = [Busy("blocked"), Unreachable("x"), Refused("no"), Busy("blocked")]
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await gone(world, lease.id)
        rows = (await world.call("root", "GET", f"/audit?subject={lease.id}&limit=100"))["audit"]
        assert [row["what"] for row in rows].count("lease.released") == 1


async def test_a_server_that_ends_by_itself_is_found_and_its_devices_are_free(
    tmp_path: Path,
) -> None:
    """QUOTA-11, QUOTA-15: found by comparing, whatever message was lost."""
    async with governed(tmp_path) as world:
        lease = await world.active((await world.submit("ann", 2))["id"])
        await world.active((await world.submit("bob", 2))["id"])
        waits = await world.submit("ann", 1)
        world.runtime.lose("ann", "")
        reconciler = world.service.life.reconciler
        await reconciler.round("its server ended by itself")
        await gone(world, lease.id)
        await world.active(waits["id"])
        shown = await world.call("ann", "GET", f"/leases/{lease.id}")
        assert shown["end_reason"] == "its server ended by itself"
        assert await reconciler.round("x")
        assert world.state.used_by_tenant["vision"] == 1000


async def test_fifty_sessions_that_came_and_went_leave_nothing_behind(tmp_path: Path) -> None:
    """QUOTA-15: use is what runs, not what was counted."""
    async with governed(tmp_path) as world:
        for number in range(25):
            lease = await world.active((await world.submit("ann", 2))["id"])
            world.runtime.lose("ann", "")
            if number % 2:
                await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
            else:
                await world.service.life.reconciler.round("lost")
            await gone(world, lease.id)
        assert world.state.used_by_tenant == {}
        assert world.state.taken == {}


async def test_a_server_without_a_lease_is_shown_and_not_touched(tmp_path: Path) -> None:
    runtime = Troubled()
    async with governed(tmp_path, runtime=runtime) as world:
        runtime.lease_of = lambda _user, _server: "r-of-yesterday.1"
        await runtime.start("bob", "old", {})
        told: list[str] = []
        reconciler = world.service.life.reconciler
        reconciler.alerts = told.append
        await reconciler.round("x")
        mine = (await world.call("bob", "GET", "/capacity"))["unmanaged"]
        assert (mine[0]["user"], mine[0]["server"]) == ("bob", "old")
        others = (await world.call("ann", "GET", "/capacity"))["unmanaged"]
        assert (others[0]["user"], others[0]["server"]) == (None, None)
        assert runtime.stops == 0
        assert told == []
        await reconciler.round("x")
        assert told == ["bob/old"]


async def test_a_server_of_a_later_lease_is_never_stopped_for_an_earlier_one(
    tmp_path: Path,
) -> None:
    runtime = Troubled()
    async with governed(tmp_path, runtime=runtime) as world:
        lease = await world.active((await world.submit("ann", 1))["id"])
        runtime.rows["ann", ""].lease = "r-later.1"
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await gone(world, lease.id)
        assert runtime.stops == 0
        assert runtime.rows["ann", ""].state == "ready"


@pytest.mark.parametrize(
    ("state", "lease", "found"),
    [
        ("ready", "own", ""), ("pending", "own", ""), ("stopping", "own", ""),
        ("unknown", "own", ""), ("pending", None, ""), ("unknown", None, ""),
        ("ready", None, "missing"), ("ready", "other", "missing"), ("absent", None, "missing"),
    ],
)  # fmt: skip
async def test_what_counts_as_a_missing_server(
    tmp_path: Path, state: Any, lease: str | None, found: str
) -> None:
    async with governed(tmp_path) as world:
        held = await world.active((await world.submit("ann", 1))["id"])
        mark = held.id if lease == "own" else lease
        seen = [Server(user="ann", server="", state=state, lease=mark)] if state != "absent" else []
        drift = compare(world.state, seen, 0)
        assert drift.missing == ((held.id,) if found else ())


async def test_a_job_is_run_beside_its_users_session_and_given_back(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        session = await world.submit("ann", 1)
        job = await world.submit("ann", 1, kind="job")
        await world.active(session["id"])
        lease = await world.active(job["id"])
        assert ("ann", job["id"]) in world.runtime.rows
        await world.call("ann", "POST", f"/leases/{lease.id}/release", {})
        await gone(world, lease.id)
        assert world.state.requests[session["id"]].state == "granted"


async def test_what_nothing_here_runs_is_refused_in_words(tmp_path: Path) -> None:
    async with governed(tmp_path, kinds=frozenset({"session"})) as world:
        answer = await world.client("ann").post("api/v1/requests", json={"gpus": 1, "kind": "job"})
        assert answer.status_code == 400
        assert answer.json()["errors"] == [
            {"path": "kind", "message": "nothing here runs a job; there is: session"}
        ]
