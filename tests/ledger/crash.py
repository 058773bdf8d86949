"""Kills a process that commits under load, again and again, and looks for what it had promised.

Run as ``python -m tests.ledger.crash URL --rounds 200``. Prints one line of JSON; exits with 1
when anything acknowledged is missing or the ledger is not sound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment_hub.ledger import AlreadyLed, Committer, LeaseFilter, Ledger, RequestFilter
from allotment_hub.ledger.connect import MOUNTS
from tests.ledger import build

WRITERS = 8


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--acks", type=int, default=1, help="kill after so many, and a moment")
    parser.add_argument("--mounts", type=Path, default=MOUNTS)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)

    def opened() -> Ledger:
        return Ledger.open(arguments.url, allow_network=True, mounts=arguments.mounts)

    opened().close()
    total = 0
    for number in range(arguments.rounds):
        promised = one_round(opened, chance, arguments.acks)
        total += len(promised)
        faults = check(opened, promised, thorough=number % 25 == 0)
        if faults:
            print(json.dumps({"round": number, "faults": faults[:5]}))
            return 1
    faults = check(opened, [], thorough=True)
    print(json.dumps({"rounds": arguments.rounds, "acknowledged": total, "faults": faults}))
    return 1 if faults else 0


def one_round(opened, chance: random.Random, acks: int) -> list[str]:  # type: ignore[no-untyped-def]  # a closure
    """Start a writer, kill it at a random moment, and return what it had acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(write(opened, writing, chance.randrange(1 << 30)))
        finally:
            os._exit(1)
    os.close(writing)
    said = b""
    while said.count(b"\n") < acks:
        piece = os.read(reading, 65_536)
        if not piece:
            raise RuntimeError("the writer ended by itself")
        said += piece
    until = time.monotonic() + chance.uniform(0, 0.06)
    while (left := until - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        said += os.read(reading, 65_536)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(reading, 65_536):
        said += piece
    os.close(reading)
    return said.decode().split("\n")[:-1]


async def write(opened, out: int, seed: int) -> None:  # type: ignore[no-untyped-def]  # a closure
    """Grant and release under load, and acknowledge what is durable."""
    ledger = opened()
    with waiting_for_lead(ledger):
        loaded = ledger.load()
    committer = Committer(ledger, lambda: 0)
    chance = random.Random(seed)
    numbers = iter(range(loaded.sequence + 1, 1 << 40))

    async def work() -> None:
        while True:
            number = next(numbers)
            await committer.commit(build.granted(number))
            os.write(out, b"granted %d\n" % number)
            if chance.random() < 0.9:
                ended = build.events(build.lease(number, "released"), build.request(number, "done"))
                await committer.commit(ended)
                os.write(out, b"released %d\n" % number)

    await asyncio.gather(*[work() for _ in range(WRITERS)])


@contextmanager
def waiting_for_lead(ledger: Ledger) -> Iterator[None]:
    """PostgreSQL notices a moment later than the kernel that the last leader is dead."""
    until = time.monotonic() + 10
    while True:
        try:
            ledger.lead(since=1)
            break
        except AlreadyLed:
            if time.monotonic() > until:
                raise
            select.select([], [], [], 0.005)
    yield


def check(opened, promised: list[str], *, thorough: bool) -> list[str]:  # type: ignore[no-untyped-def]  # a closure
    """What is missing or wrong; nothing when all is well."""
    with opened() as ledger:
        faults = []
        numbers = [int(line.split()[1]) for line in promised]
        if numbers:
            page = {"limit": 10_000, "after": min(numbers) - 1}
            requests = {r.sequence: r for r in ledger.query_requests(RequestFilter(), **page)}
            leases = {held.fence: held for held in ledger.query_leases(LeaseFilter(), **page)}
            for line in promised:
                what, number = line.split()[0], int(line.split()[1])
                if number not in requests or number not in leases:
                    faults.append(f"{line}: lost")
                elif what == "released" and leases[number].live:
                    faults.append(f"{line}: taken back")
        newest = ledger.query_events(limit=1, newest_first=True)
        if newest and (newest[0].seq, newest[0].hash) != ledger.head():
            faults.append("the head is not the last event")
        if thorough:
            faults += ledger.differences()
            verdict = ledger.verify()
            faults += [verdict.detail] if verdict.detail else []
        return faults


if __name__ == "__main__":
    sys.exit(main())
