"""Who waits is told when it starts; who decides is not kept from it."""

from __future__ import annotations

import asyncio

import pytest

from allotment_hub.domain import commands
from allotment_hub.governor import foresight
from allotment_hub.governor.foresight import Foresight
from allotment_hub.governor.governor import Governor
from tests.governor.test_governor import ask, made


async def full(governor: Governor) -> list[str]:
    """Ask until somebody waits, and once more; the ids of those who wait."""
    for number in range(20):
        await governor.execute(ask(f"r{number}"))
        waiting = [row.id for row in governor.state.requests.values() if row.state == "queued"]
        if len(waiting) == 2:
            return waiting
    raise AssertionError("nobody ever waits")


async def test_few_are_told_at_once_and_anew_after_a_change() -> None:
    governor, _, clock = await made()
    ahead = Foresight(governor)
    first, second = await full(governor)
    known = ahead.start_of(second)
    assert known is not None
    assert known.expected_start is not None
    assert known.expected_start > clock.now_ms()
    await governor.execute(lambda s, now: commands.cancel(s, now, first, "user:ann"))
    assert ahead.start_of(first) is None
    assert ahead.start_of(second) is not None


async def test_for_many_it_is_worked_out_aside_with_rests_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foresight, "FEW", 0)
    monkeypatch.setattr(foresight, "REST", 10**9)
    governor, _, clock = await made()
    ahead = Foresight(governor)
    first, second = await full(governor)
    assert ahead.start_of(first) is None
    looking = ahead._looking
    assert looking is not None
    await looking
    assert ahead.start_of(first) is not None
    await governor.execute(lambda s, now: commands.cancel(s, now, first, "user:ann"))
    assert ahead.start_of(second) is not None, "the last known answer holds"
    assert ahead._looking is None, "it rests"
    clock.advance(10**12)
    ahead.start_of(second)
    assert isinstance(ahead._looking, asyncio.Task)
    await ahead.close()
    assert ahead.start_of(first) is None
