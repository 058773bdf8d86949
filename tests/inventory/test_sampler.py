"""The keeper of the sampling process against processes that behave badly."""

from __future__ import annotations

import asyncio
import sys

import pytest

from allotment_hub.inventory.sampler import Sampler, SamplerSettings

from .conftest import SteadyTime

ANSWER = "print(json.dumps({'id': json.loads(line)['id'], 'driver': 'x', 'devices': []}), flush=1)"


def sampler_of(now: SteadyTime, program: str, **settings: int) -> Sampler:
    text = f"import json, os, sys\nfor line in sys.stdin:\n    {program}"
    bounds = {"init_within": 60_000, **settings}
    return Sampler(now, SamplerSettings(**bounds), (sys.executable, "-c", text))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("print('nonsense', flush=1)", "nonsense"),
        ("print('[1]', flush=1)", "nonsense"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()", "nonsense"),
        ("print('x' * (5 << 20), flush=1)", "too long"),
        ("sys.exit(7)", "ended with code 7"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("os.close(1); sys.stdin.read()", "closed its output"),
        ("print(json.dumps({'refused': [999, 'Unknown Error']}), flush=1)", "refuses: Unknown"),
    ],
)
async def test_whatever_the_process_does_becomes_a_sentence(
    now: SteadyTime, program: str, text: str
) -> None:
    sampler = sampler_of(now, program)
    assert not await sampler.poll(slow=True)
    assert sampler.failure is not None
    assert text in sampler.failure.text
    assert sampler.pid is None
    await sampler.close()


async def test_a_process_that_does_not_start(now: SteadyTime) -> None:
    sampler = Sampler(now, command=("/nonexistent/python",))
    assert not await sampler.poll(slow=True)
    assert sampler.failure is not None
    assert "does not start" in sampler.failure.text


async def test_a_failure_counts_from_its_first_time(now: SteadyTime) -> None:
    sampler = sampler_of(now, "sys.exit(7)")
    began = now.ms
    for _ in range(3):
        await sampler.poll(slow=True)
        assert sampler.failure is not None
        now.ms = sampler.failure.retry_at
    assert sampler.failure is not None
    assert sampler.failure.at == began


async def test_polls_take_turns_and_share_one_process(now: SteadyTime) -> None:
    sampler = sampler_of(now, ANSWER)
    results = await asyncio.gather(*(sampler.poll(slow=True) for _ in range(20)))
    assert results == [True] * 20
    assert sampler.started == 1
    await sampler.close()


async def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_the_next(
    now: SteadyTime,
) -> None:
    sampler = sampler_of(now, ANSWER)
    await sampler.poll(slow=True)
    given_up = asyncio.create_task(sampler.poll(slow=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await sampler.poll(slow=False)
    assert sampler.last is not None
    assert sampler.last.slow is False
    assert sampler.started == 1
    await sampler.close()


async def test_the_process_is_renewed_from_time_to_time(now: SteadyTime) -> None:
    sampler = sampler_of(now, ANSWER)
    await sampler.poll(slow=True)
    now.pass_by(299)
    await sampler.poll(slow=True)
    assert sampler.started == 1
    now.pass_by(1)
    await sampler.poll(slow=True)
    await sampler.poll(slow=True)
    assert sampler.started == 2
    await sampler.close()


async def test_after_the_end_nothing_begins(now: SteadyTime) -> None:
    sampler = sampler_of(now, ANSWER)
    await sampler.close()
    assert not await sampler.poll(slow=True)
    assert sampler.started == 0


async def test_no_second_process_joins_one_that_cannot_be_ended(now: SteadyTime) -> None:
    """A call within the kernel survives even SIGKILL; here the kill just does not arrive."""
    sampler = sampler_of(now, "import time; time.sleep(60)", init_within=100)
    sampler._kill = lambda: None  # type: ignore[method-assign]  # stands for an uninterruptible call
    assert not await sampler.poll(slow=True)
    pid = sampler.pid
    assert pid is not None
    for _ in range(5):
        now.pass_by(600)
        assert not await sampler.poll(slow=True, at_once=True)
    assert (sampler.started, sampler.pid) == (1, pid)
    del sampler._kill
    await sampler.close()
    assert sampler.pid is None
