"""Looking, stopping, remembering: a lease is given back when, and only when, nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from allotment_hub import gateapi
from allotment_hub.gateapi import LEASE_OPTION
from allotment_hub.spawner.parting import PARTINGS
from allotment_hub.spawner.refusal import StartRefused
from allotment_hub.spawner.traits import _background
from tests.support.boxes import BoxSpawner, Site
from tests.support.gatepeer import GatePeer
from tests.support.until import until

ONE = {"allotment": {"gpus": 1}}
TWO = {"allotment": {"gpus": 2}}


async def refused(answer: Any = None) -> Any:
    raise ConnectionError("the API does not answer")


async def hang() -> None:
    await asyncio.Event().wait()


def says(*answers: Any) -> Callable[[], Any]:
    """A runtime that answers these in turn, and then the truth."""
    left = list(answers)

    async def answer() -> Any:
        return left.pop(0) if left else "truth"

    return answer


async def restart(site: Site, name: str) -> User:
    """What is left of a user after the hub was killed: what the database has."""
    for task in list(_background):
        task.cancel()
    await asyncio.sleep(0)
    PARTINGS.clear()
    site.db.expire_all()
    return site.user(name)


async def test_a_stop_gives_the_lease_back_once(site: Site, peer: GatePeer) -> None:
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    await ann.stop()
    assert peer.ended == ["l1"]
    assert len(peer.names(gateapi.ABSENT)) == 1
    assert peer.names(gateapi.ABSENT)[0]["proof"] == "poll"


async def test_stored_state_after_a_stop_has_nothing_of_the_child(site: Site) -> None:
    """SPAWN-08: a later start takes the configuration of then."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    row = ann.orm_user.orm_spawners[""]
    assert row.state["allotment"]["lease"]["id"] == "l1"
    assert row.user_options[LEASE_OPTION] == "l1"
    await ann.stop()
    await until(lambda: row.state == {})
    assert LEASE_OPTION not in row.user_options


async def test_a_child_without_state_is_polled_after_a_restart(site: Site, peer: GatePeer) -> None:
    """SPAWN-10: no state of the child is no absence of the child."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    again = await restart(site, "ann")
    assert again.spawner.server is not None
    assert await again.spawner.poll() is None
    assert again.spawner.get_state()["allotment"]["lease"]["id"] == "l1"
    assert peer.leases
    assert not peer.names(gateapi.ABSENT)


@pytest.mark.parametrize("fault", [refused, hang], ids=["error", "hang"])
async def test_a_poll_that_fails_keeps_the_last_known(
    site: Site, peer: GatePeer, fault: Callable[[], Any]
) -> None:
    """SPAWN-04: errors and a poll that never returns, right after a restart and later."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    again = await restart(site, "ann")
    site.runtime.poll_fault = fault
    assert await asyncio.wait_for(again.spawner.poll(), 2) is None
    assert await asyncio.wait_for(ann.spawner.poll(), 2) is None
    assert not peer.names(gateapi.ABSENT)
    site.runtime.poll_fault = None
    await again.stop()
    assert peer.ended == ["l1"]


async def test_first_negatives_after_a_restart_are_not_believed(
    make_site: Callable[..., Site], peer: GatePeer
) -> None:
    """SPAWN-05: the watch of the runtime has not loaded its data yet; all servers live on."""
    site = make_site(absence_interval=5)
    peer.devices = 6
    for name in ("ann", "bob", "cat"):
        await site.user(name).spawn(options=TWO)
    users = [await restart(site, name) for name in ("ann", "bob", "cat")]
    site.runtime.poll_fault = says(*[1] * 9)
    for _ in range(3):
        assert [await user.spawner.poll() for user in users] == [None] * 3
    assert [await user.spawner.poll() for user in users] == [None] * 3
    assert len(peer.leases) == 3
    assert not peer.names(gateapi.ABSENT)


async def _noticed(box: Any) -> int:
    """The exit code, as soon as a look tells one."""
    while True:
        code = await box.spawner.poll()
        if code is not None:
            return int(code)
        await asyncio.sleep(0)


async def test_a_server_that_ended_by_itself_is_noticed_twice_over(
    site: Site, peer: GatePeer
) -> None:
    """SPAWN-21: gone while nobody looked."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    again = await restart(site, "ann")
    site.runtime.end("ann|")
    assert await again.spawner.poll() is None
    assert await asyncio.wait_for(_noticed(again), 10) == 3
    await again.stop()
    await until(lambda: peer.ended == ["l1"])
    assert again.orm_user.orm_spawners[""].server is None


async def test_a_stop_that_fails_is_repeated_until_it_holds(site: Site, peer: GatePeer) -> None:
    """SPAWN-20: the hub believes it stopped; the lease stays until it has."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    site.runtime.stop_fault = refused
    with pytest.raises(ConnectionError):
        await ann.stop()
    row = ann.orm_user.orm_spawners[""]
    assert row.server is None
    assert row.state["allotment"]["ending"] is True
    assert row.user_options[LEASE_OPTION] == "l1"
    assert site.runtime.boxes
    assert peer.leases

    with pytest.raises(StartRefused) as caught:
        await ann.spawn(options=None)
    assert (caught.value.status_code, caught.value.label) == (409, "still-ending")
    assert row.user_options[LEASE_OPTION] == "l1"
    with pytest.raises(web.HTTPError):
        await ann.spawner.delete_forever()

    site.runtime.stop_fault = None
    await until(lambda: peer.ended == ["l1"])
    assert not site.runtime.boxes
    await until(lambda: row.state == {})
    assert LEASE_OPTION not in row.user_options
    await ann.spawn(options=ONE)
    assert peer.lease_of("ann") is not None


