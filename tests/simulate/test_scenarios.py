"""Every scenario file of the rule library holds, and none breaks an invariant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allotment_hub.simulate.player import Outcome, play
from allotment_hub.simulate.scenario import load_scenario

FOLDER = Path(__file__).parent.parent / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
CASE = re.compile(r"[A-Z0-9]{2,8}-\d\d")


def told(outcome: Outcome) -> str:
    lines = [
        f"{failure.step.line}: {failure.path}: wanted {failure.wanted!r}, found {failure.found!r}"
        for failure in outcome.failures
    ]
    return "\n".join([*lines, *map(str, outcome.violations)])


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_scenario_holds(path: Path) -> None:
    scenario = load_scenario(path)
    outcome = play(scenario)
    assert outcome.ok, told(outcome)
    assert outcome.checks > 0
    assert not outcome.remarks, "a scenario of the library gives no warnings"


def test_names_are_unique_and_cases_are_case_ids() -> None:
    scenarios = [load_scenario(path) for path in FILES]
    names = [scenario.name for scenario in scenarios]
    assert len(names) == len(set(names))
    for scenario in scenarios:
        assert all(CASE.fullmatch(case) for case in scenario.cases), scenario.file
