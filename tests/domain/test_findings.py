"""What an operator should look at is found, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allotment_hub.clock import show_time
from allotment_hub.domain.amounts import HOUR, MINUTE
from allotment_hub.domain.events import Event
from allotment_hub.domain.findings import Bounds, Finding, findings, taken_in_turns
from allotment_hub.domain.records import replace
from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import read_scenario
from allotment_hub.views.findings import finding_view

POOL = """
policy:
  version: 1
  flavors: {a100: {model: A100}}
  tenants:
    alpha: {groups: [alpha], quotas: [{flavor: a100, guarantee: 4, ceiling: 8}]}
    beta: {groups: [beta], quotas: [{flavor: a100, guarantee: 4, ceiling: 8}]}
  classes:
    notebook: {kind: interactive, priority: 100, borrow: true, objective: {start_within: 10m}}
    fixed: {kind: batch, priority: 10, interruptible: "no", duration: {default: 6h, max: 6h}}
    training: {kind: batch, priority: 50, interruptible: checkpoint, borrow: true}
  ordering: {reserve_after: 1d}
inventory:
  - {node: n1, devices: [{model: A100, memory: 80GiB, count: 4}]}
  - {node: n2, devices: [{model: A100, memory: 80GiB, count: 4}]}
users: {ada: [alpha], ben: [beta]}
timeline:
"""


def played(*steps: str) -> Player:
    scenario = read_scenario(POOL + "".join(f"  - {{{step}}}\n" for step in steps), "x", Path())
    player = Player(scenario, open_scenario(scenario))
    for step in scenario.steps:
        player.play(step)
    return player


def evidence_of(finding: Finding) -> dict[str, Any]:
    return dict(finding.evidence)


def found(player: Player, kind: str, **more: Any) -> list[Finding]:
    return [one for one in findings(player.state, player.now, **more) if one.kind == kind]


def test_a_quiet_pool_has_no_findings() -> None:
    assert (
        findings((p := played("at: 1h, request: {as: a, user: ada, gpus: 2}")).state, p.now) == ()
    )


def test_a_high_class_behind_work_that_cannot_be_interrupted_is_an_inversion() -> None:
    player = played(
        "at: 0s, request: {as: low, user: ada, kind: job, class: fixed, gpus: 3}",
        "at: 0s, request: {as: other, user: ben, kind: job, class: fixed, gpus: 4}",
        "at: 0s, device: {node: n1, index: 3, lost: true}",
        "at: 1m, request: {as: high, user: ada, gpus: 1, start: always}",
    )
    (one,) = found(player, "priority-inversion")
    assert one.subject == "high"
    assert evidence_of(one)["held"] >= 4000
    text = finding_view(one, show_time)["text"]
    assert "waits while work of a lower class that cannot be interrupted holds" in text


def test_a_wait_beyond_its_objective_is_starvation_and_large_shapes_have_longer() -> None:
    steps = (
        "at: 0s, request: {as: all, user: ada, kind: job, class: fixed, gpus: 4}",
        "at: 0s, request: {as: rest, user: ben, kind: job, class: fixed, gpus: 4}",
        "at: 1m, request: {as: small, user: ada, gpus: 1, start: always}",
        "at: 1m, request: {as: large, user: ada, gpus: 4, start: always}",
    )
    at_12 = played(*steps, "at: 12m, presence: {user: ben}")
    assert [one.subject for one in found(at_12, "starvation")] == ["alpha/notebook/1xany"]
    at_40 = played(*steps, "at: 40m, presence: {user: ben}")
    subjects = [one.subject for one in found(at_40, "starvation")]
    assert subjects == ["alpha/notebook/1xany", "alpha/notebook/4xany"]
    evidence = dict(found(at_40, "starvation")[1].evidence)
    assert (evidence["request"], evidence["waited"], evidence["bound"]) == (
        "large", 39 * MINUTE, 30 * MINUTE,
    )  # fmt: skip


def test_without_an_objective_the_bound_is_that_of_the_call() -> None:
    player = played(
        "at: 0s, request: {as: all, user: ada, kind: job, class: training, gpus: 4}",
        "at: 0s, request: {as: rest, user: ben, kind: job, class: training, gpus: 4}",
        "at: 1m, request: {as: job, user: ada, kind: job, class: training, gpus: 1}",
        "at: 2h, presence: {user: ben}",
    )
    assert found(player, "starvation") == []
    (one,) = found(player, "starvation", bounds=Bounds(otherwise=HOUR))
    assert one.subject == "alpha/training/1xany"


def test_free_gpus_that_fit_nobody_are_fragmentation() -> None:
    player = played(
        "at: 0s, request: {as: a, user: ada, kind: job, class: training, gpus: 3}",
        "at: 0s, request: {as: b, user: ben, kind: job, class: training, gpus: 3}",
        "at: 1m, request: {as: wide, user: ben, kind: job, class: training, gpus: 2}",
    )
    (one,) = found(player, "fragmentation")
    evidence = evidence_of(one)
    assert (evidence["free"], evidence["largest"], evidence["shapes"]) == (2000, 1000, ("2xany",))
    assert finding_view(one, show_time)["evidence"]["share"] == 0.25


def test_a_lost_device_leaves_guarantees_above_what_serves() -> None:
    player = played("at: 0s, device: {node: n1, index: 0, lost: true}")
    (one,) = found(player, "guarantees-above-capacity")
    assert evidence_of(one)["missing"] == 1000
    assert "8 GPUs and 7 serve: 1 are missing" in finding_view(one, show_time)["text"]


def test_being_asked_back_three_times_in_half_an_hour_is_suspicious() -> None:
    player = played(
        "at: 0s, request: {as: x, user: ada, kind: job, class: training, gpus: 6, nodes: 2}",
        "at: 40m, request: {as: y, user: ben, kind: job, class: training, gpus: 4}",
        "at: 41m, expect: {lease: x, is: {state: noticed}}",
    )
    assert player.outcome.ok
    lease = player.past_leases["x.1"]
    assert lease.reclaim is not None
    again = [Event(at, "lease.noticed", lease) for at in (0, 10 * MINUTE, 29 * MINUTE)]
    assert taken_in_turns(again[:2]) == ()
    (one,) = taken_in_turns(again)
    assert (one.subject, evidence_of(one)["by"]) == ("x", ("y",))
    back = replace(lease, request="y", reclaim=replace(lease.reclaim, for_request="x"))
    (first, *_) = taken_in_turns([*again, Event(5, "lease.noticed", back)])
    assert dict(first.evidence)["pair"] == ("y",)
