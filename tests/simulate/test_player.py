"""The player itself: time, names, runtime, restart, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.cli import main
from allotment_hub.simulate.player import Outcome, play
from allotment_hub.simulate.scenario import read_scenario

HEAD = """
name: made up
policy:
  version: 1
  flavors: {a100: {model: A100}}
  tenants: {alpha: {groups: [alpha], quotas: [{flavor: a100, guarantee: 2}]}}
  classes:
    notebook: {kind: interactive, claim_window: 10m, duration: {default: 4h, max: 8h}}
    training: {kind: batch, interruptible: checkpoint}
inventory: [{node: n1, devices: [{model: A100, memory: 80GiB, count: 2}]}]
users: {ada: [alpha], abe: [alpha]}
timeline:
"""


def played(*steps: str, head: str = HEAD) -> Outcome:
    return play(read_scenario(head + "".join(f"  - {step}\n" for step in steps), "s.yaml"))


def parted(outcome: Outcome) -> list[tuple[str, Any, Any]]:
    return [(failure.path, failure.wanted, failure.found) for failure in outcome.failures]


def test_a_failing_expect_names_the_path_what_was_wanted_and_what_was_found() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 1}}",
        "{at: 1m, expect: {lease: r, is: {state: noticed, gpus: 1, nonsense: 3}}}",
    )
    assert not outcome.ok
    assert parted(outcome) == [("state", "noticed", "active"), ("nonsense", 3, "(not there)")]


def test_there_is_no_lease_before_the_grant() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 2}}",
        "{at: 0s, request: {as: w, user: abe, gpus: 2}}",
        "{at: 1s, expect: {lease: w, is: null}}",
        "{at: 1s, expect: {lease: w, is: {not: {state: active}}}}",
        "{at: 1s, expect: {lease: w, is: {state: active}}}",
    )
    assert parted(outcome) == [("", {"state": "active"}, None)]


def test_what_is_due_happens_in_the_order_of_time_between_the_steps() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 2}}",
        "{at: 1m, request: {as: w, user: abe, gpus: 2, start: always}}",
        "{at: 20h, expect: {lease: r, is: {active_at: 5s, term_ends_at: 14405s, released_at: 4h}}}",
        head=HEAD.replace("users:", "runtime: {start_after: 5s, stop_after: 0s}\nusers:"),
    )
    [(path, wanted, found)] = parted(outcome)
    assert (path, wanted, found.offset_ms) == ("released_at", "4h", 14_405_000)


def test_virtual_time_costs_no_real_time() -> None:
    steps = [
        f"{{at: {10 * day}d, request: {{as: r{day}, user: ada, gpus: 1, start: always}}}}"
        for day in range(50)
    ]
    outcome = played(*steps, "{at: 600d, expect: {tenant: alpha, is: {used: 0}}}")
    assert outcome.ok
    assert outcome.ended_at == 600 * 86_400_000


def test_a_refused_action_is_no_failure_unless_the_file_says_so() -> None:
    steps = ["{at: 0s, request: {as: r, user: ada, gpus: 9}}"]
    assert played(*steps).ok
    assert [one.code for one in played(*steps).refusals] == ["CeilingReached"]
    assert played("{at: 0s, request: {user: ada, gpus: 9}, refused: CeilingReached}").ok
    assert played("{at: 0s, request: {user: ada, gpus: 9}, refused: true}").ok
    assert not played("{at: 0s, request: {user: ada, gpus: 9}, refused: NoQuota}").ok
    assert not played("{at: 0s, request: {user: ada, gpus: 9}, refused: false}").ok
    assert not played("{at: 0s, request: {user: ada, gpus: 1}, refused: true}").ok
    assert played("{at: 0s, request: {user: ada, gpus: 1}, refused: false}").ok


@pytest.mark.parametrize(
    "gpus", ["true", "-1", ".nan", ".inf", "1.0e+30", "''", "'two'", "[1]", "0.1234", "'١'"]
)
def test_a_bad_number_is_refused_with_a_message(gpus: str) -> None:
    outcome = played(f"{{at: 0s, request: {{as: r, user: ada, gpus: {gpus}}}, refused: BadInput}}")
    assert outcome.ok, outcome.refusals
    assert "gpus: " in outcome.refusals[0].detail


def test_names_of_others_and_strange_names_are_carried_safely() -> None:
    outcome = played(
        """{at: 0s, request: {as: "<b>'\\"", user: "ann\\n/../x", groups: [alpha], gpus: 1}}""",
        """{at: 1s, expect: {request: "<b>'\\"", is: {user: "ann\\n/../x", state: granted}}}""",
    )
    assert outcome.ok


def test_a_user_that_is_not_listed_is_remarked_upon() -> None:
    outcome = played("{at: 0s, request: {as: r, user: adda, gpus: 1}, refused: NoQuota}")
    assert outcome.remarks == ["s.yaml: user 'adda' is not in 'users' and has no groups"]


def test_a_manual_runtime_waits_to_be_told() -> None:
    head = HEAD.replace("users:", "runtime: {manual: true}\nusers:")
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 1}}",
        "{at: 5m, expect: {lease: r, is: {state: granted}}}",
        "{at: 5m, preparing: r}",
        "{at: 6m, expect: {lease: r, is: {state: preparing, preparing_at: 5m}}}",
        "{at: 7m, started: r}",
        "{at: 8m, expect: {lease: r, is: {state: active, active_at: 7m}}}",
        "{at: 9m, release: r}",
        "{at: 30m, expect: {lease: r, is: {state: stopping}}}",
        "{at: 31m, gone: r}",
        "{at: 31m, expect: {lease: r, is: {state: released, released_at: 31m}}}",
        head=head,
    )
    assert outcome.ok, parted(outcome)


