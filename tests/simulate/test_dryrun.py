"""A dry-run tells what another policy would have done, and touches nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from allotment_hub.domain.amounts import HOUR, MINUTE
from allotment_hub.domain.policy import Policy
from allotment_hub.ledger import Ledger
from allotment_hub.policyfile import load_policy, policy_data
from allotment_hub.simulate.dryrun import Past, TooMuch, dry_run, past_of
from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import read_scenario
from allotment_hub.simulate.store import LedgerStore

TEXT = """
start: 2026-01-05T00:00:00Z
policy:
  version: 1
  flavors: {a100: {model: A100}}
  tenants:
    alpha: {groups: [alpha], quotas: [{flavor: a100, guarantee: 2, ceiling: 4}]}
    beta: {groups: [beta], quotas: [{flavor: a100, guarantee: 2, ceiling: 4}]}
  classes:
    training: {kind: batch, priority: 50, interruptible: checkpoint, borrow: true,
               duration: {default: 8h, max: 8h}}
    urgent: {kind: batch, priority: 90, duration: {default: 1h, max: 1h},
             approval: {by: ["group:admins"]}}
  borrowing: {term: 4h, notice: 15m, protected: 0}
inventory: [{node: n1, devices: [{model: A100, memory: 80GiB, count: 4}]}]
runtime: {start_after: 0s, stop_after: 0s}
users: {ada: [alpha], ben: [beta], root: [admins]}
timeline:
  - {at: 0m, request: {as: first, user: ada, kind: job, class: training, gpus: 4}}
  - {at: 1h, request: {as: second, user: ben, kind: job, class: training, gpus: 2}}
  - {at: 2h, exit: {lease: second}}
  - {at: 150m, request: {as: third, user: ben, kind: job, class: urgent, gpus: 1}}
  - {at: 151m, approve: {request: third, by: root, reason: deadline}}
  - {at: 160m, exit: {lease: third}}
  - {at: 165m, request: {as: left, user: ben, kind: job, class: training, gpus: 2}}
  - {at: 166m, cancel: left}
  - {at: 3h, exit: {lease: first}}
"""


def recorded(ledger: Ledger | None = None) -> Player:
    scenario = read_scenario(TEXT, "past.yaml", Path())
    store = None
    if ledger is not None:
        ledger.lead(since=scenario.start_ms)
        ledger.load()
        store = LedgerStore(ledger)
    player = Player(scenario, open_scenario(scenario), store)
    for step in scenario.steps:
        player.play(step)
    assert player.finish().ok
    return player


def past(player: Player) -> Past:
    return Past(
        requests=tuple(player.past_requests.values()), leases=tuple(player.past_leases.values())
    )


def lowered(player: Player, **values: object) -> Policy:
    data = policy_data(player.state.policy)
    data["tenants"]["alpha"]["quotas"][0].update(values)
    return load_policy(data).policy


def test_the_same_policy_changes_nothing() -> None:
    player = recorded()
    policy = player.state.policy
    report = dry_run(
        past(player), player.state.nodes.values(), policy, policy, player.base, player.now
    )
    assert (report["longer"], report["shorter"], report["refused"]) == (0, 0, [])
    assert report["wait_s"]["old"] == report["wait_s"]["new"]
    real = [row for row in player.past_leases.values()
            if row.reclaim is not None and row.reclaim.trigger == "return"]  # fmt: skip
    assert report["returns"] == {"old": len(real), "new": len(real)}
    assert report["requests"] >= 3


def test_what_a_lower_ceiling_would_have_done() -> None:
    player = recorded()
    new = lowered(player, ceiling=2)
    report = dry_run(
        past(player), player.state.nodes.values(), player.state.policy, new,
        player.base, player.now,
    )  # fmt: skip
    (refused,) = report["refused"]
    assert (refused["request"], refused["refused"]["new"]) == ("first", "CeilingReached")
    assert report["by_tenant"]["beta"]["shorter"] == 2
    assert report["by_tenant"]["beta"]["wait_s"]["new"]["max"] == 0
    assert report["returns"]["new"] == 0 < report["returns"]["old"]
    assert report["most_changed"][0]["request"] == "second"


def test_a_tenant_that_is_gone_has_its_requests_refused() -> None:
    player = recorded()
    data = policy_data(player.state.policy)
    del data["tenants"]["beta"]
    report = dry_run(
        past(player), player.state.nodes.values(), player.state.policy, load_policy(data).policy,
        player.base, player.now,
    )  # fmt: skip
    assert {row["request"] for row in report["refused"]} >= {"second", "third"}


def test_what_was_there_before_the_span_is_replayed_and_not_counted() -> None:
    player = recorded()
    policy = player.state.policy
    since = player.base + 30 * MINUTE
    report = dry_run(past(player), player.state.nodes.values(), policy, policy, since, player.now)
    assert "alpha" not in report["by_tenant"]
    assert report["by_tenant"]["beta"]["wait_s"]["old"]["max"] >= 15 * 60


def test_the_past_is_read_from_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open("sqlite://") as ledger:
        player = recorded(ledger)
        found = past_of(ledger, player.base, player.now)
        assert {row.id for row in found.requests} == set(player.past_requests)
        later = past_of(ledger, player.base + 150 * MINUTE, player.now)
        assert {row.id for row in later.requests} == {"first", "third", "left"}
        monkeypatch.setattr("allotment_hub.simulate.dryrun.MOST_REQUESTS", 1)
        with pytest.raises(TooMuch, match="shorter span"):
            past_of(ledger, player.base, player.now)


def test_nothing_recorded_is_no_fault() -> None:
    player = recorded()
    policy = player.state.policy
    nothing = Past(requests=(), leases=())
    report = dry_run(nothing, player.state.nodes.values(), policy, policy, 0, HOUR)
    assert (report["requests"], report["wait_s"]["old"]["max"]) == (0, None)


def test_a_running_lease_counts_to_the_end_of_its_term() -> None:
    player = recorded()
    policy = player.state.policy
    row = player.past_requests["first"]
    leases = [lease for lease in player.past_leases.values() if lease.request == "first"]
    alive = replace(leases[-1], released_at=None, state="active")
    one = Past(requests=(replace(row, state="granted"),), leases=(alive,))
    report = dry_run(one, player.state.nodes.values(), policy, policy, player.base, player.now)
    assert report["started"] == {"old": 1, "new": 1}


def test_what_still_waits_is_replayed_for_as_long_as_its_class_says() -> None:
    player = recorded()
    policy = player.state.policy
    row = replace(player.past_requests["left"], state="queued")
    one = Past(requests=(row,), leases=())
    report = dry_run(one, player.state.nodes.values(), policy, policy, player.base, player.now)
    assert (report["requests"], report["left_out"]) == (1, 0)
