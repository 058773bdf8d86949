"""The pages in a real browser, against a real governor. The stories are in stories.mjs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.alone import NASTY, PEOPLE, Alone

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE = Path(__file__).parent
STORIES = re.findall(
    r"^export async function (\w+)", (HERE / "stories.mjs").read_text(encoding="utf-8"), re.M
)


@pytest.fixture
def governor(tmp_path: Path) -> Iterator[Alone]:
    alone = Alone(tmp_path).start()
    yield alone
    alone.stop()


class Host:
    """What a story asks this side to do."""

    def __init__(self, governor: Alone) -> None:
        self.governor = governor

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        return self.governor.call(who, method, path, body)

    def ask(self, who: str, wants: dict[str, Any]) -> Any:
        return self.governor.ask(who, **wants)

    def wait_for(self, who: str, request: str, state: str) -> Any:
        return self.governor.wait_for(who, request, state)

    def kill(self) -> None:
        self.governor.kill()

    def start(self) -> None:
        self.governor.start()

    def now(self) -> float:
        return time.time()


@pytest.mark.parametrize("story", STORIES)
def test_story(story: str, governor: Alone) -> None:
    environ = {
        **os.environ,
        "STORY": json.dumps(
            {
                "url": governor.url,
                "tokens": {**{name: governor.token(name) for name in PEOPLE}, "nasty": governor.token(NASTY)},
                "chromium": str(paths.CHROMIUM),
                "shots": os.environ.get("ALLOTMENT_SHOTS"),
            }
        ),
    }
    host = Host(governor)
    with subprocess.Popen(
        ["node", str(HERE / "run.mjs"), story],
        cwd=paths.ROOT, env=environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as player:  # fmt: skip
        assert player.stdout is not None
        assert player.stdin is not None
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
