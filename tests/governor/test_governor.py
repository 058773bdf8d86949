"""Nothing is told before it is durable; nothing goes on after a failed commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from allotment_hub.clock import ManualClock
from allotment_hub.domain import commands
from allotment_hub.domain.commands import Refusal
from allotment_hub.domain.events import Event
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from allotment_hub.governor.governor import Governor, NotDeciding
from allotment_hub.policyfile import load_inventory, load_policy
from tests.support.governed import INVENTORY, POLICY


class Journal:
    """Commits when the test says so: what is looked at is what the governor does meanwhile."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.batches: list[list[Event]] = []
        self.more: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def commit(self, events: Sequence[Event], **more: Any) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.batches.append(list(events))
        self.more.append(more)


async def made() -> tuple[Governor, Journal, ManualClock]:
    clock, journal = ManualClock(1_000_000), Journal()
    governor = Governor(State(), clock, journal)
    policy = load_policy(POLICY).policy
    await governor.execute(lambda s, now: commands.set_policy(s, now, policy, "test"))
    await governor.execute(lambda s, now: commands.set_nodes(s, now, load_inventory(INVENTORY)))
    return governor, journal, clock


def ask(id: str, gpus: int = 1000) -> Any:
    def submit(state: State, now: int) -> Request:
        return commands.submit(
            state, now, id=id, kind="session", user="ann", groups=("vision",),
            wants={"gpus": gpus, "flavor": "a100-80g"}, server=id,
        )  # fmt: skip

    return submit


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_an_answer_comes_after_the_commit_and_the_grant_is_in_it() -> None:
    governor, journal, _ = await made()
    journal.open.clear()
    told: list[Sequence[Event]] = []
    governor.watch(told.append)
    asking = asyncio.ensure_future(governor.execute(ask("r1")))
    await turns()
    assert not asking.done()
    assert told == []
    reading = asyncio.ensure_future(governor.settled())
    await turns()
    assert not reading.done()
    journal.open.set()
    await asking
    await reading
    assert [event.what for event in journal.batches[-1]] == [
        "request.queued", "lease.granted", "request.granted",
    ]  # fmt: skip
    assert told == [journal.batches[-1]]


async def test_a_refusal_commits_nothing_and_keeps_no_key() -> None:
    governor, journal, _ = await made()
    before = len(journal.batches)
    with pytest.raises(Refusal):
        await governor.execute(ask("r1", gpus=0), idempotency=("key",))
    assert len(journal.batches) == before


async def test_a_failed_commit_ends_the_governor_for_everybody() -> None:
    governor, journal, _ = await made()
    journal.open.clear()
    journal.error = OSError("the disk is full")
    asking = [asyncio.ensure_future(governor.execute(ask(f"r{n}"))) for n in range(3)]
    waiting = asyncio.ensure_future(governor.changed("r0", 60))
    await turns()
    journal.open.set()
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(error, OSError) for error in done)
    assert governor.failed.is_set()
    await waiting
    journal.error = None
    for attempt in (governor.execute(ask("r9")), governor.settled(), governor.tick()):
        with pytest.raises(NotDeciding):
            await attempt


async def test_a_fault_in_the_middle_of_a_change_ends_the_governor() -> None:
    governor, journal, _ = await made()
    before = len(journal.batches)

    def half(state: State, now: int) -> None:
        ask("r1")(state, now)
        raise ZeroDivisionError("a fault of the program")

    with pytest.raises(ZeroDivisionError):
        await governor.execute(half)
    assert len(journal.batches) == before
    with pytest.raises(NotDeciding):
        await governor.execute(ask("r2"))


async def test_a_fault_before_any_change_is_of_that_call_alone() -> None:
    governor, _, _ = await made()

    def broken(_state: State, _now: int) -> None:
        raise TypeError("a fault of the program")

    with pytest.raises(TypeError):
        await governor.execute(broken)
    assert (await governor.execute(ask("r2"))).id == "r2"


async def test_a_caller_that_goes_away_takes_nothing_back() -> None:
    governor, journal, _ = await made()
    journal.open.clear()
    asking = asyncio.ensure_future(governor.execute(ask("r1")))
    await turns()
    asking.cancel()
    await turns()
    journal.open.set()
    await governor.settled()
    assert journal.batches[-1][0].what == "request.queued"
    assert governor.state.requests["r1"].state == "granted"


async def test_a_watcher_that_fails_stops_nobody() -> None:
    governor, _, _ = await made()
    seen: list[int] = []

    def broken(_events: Sequence[Event]) -> None:
        raise RuntimeError("only looking on")

    governor.watch(broken)
    governor.watch(lambda events: seen.append(len(events)))
    await governor.execute(ask("r1"))
    assert seen == [3]
    assert governor.failure is None


async def test_what_falls_due_is_done_by_one_timer_at_its_time() -> None:
    governor, _, clock = await made()
    governor.start_timer()
    await governor.execute(ask("r1"))
    lease = next(iter(governor.state.leases.values()))
    assert governor._timer is not None
    left = governor._timer.when() - asyncio.get_running_loop().time()
    assert left == pytest.approx((lease.term_ends_at - clock.now_ms()) / 1000, abs=1)
    clock.advance(lease.term_ends_at - clock.now_ms())
    governor._on_timer()
    assert governor._ticking is not None
    await governor._ticking
    assert governor.state.leases[lease.id].state == "stopping"
    await governor.close()
    assert governor._timer is None


async def test_a_governor_without_anything_due_has_no_timer() -> None:
    governor, _, _ = await made()
    governor.start_timer()
    assert governor._timer is None


async def test_closing_finishes_what_was_begun_and_takes_nothing_new() -> None:
    governor, journal, _ = await made()
    journal.open.clear()
    asking = asyncio.ensure_future(governor.execute(ask("r1")))
    await turns()
    closing = asyncio.ensure_future(governor.close())
    await turns()
    assert not closing.done()
    with pytest.raises(NotDeciding):
        await governor.execute(ask("r2"))
    journal.open.set()
    await closing
    await asking


async def test_waiting_for_a_change_ends_with_it_or_with_time() -> None:
    governor, _, _ = await made()
    await governor.execute(ask("r1"))
    waiting = asyncio.ensure_future(governor.changed("r1", 60))
    await turns()
    await governor.execute(lambda s, now: commands.cancel(s, now, "r1", "user:ann"))
    lease_id = "r1.1"
    assert governor.state.leases[lease_id].state == "stopping"
    await governor.execute(lambda s, now: commands.gone(s, now, lease_id))
    assert await waiting is True
    assert await governor.changed("r1", 0.001) is False
    assert governor._waiting == {}
