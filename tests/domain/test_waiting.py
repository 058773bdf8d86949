"""Waits are told from the events alone."""

from __future__ import annotations

from allotment_hub.domain.amounts import HOUR, MINUTE
from allotment_hub.domain.events import Event
from allotment_hub.domain.records import replace
from allotment_hub.domain.requests import Ask, Reason, Request
from allotment_hub.domain.waiting import distribution, grouped, surges, waits_of


def asked(id: str, at: int, tenant: str = "alpha", gpus: int = 1) -> Event:
    request = Request(
        id=id, sequence=at + 1, kind="job", user="u", tenant=tenant, class_="training",
        ask=Ask(gpus=gpus * 1000, devices=gpus, flavor="a100"), state="queued",
        submitted_at=at, asked_at=at,
    )  # fmt: skip
    return Event(at, "request.queued", request)


def then(event: Event, at: int, what: str, code: str = "") -> Event:
    request = event.record
    assert isinstance(request, Request)
    state = "queued" if what in ("waiting", "queued") else what
    reasons = (Reason(code=code, since=at),) if code else ()
    grants = request.grants + (what == "granted")
    new = replace(request, state=state, reasons=reasons, grants=grants)
    return Event(at, f"request.{what}", new)


def test_a_wait_has_a_span_for_each_reason_and_ends_with_the_grant() -> None:
    first = asked("a", 0)
    full = then(first, 10, "waiting", "AllInUse")
    apart = then(full, 40, "waiting", "Fragmented")
    (wait,) = waits_of([first, full, apart, then(apart, 100, "granted")], 500)
    spans = [(span.begins, span.ends, span.reason.code) for span in wait.spans]
    assert spans == [(0, 10, "BehindInQueue"), (10, 40, "AllInUse"), (40, 100, "Fragmented")]
    assert (wait.ending, wait.length, wait.spent_on("shape")) == ("granted", 100, 60)


def test_work_that_is_taken_back_waits_once_more() -> None:
    first = asked("a", 0)
    got = then(first, 5, "granted")
    again = then(got, 50, "queued")
    one, two = waits_of([first, got, again], 80)
    assert (one.ending, one.length) == ("granted", 5)
    assert (two.ending, two.begins, two.length) == ("waiting", 50, 30)


def test_percentiles_count_only_what_was_granted() -> None:
    events = []
    for number in range(100):
        first = asked(f"r{number}", 0)
        events += [first, then(first, (number + 1) * 1000, "granted")]
    gone = asked("gone", 0)
    events += [gone, then(gone, 9, "cancelled"), asked("still", 0)]
    found = distribution(waits_of(events, 200_000))
    assert (found.granted, found.waiting, found.gave_up) == (100, 1, 1)
    assert (found.p50, found.p95, found.p99, found.max) == (50_000, 95_000, 99_000, 100_000)
    assert distribution([]).max is None


def test_groups_are_by_tenant_class_and_shape() -> None:
    waits = waits_of([asked("a", 0), asked("b", 0, "beta", 4)], 10)
    assert list(grouped(waits, "tenant")) == ["alpha", "beta"]
    assert list(grouped(waits, "class")) == ["training"]
    assert list(grouped(waits, "shape")) == ["1xa100", "4xa100"]


def test_a_surge_names_whose_demand_rose() -> None:
    events = []
    for hour in range(24):  # every hour alpha asks for one GPU and waits a minute
        first = asked(f"a{hour}", hour * HOUR)
        events += [first, then(first, hour * HOUR + MINUTE, "granted")]
    rush = [asked(f"b{n}", 9 * HOUR + n, "beta", 4) for n in range(5)]
    events += [*rush, *(then(one, 9 * HOUR + 30 * MINUTE, "granted") for one in rush)]
    events.sort(key=lambda event: event.at)
    (surge,) = surges(waits_of(events, 24 * HOUR), 0, 24 * HOUR)
    assert (surge.begins, surge.ends) == (9 * HOUR, 10 * HOUR)
    assert surge.by == (("beta", "training", 20_000, 0),)


def test_nothing_that_waits_is_no_surge() -> None:
    assert surges([], 0, HOUR) == []