def test_while_the_runtime_is_unreachable_nobody_is_asked_anything() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 1}}",
        "{at: 1m, runtime: {unreachable: true}}",
        "{at: 2m, release: r}",
        "{at: 3m, expect: {lease: r, is: {state: stopping}}}",
        "{at: 4m, runtime: {unreachable: false, stop_after: 1m}}",
        "{at: 270s, expect: {lease: r, is: {state: stopping}}}",
        "{at: 6m, expect: {lease: r, is: {state: released}}}",
    )
    assert outcome.ok, parted(outcome)


def test_a_restart_goes_through_the_texts_of_the_ledger() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 2}}",
        "{at: 1s, request: {as: w, user: abe, gpus: 2, start: always}}",
        "{at: 2s, restart: }",
        "{at: 2s, expect: {request: w, is: {state: queued, position: 1}}}",
        "{at: 6s, expect: {lease: r, is: {state: active}}}",
        "{at: 7s, restart: {down_for: 10h}}",
        "{at: 7s, expect: {lease: r, is: {state: {in: [stopping, released]}}}}",
        "{at: 11h, expect: {lease: w, is: {state: active}}}",
    )
    assert outcome.ok, parted(outcome)


def test_presence_lasts_until_its_owner_leaves() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 2}}",
        "{at: 1m, request: {as: w, user: abe, gpus: 2}}",
        "{at: 2m, presence: abe}",
        "{at: 3h, release: r}",
        "{at: 181m, expect: {lease: w, is: {state: active}}}",
        "{at: 4h, request: {as: v, user: ada, gpus: 2}}",
        "{at: 4h, presence: {user: ada}}",
        "{at: 5h, presence: {user: ada, visible: false}}",
        "{at: 5h, release: w}",
        "{at: 301m, expect: {lease: v, is: {state: granted}}}",
    )
    assert outcome.ok, parted(outcome)


def test_reports_readings_and_stages_are_taken() -> None:
    outcome = played(
        "{at: 0s, request: {as: r, user: ada, gpus: 1}}",
        "{at: 1m, report: {lease: r, kernels: [{id: k, state: idle}], presence: {visible: true}}}",
        "{at: 1m, reading: {node: n1, device: 0, utilisation: null, memory_used: 1GiB}}",
        "{at: 1m, stage: {lease: r, stage: loading data}}",
        "{at: 2m, expect: {lease: r, is: {state: active}}}",
    )
    assert outcome.ok


