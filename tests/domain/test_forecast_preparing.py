"""A look ahead takes servers that are being prepared to come up."""

from __future__ import annotations

from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import read_scenario

TEXT = """
policy:
  version: 1
  flavors: {a100: {model: A100}}
  tenants: {alpha: {groups: [alpha], quotas: [{flavor: a100, guarantee: 1}]}}
  classes: {notebook: {kind: interactive, prepare_within: 30m, duration: {default: 4h, max: 4h}}}
inventory: [{node: n1, devices: [{model: A100, memory: 80GiB, count: 1}]}]
runtime: {manual: true}
users: {ada: [alpha], abe: [alpha]}
timeline:
  - {at: 0m, request: {as: first, user: ada, gpus: 1, start: always}}
  - {at: 1m, preparing: first}
  - {at: 2m, request: {as: second, user: abe, gpus: 1, start: always}}
  - {at: 2m, expect: {request: second, is: {forecast: {expected_start: {">=": 4h, "<=": 5h}}}}}
"""


def test_who_waits_behind_a_server_that_is_being_prepared_waits_for_its_term() -> None:
    scenario = read_scenario(TEXT, "preparing.yaml")
    player = Player(scenario, open_scenario(scenario))
    for step in scenario.steps:
        player.play(step)
    assert player.finish().failures == []
