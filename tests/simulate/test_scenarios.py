"""Every scenario file of the rule library holds, and none breaks an invariant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allotment_hub.ledger import Ledger
from allotment_hub.simulate.player import Outcome, play
from allotment_hub.simulate.scenario import load_scenario
from allotment_hub.simulate.store import LedgerStore

FOLDER = Path(__file__).parent.parent / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
CASE = re.compile(r"[A-Z0-9]{2,8}-\d\d")


def told(outcome: Outcome) -> str:
    lines = [
        f"{failure.step.line}: {failure.path}: wanted {failure.wanted!r}, found {failure.found!r}"
        for failure in outcome.failures
    ]
    return "\n".join([*lines, *map(str, outcome.violations)])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
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


def restarts(path: Path) -> bool:
    return any(step.act == "restart" for step in load_scenario(path).steps)


@pytest.mark.parametrize("path", [path for path in FILES if restarts(path)], ids=lambda p: p.stem)
def test_a_restart_reads_what_the_ledger_kept(path: Path) -> None:
    with Ledger.open("sqlite://") as ledger:
        ledger.lead(since=0)
        ledger.load()
        outcome = play(load_scenario(path), LedgerStore(ledger))
        assert outcome.ok, told(outcome)
        assert ledger.verify().holds
        assert ledger.differences() == []
