"""``waits`` and ``policy dry-run``, asked of a real governor by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allotment_hub.cli import main
from tests.support.alone import POLICY, Alone


def test_the_commands_tell_what_the_governor_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Alone(tmp_path).start()
    try:
        connection = ["--url", alone.url, "--token", alone.token("root")]
        bob = alone.ask("bob", gpus=3, flavor="a100-80g", start="always")
        ann = alone.ask("ann", gpus=2, flavor="a100-80g", start="always")
        assert (bob["state"], ann["state"]) == ("granted", "queued")

        assert main(["waits", "--samples", *connection]) == 0
        told = capsys.readouterr().out
        assert f"longest waited: {ann['id']} (vision, notebook)" in told
        assert "held by nlp 3 (1 of them borrowed)" in told

        policy = json.loads(json.dumps(POLICY))
        policy["tenants"]["nlp"]["quotas"][0]["ceiling"] = 2
        (tmp_path / "new.yaml").write_text(json.dumps(policy), encoding="utf-8")
        assert main(["policy", "dry-run", str(tmp_path / "new.yaml"), *connection]) == 0
        told = capsys.readouterr().out
        assert told.startswith("2 requests of 168.0 hours, replayed under both policies")
        assert f"{bob['id']} (nlp) would be refused: CeilingReached" in told
    finally:
        alone.stop()
