"""The report on waits, and samples told step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from allotment_hub.cli import main
from allotment_hub.clock import show_time
from allotment_hub.ledger import Ledger
from allotment_hub.poc.catalogue import kit
from allotment_hub.poc.observing import Observer
from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.scenario import load_scenario
from allotment_hub.simulate.store import LedgerStore
from allotment_hub.views.waits import waits_report


def play(name: str, ledger: Ledger) -> Observer:
    scenario = load_scenario(Path(str(kit() / f"{name}.yaml")))
    ledger.lead(since=scenario.start_ms)
    ledger.load()
    player = Observer(scenario, open_scenario(scenario), LedgerStore(ledger))
    for step in scenario.steps:
        player.play(step)
    return player


def test_the_hardest_to_fit_tells_who_held_what_and_who_went_first() -> None:
    with Ledger.open("sqlite://") as ledger:
        player = play("step-4-fragmentation", ledger)
    report = waits_report(player.events, player.base, player.now, show_time, samples=True)
    hardest = report["samples"]["hardest_to_fit"]
    assert (hardest["request"], hardest["spans"][0]["code"]) == ("vision-2", "Fragmented")
    text = "\n".join(step["text"] for step in hardest["steps"])
    assert "held by biology 2, vision 2" in text
    assert "language-2 of language (2 GPUs) went first" in text
    assert "kept for it from" in text
    assert hardest["steps"][-1]["text"] == "granted after 1 h 50 min"
    held = report["samples"]["longest_held"]
    assert held["steps"][-1]["text"].startswith("nobody whose guarantee covers it asked")


def test_a_period_without_waits_has_no_samples() -> None:
    report = waits_report([], 0, 1000, show_time, samples=True)
    assert report["samples"] == {
        "longest_waited": None, "longest_held": None, "hardest_to_fit": None,
    }  # fmt: skip
    assert report["all"]["granted"] == 0


def test_the_command_reads_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Ledger.open(address) as ledger:
        play("step-3-return", ledger)
    assert main(["waits", "--samples", "--database", address]) == 0
    shown = capsys.readouterr().out
    assert "longest waited: language-1 (language, training)" in shown
    assert main(["waits", "--database", address, "--since", "yesterday"]) == 2
    assert main(["waits", "--database", address, "--url", "http://127.0.0.1:9"]) == 2
    assert main(["waits", "--database", f"sqlite:///{tmp_path}/none.sqlite"]) == 2
