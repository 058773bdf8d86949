"""The acceptance kit against a real governor, over REST."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allotment_hub.cli import main
from tests.support.alone import Alone


def test_it_runs_what_can_be_run_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Alone(tmp_path).start()
    out = tmp_path / "report"
    try:
        for who in ("ann", "root"):
            live = ["--live", alone.url, "--token", alone.token(who)]
            code = main(["poc", "--out", str(out), *live])
            assert code == 0, capsys.readouterr()
            report = json.loads((out / "report.json").read_text("utf-8"))
            status = {item["id"]: item["status"] for item in report["items"]}
            assert status["step-1"] == ("passed" if who == "ann" else "not run")
            assert status["portrait-1"] == "passed"
            assert status["step-3"] == "not run"
            assert status["step-5"] == "not yet"
        assert "running governor" in (out / "report.html").read_text("utf-8")
    finally:
        alone.stop()


def test_nobody_there_is_an_answer_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path)
    assert main(["poc", "--out", out, "--live", "http://127.0.0.1:9", "--token", "t"]) == 1
    assert "no answer from http://127.0.0.1:9" in capsys.readouterr().err
    assert main(["poc", "--out", out, "--token", "t"]) == 2
