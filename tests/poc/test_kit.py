"""The acceptance kit plays, its report stands alone, and its red lines can be crossed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from allotment_hub.cli import main
from allotment_hub.poc.catalogue import PARTS, kit, read_kit
from allotment_hub.poc.json_report import as_json
from allotment_hub.poc.observing import Told
from allotment_hub.poc.redlines import Recorded, red_lines
from allotment_hub.poc.report import page, write
from allotment_hub.poc.running import Verdict, run_kit


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    return run_kit()


def test_every_must_that_is_built_holds(verdict: Verdict) -> None:
    assert [r.failures for r in verdict.results if r.status == "failed"] == []
    assert [line.crossed for line in verdict.lines] == [[], [], []]
    assert verdict.ok


def test_what_is_not_built_is_never_passed(verdict: Verdict) -> None:
    for result in verdict.results:
        if result.item.not_yet:
            assert result.status in ("not yet", "not needed"), result.item.id
    passed, whole = verdict.score
    assert 0 < passed < whole


def test_the_six_steps_and_five_groups_are_there() -> None:
    items = read_kit()
    assert len([item for item in items if item.part == "steps"]) == 6
    assert {item.part for item in items} == set(PARTS)
    played = {item.scenario for item in items if item.scenario}
    files = {
        one.name.removesuffix(".yaml") for one in kit().iterdir() if one.name.endswith(".yaml")
    }
    assert files - played == {"catalogue", "policy", "inventory"}


def test_the_page_needs_nothing_else(verdict: Verdict) -> None:
    text = page(verdict)
    assert not re.search(r"<script|<link|<img|url\(|@import|https?://", text)
    assert "Content-Security-Policy" in text
    for result in verdict.results:
        assert f'id="{result.item.id}"' in text
    assert text.count('class="picture"') == sum(1 for r in verdict.results if r.records)


def test_two_runs_give_the_same_report(verdict: Verdict) -> None:
    again = run_kit()
    assert page(again) == page(verdict)
    assert as_json(again) == as_json(verdict)


def test_what_is_written_can_be_played_again(verdict: Verdict, tmp_path: Path) -> None:
    write(verdict, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    step = next(item for item in report["items"] if item["id"] == "step-3")
    assert step["records"]["requests"][0].keys() >= {"id", "queue", "asked", "leases"}
    assert step["records"]["human_acts"]
    assert step["records"]["quota_changes"]
    file = tmp_path / step["repeat"].removeprefix("allotment-hub scenario ")
    assert main(["scenario", str(file)]) == 0


def test_a_wait_without_a_reason_crosses_the_first_line(verdict: Verdict) -> None:
    result = next(r for r in verdict.results if r.item.id == "step-3")
    assert result.records is not None
    silent = [replace(told, code="", text="") for told in result.told]
    crossed = red_lines([Recorded(item="x", records=result.records, told=silent)])[0]
    assert not crossed.holds
    nothing: list[Told] = []
    crossed = red_lines([Recorded(item="x", records=result.records, told=nothing)])[0]
    assert any("told nothing" in one for one in crossed.crossed)


def test_a_lease_of_nobody_crosses_the_second_and_one_without_a_rule_the_third(
    verdict: Verdict,
) -> None:
    result = next(r for r in verdict.results if r.item.id == "step-1")
    assert result.records is not None
    leases = dict(result.records.leases)
    key, lease = next(iter(leases.items()))
    leases[key] = replace(lease, tenant="ghosts", rule="")
    records = replace(result.records, leases=leases)
    lines = red_lines([Recorded(item="x", records=records, told=result.told)])
    assert "x: 'ghosts' is no team of the rules" in lines[1].crossed
    assert any(lease.id in one for one in lines[2].crossed)
    assert any("earlier rules" in one for one in lines[2].crossed)


def test_a_folder_that_cannot_be_written_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["poc", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