async def test_a_failed_stop_survives_the_hub(site: Site, peer: GatePeer) -> None:
    """The hub dies between a failed stop and its repetition; loading the server goes on with it."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    site.runtime.stop_fault = refused
    with pytest.raises(ConnectionError):
        await ann.stop()
    again = await restart(site, "ann")
    site.runtime.stop_fault = None
    assert again.spawner is not None  # as any request about this server makes the hub do
    await until(lambda: peer.ended == ["l1"])
    assert not site.runtime.boxes


async def test_a_second_stop_joins_the_first(site: Site, peer: GatePeer) -> None:
    gate = asyncio.Event()
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    site.runtime.stop_fault = gate.wait
    stops = [asyncio.ensure_future(ann.spawner.stop()) for _ in range(3)]
    await until(lambda: "stop" in site.runtime.calls)
    for _ in range(20):  # all that could still happen by itself does
        await asyncio.sleep(0)
    assert site.runtime.calls.count("stop") == 1
    assert peer.leases
    gate.set()
    await asyncio.gather(*stops)
    assert peer.ended == ["l1"]
    assert len(peer.names(gateapi.ABSENT)) == 1


async def test_a_cancelled_start_ends_at_once_and_gives_back_later(
    site: Site, peer: GatePeer
) -> None:
    """SPAWN-02: the child's start has not returned; it is stopped all the same."""
    gate = asyncio.Event()

    async def slowly() -> None:
        await site.runtime.run("ann|", {})
        await gate.wait()

    site.runtime.before_start = slowly
    ann = site.user("ann")
    spawning = asyncio.ensure_future(ann.spawn(options=ONE))
    await until(lambda: site.runtime.boxes)
    loop = asyncio.get_running_loop()
    began = loop.time()
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    assert loop.time() - began < 1
    ann.spawner._spawn_pending = ann.spawner._start_pending = False  # as the hub has it now
    assert ann.spawner.server is not None
    assert not ann.spawner.ready
    await until(lambda: peer.ended == ["l1"])
    assert not site.runtime.boxes
    assert "cancelled" in peer.names(gateapi.FAILED)[0]["detail"]


async def test_a_start_that_takes_too_long_gives_back(
    make_site: Callable[..., Site], peer: GatePeer
) -> None:
    site = make_site(start_timeout=1)
    site.runtime.before_start = hang
    with pytest.raises((TimeoutError, asyncio.TimeoutError)):
        await site.user("ann").spawn(options=ONE)
    await until(lambda: peer.ended == ["l1"])


async def test_a_start_that_raises_gives_back_and_says_why(site: Site, peer: GatePeer) -> None:
    site.runtime.before_start = refused
    with pytest.raises(ConnectionError):
        await site.user("ann").spawn(options=ONE)
    await until(lambda: peer.ended == ["l1"])
    assert "the API does not answer" in peer.names(gateapi.FAILED)[0]["detail"]


async def test_a_child_that_dies_before_it_answers_is_noticed(
    make_site: Callable[..., Site], peer: GatePeer
) -> None:
    """SPAWN-12: not after a start timeout of a day."""
    site = make_site(start_timeout=86400, http_timeout=3600)
    site.runtime.dies_at_once = True
    with pytest.raises(web.HTTPError, match="exit code 3"):
        await asyncio.wait_for(site.user("ann").spawn(options=ONE), 10)
    await until(lambda: peer.ended == ["l1"])


async def test_a_child_that_dies_while_its_start_waits_is_noticed(
    make_site: Callable[..., Site], peer: GatePeer
) -> None:
    """SPAWN-12: a batch job that fails in its prologue never reports its port."""
    site = make_site(start_timeout=86400)

    async def prologue() -> None:
        await site.runtime.run("ann|", {})
        before = len(site.runtime.calls)
        await until(lambda: "poll" in site.runtime.calls[before:])  # it was seen to run
        site.runtime.end("ann|")
        await hang()

    site.runtime.before_start = prologue
    with pytest.raises(web.HTTPError, match="exit code 3"):
        await asyncio.wait_for(site.user("ann").spawn(options=ONE), 10)
    await until(lambda: peer.ended == ["l1"])


