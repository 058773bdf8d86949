"""The pages as a service of a real hub: its log-in, its look, its servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.alone import INVENTORY, POLICY
from tests.support.hub import RealHub

from .playing import play, stories_of

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]


@pytest.fixture(scope="module", params=["hub6", "hub5"])
def hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealHub]:
    real = RealHub(
        tmp_path_factory.mktemp("hub"),
        env=request.param,
        policy=json.dumps(POLICY),
        inventory=json.dumps(INVENTORY),
        users={"ann": ["vision"], "bob": ["nlp"], "cyd": ["nlp", "vision"]},
    )
    with real:
        yield real


class Host:
    """What a story asks this side to do."""

    def __init__(self, hub: RealHub) -> None:
        self.hub = hub

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        return self.hub.governor(method, f"/{path}", who, body).json()

    def gone(self, who: str, server: str) -> bool:
        self.hub.wait(lambda: not self.hub.server(who, server).get("ready"), 60, "it still runs")
        return True

    def ready(self, who: str, server: str) -> bool:
        self.hub.wait_ready(who, server)
        return True


@pytest.mark.timeout(240)
@pytest.mark.parametrize("story", stories_of("hub_stories.mjs"))
def test_story(story: str, hub: RealHub) -> None:
    play(
        "hub_stories.mjs",
        story,
        Host(hub),
        {"url": f"{hub.service_url}/", "hub": hub.url, "tokens": {}},
    )
