"""A small pool in which most of what can be shown is there to be shown."""

from __future__ import annotations

from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import read_scenario
from allotment_hub.views import Frame
from allotment_hub.views.frame import Viewer, viewer_of

TEXT = """
policy:
  version: 1
  admins: ["group:gpu-admins"]
  flavors: {a100: {model: A100, memory: 80GiB}, h100: {model: H100}}
  tenants:
    vision:
      groups: [vision]
      owners: ["user:lin"]
      quotas: [{flavor: a100, guarantee: 2, ceiling: 4}]
      budget: {gpu_hours: 100, per: week}
    nlp: {groups: [nlp], quotas: [{flavor: a100, guarantee: 1, ceiling: 4}]}
  classes: {notebook: {kind: interactive, borrow: true}}
  borrowing: {term: 4h, notice: 15m, protected: 0}
inventory: [{node: n1, devices: [{model: A100, memory: 80GiB, count: 4}]}]
users: {ann: [vision], lin: [vision], bob: [nlp], cid: [nlp], root: [gpu-admins]}
timeline:
  - {at: 0s, request: {as: lent, user: bob, gpus: 3}}
  - {at: 1m, request: {as: small, user: cid, gpus: 1}}
  - {at: 10m, request: {as: claim, user: ann, gpus: 2, duration: 2h}}
  - {at: 11m, request: {as: later, user: lin, gpus: 2}}
"""


def world() -> Player:
    """The pool at 12 minutes: a lease asked back, a claim, a line of two."""
    scenario = read_scenario(TEXT, "world.yaml")
    player = Player(scenario, open_scenario(scenario))
    for step in scenario.steps:
        player.play(step)
    player.advance(player.base + 12 * 60_000)
    return player


def seen_by(player: Player, name: str) -> Frame:
    """The pool as a user sees it."""
    policy = player.state.policy
    viewer: Viewer = viewer_of(policy, name, player.scenario.users[name])
    return Frame(state=player.state, now=player.now, wall=player.wall, viewer=viewer)