async def test_the_hub_dies_while_a_start_is_pending(site: Site, peer: GatePeer) -> None:
    """The state is written before the start: the hub itself writes it only after."""
    started = asyncio.Event()

    async def slowly() -> None:
        await site.runtime.run("ann|", {})
        started.set()
        await hang()

    site.runtime.before_start = slowly
    ann = site.user("ann")
    spawning = asyncio.ensure_future(ann.spawn(options=ONE))
    await started.wait()
    again = await restart(site, "ann")
    assert again.spawner.get_state()["allotment"]["lease"]["id"] == "l1"
    assert await again.spawner.poll() is None
    await again.stop()
    assert peer.ended == ["l1"]
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning


async def test_the_governor_is_down_when_a_session_ends(site: Site, peer: GatePeer) -> None:
    """The report is repeated; what nobody could be told is told after a restart."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    peer.down()
    await ann.stop()
    row = ann.orm_user.orm_spawners[""]
    assert row.state["allotment"]["proof"] == "poll"
    assert LEASE_OPTION not in row.user_options  # the hub's answer says already that it is gone
    await restart(site, "ann")
    peer.up()
    await restart(site, "ann")
    assert site.user("ann").spawner is not None
    await until(lambda: peer.ended == ["l1"])
    await until(lambda: row.state == {})


class LateSpawner(BoxSpawner):
    """A batch spawner: its server reports address and port late, to the object the hub knows."""

    async def start(self) -> tuple[str, int]:
        asyncio.get_running_loop().call_later(0.3, self.report)
        self.reported = asyncio.Event()
        await self.reported.wait()
        return ("127.0.0.1", self.port)

    def report(self) -> None:
        hub_knows = self.user.spawners[self.name]
        hub_knows.ip = "127.0.0.1"
        self.reporting = asyncio.ensure_future(self.serve(hub_knows))

    async def serve(self, hub_knows: Spawner) -> None:
        hub_knows.port = await self.runtime.run(self.box, self.get_env())
        self.reported.set()


async def test_what_the_child_reports_late_reaches_the_hub(
    make_site: Callable[..., Site], peer: GatePeer
) -> None:
    """SPAWN-09: named server, port reported long after the start."""
    site = make_site(LateSpawner)
    ann = site.user("ann")
    await ann.spawn("x", options=ONE)
    spawner = ann.spawners["x"]
    assert spawner.server.port == spawner.port == site.runtime.boxes["ann|x"]
    assert spawner.api_token
    assert spawner.user_options["allotment"] == {"gpus": 1}
    assert await spawner.poll() is None
    await ann.stop("x")
    assert peer.ended == ["l1"]


async def test_a_server_with_a_lease_keeps_its_name(site: Site, peer: GatePeer) -> None:
    ann = site.user("ann")
    await ann.spawn("x", options=ONE)
    with pytest.raises(web.HTTPError, match="still holds a lease"):
        await ann.spawners["x"].rename("x", "y")
    peer.devices = 1
    with pytest.raises(web.HTTPError):
        await ann.spawn("w", options=ONE)
    with pytest.raises(web.HTTPError, match="waits for GPUs"):
        await ann.spawners["w"].rename("w", "v")


async def test_the_mark_survives_whoever_writes_the_options(site: Site, peer: GatePeer) -> None:
    """The hub stores the options of a start before the spawner sees them, and may die then."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    site.runtime.stop_fault = refused
    with pytest.raises(ConnectionError):
        await ann.stop()
    row = ann.orm_user.orm_spawners[""]
    row.user_options = {"image": "x"}  # as `User.spawn` does first of all
    site.db.commit()
    assert row.user_options == {"image": "x", LEASE_OPTION: "l1"}
    site.runtime.stop_fault = None
    await until(lambda: peer.ended == ["l1"])
    await until(lambda: row.user_options == {"image": "x"})


async def test_a_look_in_mid_start_gives_nothing_back(site: Site, peer: GatePeer) -> None:
    """That nothing runs yet does not mean that nothing will."""
    gate = asyncio.Event()
    site.runtime.before_start = gate.wait
    ann = site.user("ann")
    spawning = asyncio.ensure_future(ann.spawn(options=ONE))
    await until(lambda: peer.names(gateapi.PREPARING))
    ann.spawner.absence_interval = 0  # so that any two looks would agree at once
    for _ in range(4):
        await ann.spawner.poll()
        await asyncio.sleep(0)
    assert not peer.names(gateapi.ABSENT)
    gate.set()
    await spawning
    assert peer.leases


async def test_a_lease_whose_end_is_still_to_be_reported_is_not_used_again(
    site: Site, peer: GatePeer
) -> None:
    """The governor was away when the session ended, and still believes the lease to be in use."""
    ann = site.user("ann")
    await ann.spawn(options=ONE)
    peer.down()
    await ann.stop()
    assert not peer.ended
    with pytest.raises(StartRefused) as caught:
        await ann.spawn(options=ONE)
    assert caught.value.label == "still-ending"
    peer.up()
    await ann.spawn(options=ONE)
    assert peer.ended == ["l1"]
    assert peer.lease_of("ann")["id"] == "l2"  # type: ignore[index]  # there is one
    assert site.runtime.environments["ann|"]["ALLOTMENT_LEASE"] == "l2"
    await ann.stop()
    assert peer.ended == ["l1", "l2"]
