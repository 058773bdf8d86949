"""The invariants as properties over random histories, and what follows from purity."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide, next_due
from allotment_hub.domain.amounts import DAY, HOUR
from allotment_hub.domain.forecast import forecast
from allotment_hub.domain.state import State

from .histories import History, small_policy, small_pool

seeds = st.integers(min_value=0, max_value=2**32 - 1)


@settings(max_examples=120, deadline=None)
@given(seed=seeds)
def test_whatever_happens_the_invariants_hold(seed: int) -> None:
    history = History(Random(seed))
    history.run(120)
    assert history.watch.found == []


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_nobody_who_could_start_is_overlooked(seed: int) -> None:
    history = History(Random(seed))
    history.begin()
    for _ in range(80):
        history.step()
        assert history.overlooked() == []


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_the_state_is_the_fold_of_its_events(seed: int) -> None:
    history = History(Random(seed))
    history.run(80)
    loaded = State()
    shadow = history.watch.shadow
    loaded.load([shadow.version, *shadow.requests.values(), *shadow.leases.values()])
    assert loaded.requests == history.state.requests
    assert loaded.leases == history.state.leases
    assert loaded.used_by_tenant == history.state.used_by_tenant


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_looking_ahead_leaves_no_trace(seed: int) -> None:
    history = History(Random(seed))
    history.begin()
    for _ in range(60):
        history.step()
    state = history.state
    before = (dict(state.requests), dict(state.leases), dict(state.claims), list(state.journal))
    forecast(state, history.now)
    assert before == (state.requests, state.leases, state.claims, state.journal)
    history.watch.compare(state, history.now)
    assert history.watch.found == []


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_the_same_events_in_the_same_order_give_the_same_decisions(seed: int) -> None:
    logs = []
    for _ in range(2):
        history = History(Random(seed))
        log: list[str] = []
        history.watch.follow = lambda events, log=log: log.extend(map(repr, events)) or []  # type: ignore[method-assign,assignment]  # a recorder in place of the checker
        history.begin()
        for _ in range(60):
            history.step()
        logs.append(log)
    assert logs[0] == logs[1]


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_what_is_loaded_in_another_order_decides_the_same(seed: int) -> None:
    history = History(Random(seed))
    history.begin()
    for _ in range(60):
        history.step()
    answers = []
    for shuffle in range(3):
        state = history.state
        records = [*state.requests.values(), *state.leases.values(), *state.claims.values()]
        records += [*state.reservations.values(), *state.switches.values()]
        Random(shuffle).shuffle(records)
        again = State()
        again.load([state.version, *records])
        again.nodes = dict(state.nodes)
        again.reindex()
        decide(again, history.now + HOUR)
        answers.append([repr(event) for event in again.take_journal()])
    assert answers[0] == answers[1] == answers[2]


def _run_to_the_end(state: State, now: int, limit: int = 4000) -> int:
    """Let every lease end by itself an hour after it began, until nothing waits."""
    for _ in range(limit):
        decide(state, now)
        for lease in commands.to_start(state, now):
            commands.preparing(state, now, lease.id)
            commands.started(state, now, lease.id)
        for lease in commands.to_stop(state):
            commands.gone(state, now, lease.id)
        over = [
            x.id
            for x in state.leases.values()
            if x.active_at is not None and x.active_at + HOUR <= now
        ]
        for lease_id in over:
            commands.gone(state, now, lease_id)
        decide(state, now)
        if commands.to_start(state, now):
            continue
        waiting = [r for r in state.requests.values() if r.state in ("queued", "granted")]
        if not waiting:
            return now
        due = next_due(state, now)
        now = min(due if due is not None and due > now else now + HOUR, now + HOUR)
    raise AssertionError(f"still waiting after {limit} steps: {waiting[:3]}")


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_with_finite_work_every_admissible_request_starts(seed: int) -> None:
    random = Random(seed)
    state = State()
    commands.set_policy(state, 0, small_policy(random), "admin")
    commands.set_nodes(state, 0, small_pool())
    started: set[str] = set()
    for number in range(30):
        tenant = random.choice(("vision", "nlp", "robotics"))
        try:
            commands.submit(
                state, 0, id=f"r{number}", kind="job", user=f"{tenant}-1", groups=[tenant],
                wants={
                    "gpus": random.choice((1, 2, 4)) * 1000,
                    "flavor": "a100",
                    "class": random.choice(("training", "steady")),
                },
            )  # fmt: skip
        except commands.Refusal:
            continue
    admitted = {r.id for r in state.requests.values()}
    _run_to_the_end(state, 0)
    for event in state.take_journal():
        if event.what == "lease.active":
            started.add(event.record.request)  # type: ignore[union-attr]  # a lease by its name
    assert admitted <= started


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
@example(seed=55260)  # a lease asked back whose own team's guarantee frees meanwhile
def test_a_latest_start_is_kept(seed: int) -> None:
    """Nothing fails and nobody changes anything: a bound once given is never missed."""
    random = Random(seed)
    state = State()
    commands.set_policy(state, 0, small_policy(random), "admin")
    commands.set_nodes(state, 0, small_pool())
    promised: dict[str, int] = {}
    now, number = 0, 0
    while now < 4 * DAY:
        decide(state, now)
        for event in state.take_journal():
            if event.what == "lease.granted":
                request = event.record.request  # type: ignore[union-attr]  # a lease by its name
                assert event.at <= promised.pop(request, event.at), request
        begun = commands.to_start(state, now)
        for lease in begun:
            commands.preparing(state, now, lease.id)
            commands.started(state, now, lease.id)
        ended = commands.to_stop(state)
        for lease in ended:
            commands.gone(state, now, lease.id)
        if begun or ended:
            continue
        if number < 40 and random.random() < 0.5:
            number += 1
            tenant = random.choice(("vision", "nlp", "robotics"))
            try:
                commands.submit(
                    state, now, id=f"r{number}", kind="job", user=f"{tenant}-{number % 3}",
                    groups=[tenant],
                    wants={"gpus": random.choice((1, 2, 4)) * 1000, "flavor": "a100"},
                )  # fmt: skip
            except commands.Refusal:
                continue
            continue
        if number < 40:
            for request_id, known in forecast(state, now, max_steps=1).items():
                if known.latest_start is not None:
                    bound = promised.get(request_id, known.latest_start)
                    promised[request_id] = min(bound, known.latest_start)
        due = next_due(state, now)
        step = random.choice((60_000, HOUR // 2))
        now = min(due, now + step) if due is not None and due > now else now + step


@pytest.mark.parametrize("count", [1, 5])
def test_asking_twice_for_the_same_time_moves_nothing(count: int) -> None:
    state = State()
    commands.set_policy(state, 0, small_policy(Random(1)), "admin")
    commands.set_nodes(state, 0, small_pool())
    for _ in range(count):
        decide(state, 0)
    before = len(state.journal)
    decide(state, 0)
    assert len(state.journal) == before