def test_a_node_may_come_change_and_go() -> None:
    outcome = played(
        "{at: 0s, node: {node: n2, devices: [{model: A100, memory: 80GiB, count: 3}]}}",
        "{at: 0s, expect: {capacity: , is: {total: 5}}}",
        "{at: 1m, node: {node: n2, lost: true}}",
        "{at: 1m, expect: {capacity: , is: {in_service: 2, out_of_service: 3}}}",
        "{at: 2m, node: {node: n2, restored: true}}",
        "{at: 2m, node: {node: n2, dirty: true}}",
        "{at: 2m, expect: {device: GPU-n2-1, is: {health: dirty, in_service: false}}}",
        "{at: 3m, node: {node: n2, tainted: [gone-away]}}",
        "{at: 3m, expect: {capacity: , is: {nodes: [{node: n2, taints: {'==': [gone-away]}}]}}}",
        "{at: 4m, node: {node: n2, remove: true}}",
        "{at: 4m, expect: {capacity: , is: {total: 2}}}",
    )
    assert outcome.ok, parted(outcome)


def test_a_policy_is_changed_by_value_or_whole(tmp_path: Path) -> None:
    outcome = played(
        "{at: 0s, policy: {set: {tenants.alpha.limits.gpus_per_user: 1}}}",
        "{at: 0s, policy: {set: {'tenants.alpha.quotas[0].guarantee': 1}}}",
        "{at: 0s, expect: {tenant: alpha, is: {limits: {gpus_per_user: 1}}}}",
        "{at: 0s, expect: {tenant: alpha, is: {quotas: [{guarantee: 1, ceiling: 1}]}}}",
        "{at: 1s, policy: {set: {tenants.alpha.limits: null}}}",
        "{at: 1s, expect: {tenant: alpha, is: {limits: {gpus_per_user: null}}}}",
        "{at: 2s, policy: {version: 1, flavors: {a100: {model: A100}}, by: root, note: less}}",
        "{at: 3s, expect: {audit: {subject: '5'}, is: [{actor: 'user:root', why: less}]}}",
    )
    assert outcome.ok, parted(outcome)


def test_the_command_says_what_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, broken = (tmp_path / name for name in ("good.yaml", "bad.yaml", "broken.yaml"))
    good.write_text(HEAD + "  - {at: 0s, expect: {tenant: alpha, is: {used: 0}}}\n")
    bad.write_text(HEAD + "  - {at: 90m, expect: {tenant: alpha, is: {used: 3}}}\n")
    broken.write_text(HEAD + "  - {at: 0s, cancle: r}\n")
    assert main(["scenario", str(good)]) == 0
    assert "ok    made up (1 checks" in capsys.readouterr().out
    assert main(["scenario", str(good), str(bad)]) == 1
    out = capsys.readouterr().out
    assert "FAIL  made up" in out
    assert f"{bad}:13: at 1h 30m" in out
    assert "tenant alpha: used" in out
    assert "wanted: 3" in out
    assert "found:  0" in out
    assert main(["scenario", str(broken), str(good)]) == 2
    said = capsys.readouterr()
    assert said.err == f"{broken}:13: timeline[0].cancle: unknown action; did you mean 'cancel'?\n"
    assert main(["scenario", str(tmp_path / "none.yaml")]) == 2
    assert main(["scenario"]) == 2


def test_the_command_answers_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(
        HEAD
        + "  - {at: 0s, request: {as: r, user: ada, gpus: 1}}\n"
        + "  - {at: 1m, expect: {lease: r, is: {state: noticed, x: 1}}}\n"
        + "  - {at: 1m, renew: {lease: r}}\n"
    )
    assert main(["scenario", str(tmp_path), "--json"]) == 1
    [told] = json.loads(capsys.readouterr().out)["scenarios"]
    assert (told["name"], told["ok"], told["checks"]) == ("made up", False, 1)
    assert told["failures"][0]["at"] == "1m"
    assert told["failures"][0]["wanted"] == "noticed"
    assert told["failures"][0]["found"] == "active"
    assert told["violations"] == []


def test_a_folder_without_scenarios_is_wrong_usage(tmp_path: Path) -> None:
    assert main(["scenario", str(tmp_path)]) == 2
