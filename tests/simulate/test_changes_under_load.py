"""Whatever changes under a full pool with a claim, the invariants hold and the work ends."""

from __future__ import annotations

import pytest

from allotment_hub.simulate.player import play
from allotment_hub.simulate.scenario import read_scenario

HEAD = """
policy:
  version: 1
  flavors: {a100: {model: A100}, t4: {model: T4}}
  pools: {p1: {classes: [notebook, training, extra]}, p2: {nodes: {x: y}}}
  tenants:
    alpha:
      groups: [alpha]
      quotas:
        - {pool: p1, flavor: a100, guarantee: 2, ceiling: 4}
        - {pool: p2, flavor: t4, guarantee: 1}
    beta: {groups: [beta], quotas: [{pool: p1, flavor: a100, guarantee: 2, ceiling: 4}]}
  classes:
    notebook: {kind: interactive, borrow: true}
    training: {kind: batch, borrow: true, interruptible: checkpoint}
    extra: {kind: batch, borrow: true, interruptible: checkpoint}
inventory:
  - {node: n1, devices: [{model: A100, memory: 80GiB, count: 4}]}
  - {node: n2, labels: {x: y}, devices: [{model: T4, memory: 16GiB, count: 1}]}
users: {ada: [alpha], ben: [beta], abe: [alpha]}
timeline:
  - {at: 0m, request: {as: a, user: ada, class: extra, gpus: 4, pool: p1}}
  - {at: 0m, request: {as: t, user: ada, class: training, gpus: 1, pool: p2}}
  - {at: 1m, request: {as: t2, user: ada, class: extra, gpus: 1, pool: p2}}
  - {at: 1m, request: {as: q, user: abe, class: extra, gpus: 1, pool: p1}}
  - {at: 2m, request: {as: b, user: ben, class: extra, gpus: 2, pool: p1}}
  - {at: 3m, expect: {request: b, is: {reasons: [{code: WaitingForReturn}]}}}
"""
TAIL = """
  - {at: 3h, restart: true}
  - {at: 4h, expect: {capacity: , is: {}}}
  - {at: 20d, expect: {tenant: beta, is: {used: 0}}}
  - {at: 20d, expect: {tenant: alpha, is: {used: 0}}}
"""


@pytest.mark.parametrize(
    "change",
    [
        ["{at: 10m, policy: {set: {classes.extra: null}}, refused: false}"],
        ["{at: 10m, policy: {set: {pools.p1.classes: [notebook]}}, refused: false}"],
        ["{at: 10m, policy: {set: {tenants.beta.disabled: true}}, refused: false}"],
        ["{at: 10m, policy: {set: {tenants.alpha.quotas: [], pools.p2: null, flavors.t4: null}}}"],
        ["{at: 10m, policy: {set: {flavors.a100.sharing: {mode: mps, share: 0.5}}}}"],
        ["{at: 10m, policy: {set: {'tenants.beta.quotas[0].lend': 0}}, refused: false}"],
        ["{at: 10m, policy: {set: {'tenants.beta.quotas[0].guarantee': 0}}, refused: false}"],
        ["{at: 10m, policy: {set: {tenants.alpha.limits.gpus_per_user: 1}}, refused: false}"],
        ["{at: 10m, node: {node: n1, lost: true}}", "{at: 2h, node: {node: n1, restored: true}}"],
        ["{at: 10m, node: {node: n1, labels: {x: y}}}"],
        ["{at: 10m, device: {node: n1, index: 0, lost: true}}"],
        ["{at: 10m, drain: n1}", "{at: 20m, drain: {node: n1, on: false}}"],
        ["{at: 10m, cancel: b}", "{at: 11m, cancel: a}"],
        ["{at: 10m, release: a}", "{at: 11m, cancel: b}"],
        ["{at: 10m, amend: {request: b, gpus: 1}}"],
        ["{at: 10m, gone: a}"],
        ["{at: 14m, restart: {down_for: 50m}}"],
        ["{at: 14m, restart: {ended: [a, t]}}"],
        ["{at: 10m, runtime: {unreachable: true}}", "{at: 2h, runtime: {unreachable: false}}"],
        ["{at: 10m, pause: true}", "{at: 2h, pause: false}"],
        ["{at: 10m, clock: {wall: +30d}}", "{at: 11m, clock: {wall: -60d}}"],
    ],
    ids=lambda change: change[0][5:60],
)
def test_a_change_breaks_nothing(change: list[str]) -> None:
    steps = "".join(f"  - {step}\n" for step in change)
    outcome = play(read_scenario(HEAD + steps + TAIL.lstrip("\n"), "changes.yaml"))
    assert outcome.violations == []
    assert [(f.path, f.wanted, f.found) for f in outcome.failures] == []
