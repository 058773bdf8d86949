"""The pages in a real browser, against a real governor. The stories are in stories.mjs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.alone import NASTY, PEOPLE, Alone

from .playing import play, stories_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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

    def parked(self, who: str, request: str) -> Any:
        return self.governor.wait_until(
            lambda: self.governor.call(who, "GET", f"requests/{request}"), "parked"
        )

    def kill(self) -> None:
        self.governor.kill()

    def start(self) -> None:
        self.governor.start()


@pytest.mark.parametrize("story", stories_of("stories.mjs"))
def test_story(story: str, governor: Alone) -> None:
    tokens = {**{name: governor.token(name) for name in PEOPLE}, "nasty": governor.token(NASTY)}
    play("stories.mjs", story, Host(governor), {"url": governor.url, "tokens": tokens})
