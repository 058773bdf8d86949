"""Whatever stands where a value belongs, a step is played or refused with a line: never a crash."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from allotment_hub.simulate.actions import ACTIONS, EXPECTS
from allotment_hub.simulate.document import ScenarioError
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import read_scenario
from tests.views.world import world

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 2.5, 1e300, "", "lent", "x" * 300, "<b>\n\u202e", [], [None],
    [[]], {}, {"a": {"b": [1]}}, {"lent": True},
)  # fmt: skip
BASE: dict[str, dict[str, Any]] = {
    "request": {"user": "ann", "gpus": 1},
    "drain": {"node": "n1"},
    "node": {"node": "n1"},
    "device": {"node": "n1", "index": 0},
}


def attempt(player: Player, step: dict[str, Any]) -> None:
    text = json.dumps({"policy": {"version": 1}, "timeline": [{"at": "12m", **step}]})
    with contextlib.suppress(ScenarioError):
        for one in read_scenario(text, "s.yaml").steps:
            player.play(one)
    assert player.outcome.violations == []


@pytest.mark.parametrize("act", [*ACTIONS, "expect"])
def test_a_strange_value_in_place_of_an_action(act: str) -> None:
    player = world()
    for value in STRANGE:
        attempt(player, {act: value})


@pytest.mark.parametrize("act", ACTIONS)
def test_a_strange_value_of_a_key_of_an_action(act: str) -> None:
    player = world()
    base = BASE.get(act) or dict.fromkeys(ACTIONS[act].needs, "lent")
    keys = ACTIONS[act].keys if act != "policy" else {"set", "path", "by", "note", "flavors"}
    for key in sorted(keys):
        for value in STRANGE:
            attempt(player, {act: {**base, key: value}})


@pytest.mark.parametrize("kind", EXPECTS)
def test_a_strange_selector_or_pattern(kind: str) -> None:
    player = world()
    for value in STRANGE:
        attempt(player, {"expect": {kind: value, "is": {}}})
        attempt(player, {"expect": {kind: "lent", "is": value}})
        for key in EXPECTS[kind]:
            attempt(player, {"expect": {kind: "lent", key: value, "is": {}}})
