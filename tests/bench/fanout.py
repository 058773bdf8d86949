"""The half of B7 above the ledger: grants through the whole governor, and events to open streams.

The streams are read by a process of their own, over real sockets. Both processes read the same
machine-wide steady clock, so that the time from the change to its last reader is one difference.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allotment_hub.domain import commands
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from tests.support.governed import World, governed, token_of

STREAMS = ((500, 50), (2_000, 250))
"""How many, and within how many milliseconds."""

GRANTS = 400
BURSTS = (19, 84)
GRANTS_A_SECOND = 500
ROUNDS = 9
PEOPLE = {f"u{number:02}": {"groups": ["vision"]} for number in range(50)}
POLICY = """
version: 1
flavors: {l40s: {model: L40S}}
tenants: {vision: {groups: [vision], quotas: [{flavor: l40s, guarantee: 8000}]}}
classes: {training: {kind: batch, interruptible: checkpoint}}
"""
INVENTORY = "\n".join(
    f'- {{node: n{number}, devices: [{{model: "NVIDIA L40S", memory: 48GiB, count: 8}}]}}'
    for number in range(1000)
)


def run(scale: float, bare: float) -> Iterator[Mapping[str, Any]]:
    """All figures.

    Parameters
    ----------
    scale : float
        Shortens the work.
    bare : float
        Transactions of one row a second that the disk allows: the bound of grants that come one
        after the other, each in a transaction of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_grants(Path(folder), scale, bare))
    for streams, within in STREAMS:
        with tempfile.TemporaryDirectory() as folder:
            number = max(1, round(streams * scale))
            times = asyncio.run(_fan_out(Path(folder), number))
        value = round(statistics.median(times), 1)
        yield {
            "figure": f"fan_out_ms@{streams}", "value": value, "streams": number,
            "worst": round(max(times), 1), "target": within, "met": value <= within,
        }  # fmt: skip


async def _grants(folder: Path, scale: float, bare: float) -> list[Mapping[str, Any]]:
    """Requests that are granted at once: decided, durable and answered, on SQLite."""
    found: list[Mapping[str, Any]] = []
    async with governed(folder, policy=POLICY, inventory=INVENTORY, people=PEOPLE) as world:
        numbers = iter(range(1 << 30))
        count = max(1, round(GRANTS * scale))
        rates = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(count):
                await _grant(world, next(numbers))
            rates.append(count / (time.perf_counter() - began))
        rate = statistics.median(rates)
        found.append({
            "figure": "governor_grants_per_s@one_by_one", "value": round(rate),
            "reference": round(bare), "ratio": round(rate / bare, 2),
        })  # fmt: skip
        for size in BURSTS:
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                await asyncio.gather(*(_grant(world, next(numbers)) for _ in range(size)))
                times.append(time.perf_counter() - began)
            spent = statistics.median(times)
            found.append({
                "figure": f"governor_grants_per_s@burst_of_{size}", "value": round(size / spent),
                "target": GRANTS_A_SECOND, "met": size / spent >= GRANTS_A_SECOND,
                "burst_ms": round(1000 * spent, 1),
            })  # fmt: skip
    return found


async def _grant(world: World, number: int) -> None:
    def submit(state: State, now: int) -> Request:
        return commands.submit(
            state, now, id=f"r{number}", kind="job", user=f"u{number % 50:02}", groups=("vision",),
            wants={"gpus": 1000, "flavor": "l40s"},
        )  # fmt: skip

    asked = await world.governor.execute(submit)
    assert world.state.requests[asked.id].state == "granted"


async def _fan_out(folder: Path, streams: int) -> list[float]:
    """Milliseconds from a change to the moment when the last of all streams has read it."""
    async with governed(
        folder, policy=POLICY, inventory=INVENTORY, people=PEOPLE, streams_per_user=streams
    ) as world:
        port = urlsplit(world.url).port
        tokens = [token_of(name) for name in PEOPLE]
        readers = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.fanout", str(port), str(streams), json.dumps(tokens),
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert readers.stdout is not None
        assert world.service.life is not None
        feed = world.service.life.feed
        await world.until(lambda: len(feed) == streams, f"{streams} streams open, {len(feed)}")
        times = []
        for number in range(ROUNDS):
            sent = time.monotonic()
            said = {"number": number, "filler": "x" * 400}
            feed.publish("bench", partial(dict, said))
            line = await asyncio.wait_for(readers.stdout.readline(), 60)
            times.append((float(line) - sent) * 1000)
        readers.terminate()
        await readers.wait()
        return times


class _Reader(asyncio.Protocol):
    """One stream: tells when it has read a frame of the benchmark whole."""

    def __init__(self, head: bytes, read: Any) -> None:
        self._head, self._read, self._rest = head, read, b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        start = self._rest.find(b"event: bench")
        if start >= 0 and self._rest.find(b"\n\n", start) >= 0:
            self._rest = b""
            self._read()
        elif start < 0:
            self._rest = self._rest[-16:]


async def _read_streams(port: int, streams: int, tokens: list[str]) -> None:
    loop = asyncio.get_running_loop()
    got = 0

    def read() -> None:
        nonlocal got
        got += 1
        if got == streams:
            got = 0
            print(time.monotonic(), flush=True)

    for number in range(streams):
        token = tokens[number % len(tokens)]
        head = (
            f"GET /services/allotment/api/v1/events HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: token {token}\r\n\r\n"
        ).encode()
        await loop.create_connection(partial(_Reader, head, read), "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_read_streams(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])))
