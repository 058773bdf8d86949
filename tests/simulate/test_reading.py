"""What a scenario file may say, and how its faults are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from allotment_hub.simulate.document import ScenarioError
from allotment_hub.simulate.player import play
from allotment_hub.simulate.scenario import Scenario, load_scenario, read_scenario, signed_duration

HEAD = """
policy:
  version: 1
  flavors: {a100: {model: A100}}
  tenants: {alpha: {groups: [alpha], quotas: [{flavor: a100, guarantee: 2}]}}
  classes: {notebook: {kind: interactive}}
inventory: [{node: n1, devices: [{model: A100, memory: 80GiB, count: 2}]}]
users: {ada: [alpha]}
timeline:
"""


def scenario(*steps: str, head: str = HEAD) -> Scenario:
    return read_scenario(head + "".join(f"  - {step}\n" for step in steps), "s.yaml")


def fault(*steps: str, head: str = HEAD) -> str:
    with pytest.raises(ScenarioError) as told:
        play(scenario(*steps, head=head))
    return str(told.value)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "{at: 1m, cancle: r1}",
            "s.yaml:10: timeline[0].cancle: unknown action; did you mean 'cancel'?",
        ),
        ("{at: 1m, request: {uzer: ada}}", "unknown key of 'request'; did you mean 'user'?"),
        ("{at: 1m, request: {gpus: 1}}", "'request' needs 'user'"),
        ("{at: 1m, request: r1}", "'request' takes a mapping"),
        ("{cancel: r1}", "'at' is missing"),
        ("{at: 1 m, cancel: r1}", "'1 m' is not a duration"),
        ("{at: -1, cancel: r1}", "outside 0 to"),
        ("{at: true, cancel: r1}", "is not a duration"),
        ("{at: 1m}", "has 0 actions"),
        ("{at: 1m, cancel: r1, claim: r1}", "has 2 actions"),
        ("{at: 1m, cancel: {request: r1, id: r1}}", "says the same as another key"),
        ("{at: 1m, cancel: r1, is: {a: 1}}", "belongs into an 'expect'"),
        ("{at: 1m, cancel: r1, refused: 3}", "has to be a code, true or false"),
        ("{at: 1m, expect: {reqest: r1, is: {}}}", "did you mean 'request'?"),
        ("{at: 1m, expect: {request: r1}}", "'is' is missing"),
        ("{at: 1m, expect: {request: r1, si: {}}}", "unknown key of an expect of 'request'"),
        ("{at: 1m, expect: {lease: r1, is: {x: {'=>': 1}}}}", "unknown operator '=>'"),
        ("{at: 1m, expect: r1}", "has to be a mapping"),
        ("just text", "has to be a mapping {at:"),
    ],
)
def test_a_fault_of_a_step_says_where_what_and_what_would_be_right(step: str, said: str) -> None:
    text = fault(step)
    assert said in text
    assert text.startswith("s.yaml:10: timeline[0]")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{at: 1m, cancel: r1}", "no request 'r1' was made before"),
        ("{at: 1m, expect: {lease: r1, is: {}}}", "no request 'r1' was made before"),
        ("{at: 1m, expect: {tenant: alfa, is: {}}}", "no tenant 'alfa'; did you mean 'alpha'?"),
        ("{at: 1m, expect: {pool: x, is: {}}}", "no pool 'x'"),
        ("{at: 1m, expect: {capacity: h100, is: {}}}", "neither a pool nor a flavor"),
        ("{at: 1m, expect: {device: GPU-9, is: {}}}", "no device GPU-9"),
        ("{at: 1m, expect: {device: {node: n1}, is: {}}}", "named by its uuid"),
        ("{at: 1m, device: {node: n1, index: 7, lost: true}}", "no device 7 on node 'n1'"),
        ("{at: 1m, device: {node: n1, index: 0, is: broken}}", "'broken' is none of"),
        ("{at: 1m, drain: n9}", "no node 'n9'"),
        ("{at: 1m, clock: {wall: soon}}", "is not a jump of the clock"),
        ("{at: 1m, pause: maybe}", "'pause' is true or false"),
        ("{at: 1m, presence: {visible: true}}", "needs a request or a user"),
        ("{at: 1m, exempt: {by: root, for: 1h}}", "needs a lease, a user or a class"),
        ("{at: 1m, runtime: {start_after: soon}}", "is not a duration"),
        ("{at: 1m, policy: no-such-file.yaml}", "cannot be read"),
        ("{at: 1m, policy: {set: {version.x.y: 2}}}", "the policy has nothing at"),
    ],
)
def test_a_step_that_makes_no_sense_is_wrong_input_with_its_line(step: str, said: str) -> None:
    text = fault(step)
    assert said in text
    assert text.startswith("s.yaml:10: timeline[0].")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("polcy: {}\ntimeline:\n", "s.yaml:1: polcy: unknown key; did you mean 'policy'?"),
        ("timeline:\n", "'policy' is missing"),
        ("- a\n", "a scenario is a mapping"),
        ("policy: {}\nusers: [ann]\ntimeline:\n", "s.yaml:2: users: has to be a mapping"),
        ("policy: {}\nusers: {a: [1]}\ntimeline:\n", "users.a: has to be a list of groups"),
        ("policy: {}\nruntime: {start: 5s}\ntimeline:\n", "runtime.start: unknown key"),
        ("policy: {}\nruntime: {manual: 1}\ntimeline:\n", "has to be true or false"),
        ("policy: {}\nruntime: 5s\ntimeline:\n", "runtime: has to be a mapping"),
        ("policy: {}\nstart: noon\ntimeline:\n", "start: 'noon' is not a time"),
        ("policy: {}\ncase: 3\ntimeline:\n", "case: has to be the id"),
        ("policy: {}\nname: [a]\ntimeline:\n", "name: has to be text"),
        ("policy: {}\ntimeline: 3\n", "timeline: has to be a list"),
        ("policy: {version: 2}\ntimeline:\n", "policy.version: is 2"),
        ("policy: 3\ntimeline:\n", "policy: has to be written here or be the path of a file"),
        ("policy: none.yaml\ntimeline:\n", "policy: none.yaml: cannot be read"),
        ("policy: {version: 1}\ninventory: [{nod: n1}]\ntimeline:\n", "inventory[0].nod"),
        ("a: 1\na: 2\n", "given twice"),
        ("a: [1\n", "is not YAML"),
        ("policy: !secret x\n", "uses the tag"),
    ],
)
def test_a_fault_of_the_head_says_where_and_what(head: str, said: str) -> None:
    with pytest.raises(ScenarioError) as told:
        play(read_scenario(head, "s.yaml"))
    assert said in str(told.value)


def test_all_faults_are_told_at_once() -> None:
    text = fault("{at: 1m, cancle: r1}", "{at: x, claim: r1}", "{at: 2m, expect: {}}")
    assert [line.split(":")[1] for line in text.splitlines()] == ["10", "11", "12"]


def test_the_same_is_said_in_different_forms() -> None:
    made = scenario(
        "{at: 0s, request: {as: r1, user: ada, gpus: 1}}",
        "{at: 1m, cancel: r1}",
        "{at: 1m, cancel: {request: r1}}",
        "{at: 1m, cancel: {lease: r1, user: ada}}",
        "{at: 1m, renew: {request: r1}}",
        "{at: 1m, pause: true}",
        "{at: 1m, restart: }",
        "{at: 1m, clock: +1h}",
        "{at: 1m, expect: {request: r1}, is: {state: queued}}",
    )
    args = [dict(step.args) for step in made.steps]
    assert args[1] == args[2] == {"request": "r1"}
    assert args[3] == {"request": "r1", "by": "ada"}
    assert args[4] == {"lease": "r1"}
    assert args[5:8] == [{"on": True}, {}, {"wall": "+1h"}]
    assert made.steps[8].expect is not None
    assert made.steps[8].expect.pattern == {"state": "queued"}


def test_steps_are_played_by_time_and_ties_in_the_order_of_the_file() -> None:
    made = scenario("{at: 5m, pause: true}", "{at: 60, drain: n1}", "{at: 1m, pause: false}")
    assert [step.act for step in made.steps] == ["drain", "pause", "pause"]
    assert [step.at for step in made.steps] == [60_000, 60_000, 300_000]


def test_policy_and_inventory_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\nflavors: {a100: {model: A100}}\n")
    (tmp_path / "i.yaml").write_text("- {node: n1, devices: [{model: A100, memory: 80GiB}]}\n")
    (tmp_path / "s.yaml").write_text(
        "policy: p.yaml\ninventory: i.yaml\n"
        "timeline: [{at: 0s, expect: {capacity: a100, is: {total: 1}}}]\n"
    )
    assert play(load_scenario(tmp_path / "s.yaml")).ok


def test_a_fault_in_a_policy_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\nflavours: {}\n")
    (tmp_path / "s.yaml").write_text("policy: p.yaml\ntimeline: []\n")
    with pytest.raises(ScenarioError, match=r"p\.yaml:2: flavours: is not a known key"):
        play(load_scenario(tmp_path / "s.yaml"))


def test_a_file_that_is_not_there_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "ms"), [("+1h", 3_600_000), ("-90s", -90_000), ("20m", 1_200_000), (-5, -5_000)]
)
def test_a_jump_of_the_clock_has_a_sign(text: str | int, ms: int) -> None:
    assert signed_duration(text) == ms
