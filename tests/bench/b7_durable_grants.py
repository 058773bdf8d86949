"""B7: how many grants become durable a second, alone and in groups, on both databases.

``synchronous=FULL`` and ``synchronous_commit=on``. The reference of the single grants is what the
same disk does with one row a transaction and nothing else around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from allotment_hub.ledger import Committer, Ledger, Unit
from tests.bench import fanout
from tests.ledger import build
from tests.support.postgres import Cluster, find_binaries

GRANTS_A_SECOND = 500
BURSTS = (19, 84)
GROUP = 2_000
ROUNDS = 5


def run(scale: float) -> Iterator[Mapping[str, Any]]:
    """All figures; ``scale`` shortens the work, not its kind."""
    with tempfile.TemporaryDirectory() as folder:
        reference = bare_commits(Path(folder) / "bare.sqlite", round(2_000 * scale) or 1)
        yield from database("sqlite", f"sqlite:///{folder}/ledger.sqlite", scale, reference)
    with postgres() as url:
        if url is not None:
            yield from database("postgres", url, scale, None)
    yield from fanout.run(scale, reference)


def database(name: str, url: str, scale: float, bare: float | None) -> Iterator[Mapping[str, Any]]:
    """The figures of one database."""
    with Ledger.open(url) as ledger:
        ledger.lead(since=0)
        numbers = iter(range(1, 1 << 40))
        single = single_grants(ledger, numbers, round(1_000 * scale) or 1)
        compared = {"reference": round(bare), "ratio": round(single / bare, 2)} if bare else {}
        yield {
            "figure": f"single_grants_per_s@{name}", "value": round(single), **compared,
            "target": GRANTS_A_SECOND, "met": single >= GRANTS_A_SECOND,
        }  # fmt: skip
        grouped = grouped_grants(ledger, numbers, round(GROUP * scale) or 1)
        yield {"figure": f"grouped_events_per_s@{name}", "value": round(2 * grouped)}
        for size in BURSTS:
            durable = asyncio.run(burst_ms(ledger, numbers, size))
            yield {"figure": f"burst_of_{size}_durable_ms@{name}", "value": round(durable, 1)}


def bare_commits(path: Path, count: int) -> float:
    """Transactions of one small row a second: what the disk allows."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        started = time.perf_counter()
        for _ in range(count):
            raw.execute("INSERT INTO t (b) VALUES (?)", ("x" * 500,))
        return count / (time.perf_counter() - started)


def single_grants(ledger: Ledger, numbers: Iterator[int], count: int) -> float:
    """Grants a second, each in a transaction of its own."""

    def work() -> None:
        for _ in range(count):
            ledger.commit(build.granted(next(numbers)), offset_ms=0)

    return count / median_seconds(work)


def grouped_grants(ledger: Ledger, numbers: Iterator[int], count: int) -> float:
    """Grants a second, many in one transaction."""

    def work() -> None:
        units = [Unit(events=build.granted(next(numbers))) for _ in range(count)]
        ledger.commit_all(units, offset_ms=0)

    return count / median_seconds(work)


async def burst_ms(ledger: Ledger, numbers: Iterator[int], size: int) -> float:
    """From the first of a burst of grants to the moment when all are durable."""
    committer = Committer(ledger, lambda: 0)
    times = []
    for _ in range(20):
        grants = [build.granted(next(numbers)) for _ in range(size)]
        started = time.perf_counter()
        await asyncio.gather(*[committer.commit(grant) for grant in grants])
        times.append(time.perf_counter() - started)
    await committer.close()
    return statistics.median(times) * 1_000


def median_seconds(work: Callable[[], None]) -> float:
    """How long the work takes, of several rounds the median."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """A new database on a server of its own; None where PostgreSQL is not installed."""
    binaries = find_binaries()
    if binaries is None:
        yield None
        return
    cluster = Cluster(binaries)
    try:
        cluster.start()
        with cluster.database() as url:
            yield url
    finally:
        cluster.stop()
