"""What is committed is there afterwards, in the history and in the present; nothing else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from allotment_hub.domain.events import Claim, Event, Grant, NodeRecord, Reservation, Spent, Switch
from allotment_hub.domain.requests import Reason
from allotment_hub.ledger import (
    CannotOpen,
    CommitFailed,
    EventFilter,
    IdempotencyKey,
    LeaseFilter,
    Ledger,
    NotLeading,
    RequestFilter,
)
from allotment_hub.ledger.tables import LIVE_LEASE, LIVE_REQUEST
from tests.ledger import build
from tests.ledger.build import OFFSET


def test_a_new_ledger_is_empty(ledger: Ledger) -> None:
    loaded = ledger.load()
    assert loaded.records == ()
    assert (loaded.position, loaded.sequence, loaded.fence, loaded.last_at) == (0, 0, 0, 0)
    assert ledger.verify().holds
    assert ledger.differences() == []


def test_each_kind_of_record_comes_back_until_it_is_over(ledger: Ledger) -> None:
    live = (
        build.policy(number=2),
        NodeRecord(node=build.node("n1")),
        Switch(name="grants", on=False),
        Grant(id="g1", kind="approval", subject="user:ann", by="user:root", reason="paper",
              starts_at=1, ends_at=9, revoked=True),
        Spent(tenant="vision", period_starts_at=0, amount=5),
        build.sample(Claim, request="r1"),
        build.sample(Reservation, request="r1"),
        build.request(1),
        build.request(2, "granted", lease="l2"),
        build.lease(2, "active", active_at=3),
    )  # fmt: skip
    over = (
        NodeRecord(node=build.node("n2"), gone=True),
        build.sample(Claim, request="r0", active=False),
        build.sample(Reservation, request="r0", active=False),
        build.request(3, "cancelled"),
        build.request(4, "done", lease="l4"),
        build.lease(4, "released"),
    )  # fmt: skip
    first = build.events(build.policy(number=1), *over[3:5], at=7)
    ledger.commit([*first, *build.events(*live, *over, at=8)], offset_ms=OFFSET)
    loaded = ledger.load()
    assert set(map(repr, loaded.records)) == set(map(repr, live))
    assert (loaded.sequence, loaded.fence, loaded.last_at) == (4, 4, 8)
    assert loaded == ledger.fold_events()
    assert ledger.get("Lease", "l4") == over[-1]
    assert ledger.get("PolicyVersion", "1") == build.policy(number=1)
    assert ledger.get("Claim", "nobody") is None
    assert ledger.query_records("PolicyVersion") == [build.policy(number=n) for n in (2, 1)]


def test_it_is_all_there_after_a_restart(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as first:
        first.lead(since=1)
        first.commit(build.granted(1), offset_ms=OFFSET, meta={"clock": "x"})
        before, head = first.load(), first.head()
    with Ledger.open(ledger_url, create=False) as second:
        assert second.load() == before
        assert second.head() == head
        assert second.meta("clock") == "x"
        assert second.meta("other") is None


def test_a_batch_is_written_whole_or_not_at_all__invariant_21(ledger: Ledger) -> None:
    ledger.commit(build.granted(1), offset_ms=OFFSET)
    before = ledger.load()
    two_at_once = [*build.granted(2), *build.granted(3, shares={"GPU-1": 1000})]
    with pytest.raises(CommitFailed, match="one_live_lease_per_slot"):
        ledger.commit(two_at_once, offset_ms=OFFSET, meta={"a": "b"})
    assert ledger.load() == before
    assert ledger.meta("a") is None
    assert ledger.verify().rows == 2


def test_after_a_failed_commit_nothing_is_written_until_the_present_was_read(
    ledger: Ledger,
) -> None:
    with pytest.raises(CommitFailed):
        ledger.commit(build.events(build.lease(1)), offset_ms=OFFSET)  # of no request
    with pytest.raises(NotLeading, match=r"load\(\)"):
        ledger.commit(build.granted(1), offset_ms=OFFSET)
    ledger.load()
    assert ledger.commit(build.granted(1), offset_ms=OFFSET) == 2


def test_only_a_leader_writes(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as reader, pytest.raises(NotLeading):
        reader.commit(build.granted(1), offset_ms=OFFSET)


def test_a_released_lease_makes_room_in_the_same_batch(ledger: Ledger) -> None:
    ledger.commit(build.granted(1), offset_ms=OFFSET)
    change = [
        *build.events(build.request(2, "granted"), build.lease(2, shares={"GPU-1": 1000})),
        *build.events(build.lease(1, "released"), build.request(1, "done")),
    ]
    ledger.commit(change, offset_ms=OFFSET)
    assert [lease.id for lease in ledger.query_leases(LeaseFilter(states=("granted",)))] == ["l2"]
    assert ledger.differences() == []


def test_a_request_may_get_its_next_lease_when_the_last_is_released(ledger: Ledger) -> None:
    ledger.commit(build.granted(1), offset_ms=OFFSET)
    again = build.lease(9, request="r1", shares={"GPU-1": 1000})
    ledger.commit([*build.events(again), *build.events(build.lease(1, "released"))], offset_ms=0)
    assert [lease.id for lease in ledger.query_leases(LeaseFilter(request="r1"))] == ["l1", "l9"]


def test_a_lease_granted_and_released_in_one_batch_still_raises_the_fence(ledger: Ledger) -> None:
    ledger.commit([*build.granted(5), *build.events(build.lease(5, "released"))], offset_ms=0)
    assert ledger.load().fence == 5
    with pytest.raises(CommitFailed, match="fencing number 4, but 5 was given out"):
        ledger.commit(build.granted(4), offset_ms=0)


def test_shared_devices_take_leases_up_to_their_slots(ledger: Ledger) -> None:
    ledger.commit(build.events(build.policy(share=300)), offset_ms=0)  # three slots: 900
    for number in (1, 2, 3):
        ledger.commit(build.granted(number, shares={"GPU-0": 300}), offset_ms=0)
    with pytest.raises(CommitFailed, match="one_live_lease_per_slot"):
        ledger.commit(build.granted(4, shares={"GPU-0": 300}), offset_ms=0)
    ledger.load()
    ledger.commit(build.events(build.lease(2, "released")), offset_ms=0)
    ledger.commit(build.granted(4, shares={"GPU-0": 300}), offset_ms=0)
    assert ledger.differences() == []


def test_a_policy_that_cuts_devices_anew_leaves_what_is_leased(ledger: Ledger) -> None:
    ledger.commit([*build.events(build.policy(share=250))], offset_ms=0)
    for number in (1, 2, 3, 4):
        ledger.commit(build.granted(number, shares={"GPU-0": 250}), offset_ms=0)
    ledger.commit(build.events(build.policy(share=300, number=2)), offset_ms=0)
    for number in (1, 2):
        ledger.commit(build.events(build.lease(number, "released", shares={"GPU-0": 250})),
                      offset_ms=0)  # fmt: skip
    ledger.commit(build.granted(5, shares={"GPU-0": 300}), offset_ms=0)  # 500 + 300 of 900
    with pytest.raises(CommitFailed, match="one_live_lease_per_slot"):
        ledger.commit(build.granted(6, shares={"GPU-0": 300}), offset_ms=0)


WRONG = [
    ("two requests with one place in line", build.events(build.request(1, id="other"))),
    ("a final request that comes back", build.events(build.request(2, "queued"))),
    ("a released lease that comes back", build.events(build.lease(2, "active", fence=3))),
    ("two live leases of a request", build.events(build.lease(7, request="r1"))),
    ("a lease of a request that is not there", build.events(build.lease(8))),
    ("an unknown state", build.events(build.request(9, "dreaming"))),
    ("a lease released without a time", build.events(build.lease(1, "released", released_at=None))),
    ("a lease released before its grant", build.events(build.lease(1, "released", released_at=0))),
    ("a negative share", build.granted(6, shares={"GPU-9": -1000})),
    ("a number that no database holds", build.events(build.request(1 << 70))),
]


@pytest.mark.parametrize("wrong", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
def test_the_database_itself_refuses(ledger: Ledger, wrong: list[Event]) -> None:
    ledger.commit(build.granted(1), offset_ms=OFFSET)
    ended = build.events(build.lease(2, "released"), build.request(2, "done"))
    ledger.commit([*build.granted(2), *ended], offset_ms=OFFSET)
    before = ledger.load()
    with pytest.raises(CommitFailed):
        ledger.commit(wrong, offset_ms=OFFSET)
    assert ledger.load() == before == ledger.fold_events()


def test_releasing_twice_equals_once__invariant_9(ledger: Ledger) -> None:
    ledger.commit(build.granted(1), offset_ms=0)
    for _ in range(2):
        ledger.commit(build.events(build.lease(1, "released")), offset_ms=0)
    assert ledger.differences() == []


def test_one_key_leads_to_one_answer__invariant_10(ledger: Ledger) -> None:
    key = IdempotencyKey(user="ann", key="k1", request="r1", body_hash="h", answer="{}", at=5)
    ledger.commit(build.events(build.request(1)), offset_ms=0, idempotency=[key])
    assert ledger.find_key("ann", "k1") == key
    assert ledger.find_key("bob", "k1") is None
    with pytest.raises(CommitFailed):
        ledger.commit(build.events(build.request(2)), offset_ms=0, idempotency=[key])
    assert ledger.get("Request", "r2") is None


def test_requests_are_found_page_by_page(ledger: Ledger) -> None:
    ledger.commit(build.events(*[build.request(n) for n in range(1, 8)]), offset_ms=0)
    ledger.commit(build.events(build.request(3, "done")), offset_ms=0)
    ledger.commit(build.events(build.request(9, tenant="nlp", user="bob", server="s")), offset_ms=0)

    def numbers(chosen: RequestFilter, **page: int | bool) -> list[int]:
        return [found.sequence for found in ledger.query_requests(chosen, **page)]  # type: ignore[arg-type]  # mixed

    assert numbers(RequestFilter(), limit=3) == [1, 2, 3]
    assert numbers(RequestFilter(), limit=3, after=3) == [4, 5, 6]
    assert numbers(RequestFilter(), limit=2, newest_first=True) == [9, 7]
    assert numbers(RequestFilter(), limit=2, newest_first=True, after=7) == [6, 5]
    assert numbers(RequestFilter(states=("done",))) == [3]
    assert numbers(RequestFilter(tenant="nlp", user="bob", server="s")) == [9]
    assert numbers(RequestFilter(since=3, until=5)) == [3, 4]
    assert numbers(RequestFilter(user="ann' OR '1'='1")) == []


def test_leases_are_found_by_the_interval_they_overlap(ledger: Ledger) -> None:
    ledger.commit([*build.granted(10), *build.granted(50), *build.granted(90)], offset_ms=0)
    ledger.commit(build.events(build.lease(10, "released", released_at=40)), offset_ms=0)
    found = ledger.query_leases(LeaseFilter(since=40, until=90, pool="default"))
    assert [lease.fence for lease in found] == [50]
    assert [lease.fence for lease in ledger.query_leases(LeaseFilter(since=39))] == [10, 50, 90]


def test_events_are_found_by_whose_they_are_and_when(ledger: Ledger) -> None:
    ledger.commit(build.events(build.request(1), at=5), offset_ms=OFFSET)
    late = Event(9, "request.cancelled", build.request(1, "cancelled"), "user:ann", "not needed")
    ledger.commit([late], offset_ms=OFFSET)
    ledger.commit(build.events(build.request(2, tenant="nlp", user="bob"), at=9), offset_ms=OFFSET)
    found = ledger.query_events(EventFilter(subject="r1", what=("request.cancelled",)))
    assert len(found) == 1
    row = found[0]
    assert (row.seq, row.at, row.wall, row.actor, row.why) == (
        2, 9, 9 + OFFSET, "user:ann", "not needed",
    )  # fmt: skip
    assert row.decoded() == late.record
    assert [e.seq for e in ledger.query_events(EventFilter(since=OFFSET + 9))] == [2, 3]
    assert [e.seq for e in ledger.query_events(EventFilter(until=OFFSET + 9))] == [1]
    assert [e.seq for e in ledger.query_events(EventFilter(tenant="nlp"))] == [3]
    assert [e.seq for e in ledger.query_events(after=1)] == [2, 3]
    assert [e.seq for e in ledger.iterate_events(EventFilter(user="ann"))] == [1, 2]


NAMES = ["a\0b", "\ud800", "'; DROP TABLE events; --", "<b>Zoë</b>\n\u202e", "x" * 5_000, "日本"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_carried_safely(ledger: Ledger, name: str) -> None:
    reason = Reason(code="AllInUse", evidence=(("by", name),))
    asked = build.request(1, user=name, tenant=name, class_=name, server=name, reasons=(reason,))
    key = IdempotencyKey(user=name, key=name[:200], request="r1", body_hash="", answer=name, at=1)
    event = Event(1, "request.submitted", asked, f"user:{name}", name)
    unusual = NodeRecord(node=build.node(name[:200]))
    ledger.commit(
        [event, *build.events(unusual)], offset_ms=0, idempotency=[key] * (len(name) < 999)
    )
    assert ledger.get("Request", "r1") == asked
    assert ledger.get("NodeRecord", name[:200]) == unusual
    assert ledger.query_requests(RequestFilter(user=name, tenant=name)) == [asked]
    assert ledger.verify().holds
    assert ledger.differences() == []


def test_a_ledger_in_memory_works_the_same() -> None:
    with Ledger.open("sqlite://") as ledger:
        ledger.lead(since=1)
        ledger.commit(build.granted(1), offset_ms=0)
        assert ledger.load() == ledger.fold_events()
        assert str(ledger) == "sqlite:// (schema revision 0002)"


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(str(path)) as ledger:
        ledger.lead(since=1)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.with_name("ledger.sqlite.lock").stat().st_mode & 0o777 == 0o600


ADDRESSES = [
    ("", "is empty; write sqlite:"),
    ("postgresql://host:port/x", "cannot be read; write sqlite:"),
    ("mysql://root@host/x", "cannot be kept in 'mysql'; write sqlite:"),
    ("sqlite:////no/such/folder/x.sqlite", "folder /no/such/folder does not exist; make it"),
    ("postgresql+psycopg://x:secret@127.0.0.1:1/x", r"x:\*\*\*@127.0.0.1:1/x cannot be opened"),
]


@pytest.mark.parametrize(("address", "message"), ADDRESSES)
def test_an_address_that_leads_nowhere_is_refused_with_what_is_right(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotOpen, match=message) as caught:
        Ledger.open(address)
    assert "secret" not in str(caught.value)


def test_a_ledger_that_has_to_exist_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(CannotOpen, match="there is no ledger at sqlite:"):
        Ledger.open(str(path), create=False)
    assert not path.exists()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("not a database, but long enough to look like one" * 99)
    with pytest.raises(CannotOpen, match="file is not a database"):
        Ledger.open(str(path))


def test_the_place_and_revision_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Ledger.open(str(tmp_path / "ledger.sqlite")) as ledger:
        assert str(ledger) == f"sqlite:///{tmp_path}/ledger.sqlite (schema revision 0002)"
    assert f"making a new ledger at sqlite:///{tmp_path}/ledger.sqlite" in caplog.text


def test_the_present_is_found_without_going_through_the_past(sqlite_url: str) -> None:
    live = {
        "requests": (LIVE_REQUEST, "ix_requests_live"),
        "leases": (LIVE_LEASE, "uq_leases_live"),
    }
    with Ledger.open(sqlite_url) as ledger, ledger._engine.connect() as connection:
        for table, (condition, index) in live.items():
            query = f"EXPLAIN QUERY PLAN SELECT doc FROM {table} WHERE {condition}"  # noqa: S608  # constants
            assert f"USING INDEX {index}" in str(connection.exec_driver_sql(query).all())
