"""``allotment-hub policy`` against a real governor and its ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment_hub.cli import main
from allotment_hub.policyfile import load_policy
from tests.support.alone import POLICY, Alone


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    governor = Alone(tmp_path_factory.mktemp("governor")).start()
    yield governor
    governor.stop()


@pytest.fixture(autouse=True)
def _where(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOTMENT_URL", alone.url)
    monkeypatch.setenv("ALLOTMENT_TOKEN", alone.token("root"))


def _file(folder: Path, ceiling: int) -> Path:
    text = json.dumps(POLICY)
    assert '"ceiling": 4' in text
    file = folder / "policy.yaml"
    file.write_text(text.replace('"ceiling": 4', f'"ceiling": {ceiling}'))
    return file


def test_a_policy_is_shown_compared_applied_and_rolled_back(
    alone: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "show", "--brief"]) == 0
    assert load_policy(capsys.readouterr().out).policy == load_policy(POLICY).policy

    file = _file(tmp_path, 3)
    assert main(["policy", "diff", str(file)]) == 0
    assert "tenants.vision.quotas[0].ceiling: 4 → 3" in capsys.readouterr().out
    assert main(["policy", "apply", str(file), "--note", "less"]) == 0
    out = capsys.readouterr().out
    assert "tenants.nlp.quotas[0].ceiling: 4 → 3" in out
    assert "applied; version 2 is in force" in out

    assert main(["policy", "history", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert (versions[0]["version"], versions[0]["note"]) == (2, "less")
    assert main(["policy", "rollback", "1"]) == 0
    assert capsys.readouterr().out == "rolled back to version 1; version 3 is in force\n"

    assert main(["policy", "show", "--brief", "--db", f"{alone.folder}/ledger.sqlite"]) == 0
    assert load_policy(capsys.readouterr().out).policy == load_policy(POLICY).policy


def test_a_policy_with_an_error_changes_nothing(
    alone: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = alone.call("root", "GET", "policy")
    file = _file(tmp_path, 1)
    assert main(["policy", "apply", str(file)]) == 2
    assert "below the guarantee of 2" in capsys.readouterr().err
    refused = alone.call("root", "PUT", "policy", {"text": file.read_text(), "note": ""})
    assert refused["errors"][0]["path"] == "tenants.vision.quotas[0].ceiling"
    assert alone.call("root", "GET", "policy") == before


def test_others_than_admins_change_nothing(
    alone: Alone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ALLOTMENT_TOKEN", alone.token("ann"))
    before = alone.call("root", "GET", "policy")
    assert main(["policy", "apply", str(_file(tmp_path, 3))]) == 2
    assert "HTTP 403" in capsys.readouterr().err
    assert alone.call("root", "GET", "policy") == before
    monkeypatch.setenv("ALLOTMENT_TOKEN", "nobody-knows-this-token")
    assert main(["policy", "history"]) == 2
    assert "HTTP 401" in capsys.readouterr().err


def test_a_version_or_ledger_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "rollback", "77"]) == 1
    assert "HTTP 404" in capsys.readouterr().err
    assert main(["policy", "show", "--db", f"sqlite:///{tmp_path}/none.sqlite"]) == 2
    assert "there is no ledger at" in capsys.readouterr().err
