"""Plays a story of an .mjs file: starts it, and does for it what only this side can."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import paths

HERE = Path(__file__).parent


def stories_of(file: str) -> list[str]:
    """The names of the stories in a file."""
    text = (HERE / file).read_text(encoding="utf-8")
    return re.findall(r"^export async function (\w+)", text, re.M)


def play(file: str, story: str, host: Any, facts: Mapping[str, Any]) -> None:
    """Play one story to its end; its failure is the test's.

    Parameters
    ----------
    host : object
        Its methods are what the story may ask for.
    facts : mapping
        ``url`` of the governor's service, and what else the story has to know.
        ``PAGE_SHOTS`` names a folder for pictures.
    """
    told = {
        "chromium": str(paths.CHROMIUM),
        "shots": os.environ.get("PAGE_SHOTS"),
        **facts,
    }
    with subprocess.Popen(
        ["node", str(HERE / "run.mjs"), file, story],
        cwd=paths.ROOT, env={**os.environ, "STORY": json.dumps(told)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as player:  # fmt: skip
        assert player.stdin is not None
        assert player.stdout is not None
        assert player.stderr is not None
        for line in player.stdout:
            asked = json.loads(line)
            if asked["act"] == "end":
                break
            answer = getattr(host, asked["act"])(*asked["args"])
            player.stdin.write(json.dumps({"answer": answer}) + "\n")
            player.stdin.flush()
        player.stdin.close()
        trouble = player.stderr.read()
        assert player.wait(30) == 0, trouble
