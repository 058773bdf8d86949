"""Over random histories: the present, the history and the chain always agree (invariant 22)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_hub.domain.events import Claim, Event, NodeRecord, Record, Switch
from allotment_hub.domain.leases import Lease, LeasedDevice
from allotment_hub.domain.requests import Request
from allotment_hub.domain.states import LEASE_EDGES, REQUEST_EDGES
from allotment_hub.ledger import CommitFailed, Ledger, Unit
from tests.ledger import build

DEVICES = ("GPU-a", "GPU-b", "GPU-c")


class World:
    """Takes random steps, most of them legal, and remembers what holds a device."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.leases: dict[str, Lease] = {}
        self.sequence = self.fence = 0

    def used(self, device: str) -> int:
        held = [lease.devices[0] for lease in self.leases.values() if lease.live]
        return sum(part.share for part in held if part.uuid == device)

    def step(self, data: st.DataObject, at: int) -> list[Event]:
        kind = data.draw(st.sampled_from(["ask", "move", "grant", "lease", "lease", "other"]))
        return [Event(at, kind, record) for record in getattr(self, kind)(data)]

    def ask(self, data: st.DataObject) -> list[Record]:
        self.sequence += 1
        asked = build.request(self.sequence, user=data.draw(st.text(max_size=4)))
        return self.keep(asked)

    def move(self, data: st.DataObject) -> list[Record]:
        choices = [
            (request, state)
            for request in self.requests.values()
            for state in sorted(REQUEST_EDGES[request.state] - {"granted"})
        ]
        if not choices:
            return []
        request, state = data.draw(st.sampled_from(choices))
        return self.keep(replace(request, state=state))  # type: ignore[arg-type]  # a legal state

    def grant(self, data: st.DataObject) -> list[Record]:
        device = data.draw(st.sampled_from(DEVICES))
        share = data.draw(st.sampled_from([1000, 500, 250]))
        waiting = [
            request
            for request in self.requests.values()
            if request.state == "queued" and not self.holds(request.id)
        ]
        if not waiting or self.used(device) + share > 1000:
            return []
        request = data.draw(st.sampled_from(waiting))
        self.fence += data.draw(st.integers(1, 3))
        lease = build.lease(self.fence, request=request.id, shares={device: share})
        return self.keep(replace(request, state="granted", lease=lease.id), lease)

    def holds(self, request: str) -> bool:
        return any(lease.live and lease.request == request for lease in self.leases.values())

    def lease(self, data: st.DataObject) -> list[Record]:
        choices = [
            (lease, state)
            for lease in self.leases.values()
            for state in sorted(LEASE_EDGES[lease.state])
        ]
        if not choices:
            return []
        lease, state = data.draw(st.sampled_from(choices))
        ended = lease.granted_at if state == "released" else None
        return self.keep(replace(lease, state=state, released_at=ended))  # type: ignore[arg-type]  # legal

    def other(self, data: st.DataObject) -> list[Record]:
        name = data.draw(st.text(max_size=3))
        made: Record = data.draw(
            st.sampled_from([
                Switch(name=name, on=True),
                NodeRecord(node=build.node(name or "n"), gone=data.draw(st.booleans())),
                build.sample(Claim, request=name, active=data.draw(st.booleans())),
                build.policy(number=data.draw(st.integers(1, 4))),
            ])
        )  # fmt: skip
        return [made]

    def keep(self, *records: Record) -> list[Record]:
        for record in records:
            if isinstance(record, Request):
                self.requests[record.id] = record
            elif isinstance(record, Lease):
                self.leases[record.id] = record
        return list(records)


@contextmanager
def emptied(url: str) -> Iterator[Ledger]:
    """Hypothesis runs many histories in one test: each on a ledger of its own."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()
    else:
        build.empty_postgres(url)
    with Ledger.open(url) as ledger:
        ledger.lead(since=1)
        yield ledger


def history(url: str, data: st.DataObject) -> None:
    world, at = World(), 0
    with emptied(url) as ledger:
        for _ in range(data.draw(st.integers(1, 8), label="transactions")):
            units = []
            for _ in range(data.draw(st.integers(0, 4), label="units")):
                at += data.draw(st.integers(0, 5))
                units.append(Unit(events=world.step(data, at)))
            ledger.commit_all(units, offset_ms=build.OFFSET)
        loaded = ledger.load()
        assert loaded == ledger.fold_events()
        assert ledger.verify().holds
        assert ledger.differences() == []
        assert (loaded.sequence, loaded.fence) == (world.sequence, world.fence)
        live = [r for r in world.requests.values() if r.live]
        live_leases = [held for held in world.leases.values() if held.live]
        assert [r for r in loaded.records if isinstance(r, (Request, Lease))] == [
            *sorted(live, key=lambda r: r.sequence),
            *sorted(live_leases, key=lambda held: held.fence),
        ]
        _no_room_for_more(ledger, world)


def _no_room_for_more(ledger: Ledger, world: World) -> None:
    """A grant beyond the capacity of a device is refused by the database, whatever came before."""
    for device in DEVICES:
        number = max(world.sequence, world.fence) + 10
        room = 1000 - world.used(device)
        too_much = LeasedDevice(node="n", uuid=device, index=0, flavor="a100", share=room + 1)
        grant = [build.request(number), build.lease(number, devices=(too_much,))]
        with pytest.raises(CommitFailed):
            ledger.commit(build.events(*grant), offset_ms=0)
        ledger.load()


@given(st.data())
def test_the_present_is_the_fold_of_the_history_on_sqlite(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    history(f"sqlite:///{tmp_path_factory.getbasetemp()}/property.sqlite", data)


@pytest.mark.postgres
@settings(max_examples=settings().max_examples // 3)  # each empties the database: half a second
@given(st.data())
def test_the_present_is_the_fold_of_the_history_on_postgres(
    shared_postgres_url: str, data: st.DataObject
) -> None:
    history(shared_postgres_url, data)
