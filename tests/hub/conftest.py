"""Real hubs of both supported generations; one for the stories of a module, others for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hub import RealHub

ENVS = ["hub6", "hub5"]

POLICY = """
version: 1
currency: EUR
flavors:
  a100: {model: "A100", memory: 80GiB, rate: 1}
tenants:
  vision:
    groups: [vision]
    quotas: [{flavor: a100, guarantee: 2, ceiling: 3, lend: 1}]
    limits: {gpus_per_user: 2, queued_per_user: 5}
  nlp:
    groups: [nlp]
    quotas: [{flavor: a100, guarantee: 2, ceiling: 3, lend: 1}]
classes:
  notebook: {kind: interactive, priority: 100, interruptible: stateless, borrow: true,
             duration: {default: 4h, max: 12h}, claim_window: 10m}
borrowing: {term: 4h, renewals: 2, notice: 3s, protected: 1s}
reclaim:
  - {idle_after: 30m, unused_after: 4h, notice: 3s, freeze: 1s, stop_grace: 5s,
     keep: {times: 5, for: 1h}}
ordering: {age_step: 10m, reserve_after: 10m}
"""

INVENTORY = """
- {node: n1, cpus: 32, memory: 256GiB, driver: "570.86",
   devices: [{model: "NVIDIA A100-SXM4-80GB", memory: 80GiB, count: 4}]}
"""

USERS = {
    "ann": ["vision"], "bob": ["nlp"], "cat": ["vision"], "dan": ["nlp"], "eve": ["vision"],
    "guest": [], "o'<b>ä &\"y": ["nlp"],
}  # fmt: skip

MakeHub = Callable[..., RealHub]


@pytest.fixture(scope="module")
def make_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeHub]:
    """Start hubs that end with the module."""
    hubs: list[RealHub] = []

    def make(env: str, **more: Any) -> RealHub:
        settings = {"policy": POLICY, "users": USERS, **more}
        if "peer" not in settings:
            settings.setdefault("inventory", INVENTORY)
        folder: Path = tmp_path_factory.mktemp(env)
        hub = RealHub(folder, env=env, **settings)
        hubs.append(hub)
        return hub.__enter__()

    yield make
    for hub in hubs:
        hub.close()


@pytest.fixture(scope="module", params=ENVS)
def hub(request: pytest.FixtureRequest, make_hub: MakeHub) -> RealHub:
    """A hub with the real governor, for the tests of one module in turn."""
    return make_hub(request.param)
