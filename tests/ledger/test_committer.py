"""Group commit: order, batching, and the end of everything after a failure."""

from __future__ import annotations

import asyncio
import threading

import pytest

from allotment_hub.domain.events import Event
from allotment_hub.ledger import (
    CodecError,
    CommitFailed,
    Committer,
    CommitterStopped,
    EventFilter,
    Ledger,
    RequestFilter,
)
from tests.ledger import build


async def test_what_arrives_during_a_commit_goes_into_the_next_one(ledger: Ledger) -> None:
    transactions: list[int] = []

    def offset() -> int:  # asked once per transaction
        transactions.append(threading.get_ident())
        return 0

    committer = Committer(ledger, offset)
    commits = [committer.commit(build.granted(number)) for number in range(1, 51)]
    positions = await asyncio.gather(*commits)
    assert positions == list(range(2, 101, 2))
    assert len(transactions) <= 2
    assert set(transactions).isdisjoint({threading.get_ident()})
    subjects = [e.subject for e in await committer.query(Ledger.query_events)]
    assert subjects == [f"{kind}{n}" for n in range(1, 51) for kind in "rl"]
    await committer.close()


async def test_when_a_call_returns_its_events_are_durable(ledger: Ledger) -> None:
    committer = Committer(ledger, lambda: 0)
    for number in range(1, 4):
        assert await committer.commit(build.granted(number)) == 2 * number
        assert ledger.get("Lease", f"l{number}") is not None
    await committer.commit(meta={"clock": "now"})
    assert ledger.meta("clock") == "now"
    await committer.close()


async def test_a_large_crowd_is_split_but_never_a_unit(ledger: Ledger) -> None:
    committer = Committer(ledger, lambda: 0)
    many = [build.events(build.request(n)) * 2_000 for n in range(1, 5)]
    commits = [committer.submit_events(events) for events in many]
    await commits[1]
    assert len(ledger.query_events(limit=9_000)) == 4_000
    assert await asyncio.gather(*commits) == [2_000, 4_000, 6_000, 8_000]
    await committer.close()


async def test_after_a_failure_everybody_hears_of_it_and_nothing_more_is_written(
    ledger: Ledger,
) -> None:
    told: list[BaseException] = []
    committer = Committer(ledger, lambda: 0, told.append)
    good = committer.submit_events(build.granted(1))
    await good
    bad = committer.submit_events(build.granted(2, shares={"GPU-1": 1000}))
    await asyncio.sleep(0)  # the bad one is on its way: what follows waits behind it
    behind = committer.submit_events(build.granted(3))
    with pytest.raises(CommitFailed, match="one_live_lease_per_slot"):
        await bad
    with pytest.raises(CommitterStopped, match="an earlier commit failed: nothing was written"):
        await behind
    with pytest.raises(CommitterStopped):
        await committer.commit(build.granted(4))
    assert len(told) == 1
    assert committer.stopped is told[0]
    await committer.close()
    assert [r.id for r in ledger.query_requests(RequestFilter())] == ["r1"]
    assert ledger.load() == ledger.fold_events()


async def test_a_fault_in_the_program_stops_it_too(ledger: Ledger) -> None:
    committer = Committer(ledger, lambda: 0)
    with pytest.raises(CodecError):
        await committer.commit([Event(1, "x", "not a record")])  # type: ignore[arg-type]  # the fault
    assert committer.stopped is not None
    await committer.close()


async def test_who_stops_waiting_does_not_take_the_events_back(ledger: Ledger) -> None:
    committer = Committer(ledger, lambda: 0)
    waiting = asyncio.ensure_future(committer.commit(build.granted(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await committer.commit(build.granted(2))
    assert await committer.query(lambda known: known.get("Lease", "l1")) is not None
    await committer.close()


async def test_closing_finishes_what_was_submitted_and_refuses_the_rest(ledger: Ledger) -> None:
    committer = Committer(ledger, lambda: 0)
    last = asyncio.ensure_future(committer.commit(build.granted(1)))
    await asyncio.sleep(0)
    await committer.close()
    assert await last == 2
    with pytest.raises(CommitterStopped, match="has been closed"):
        await committer.commit(build.granted(2))


async def test_a_ledger_in_memory_is_read_and_written_in_turns() -> None:
    with Ledger.open("sqlite://") as ledger:
        ledger.lead(since=1)
        committer = Committer(ledger, lambda: 0)
        commits = [committer.commit(build.granted(number)) for number in range(1, 21)]
        reads = [committer.query(lambda known: known.query_events(EventFilter())) for _ in commits]
        await asyncio.gather(*commits, *reads)
        await committer.close()
        assert ledger.verify().rows == 40
