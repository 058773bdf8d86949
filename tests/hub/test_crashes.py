"""``kill -9`` at random moments of a busy hub: of the hub, of the governor, of both.

Three tenants start, stop and wait all the while. After each crash no device is leased twice or
used by two servers, what ran runs on, and who waited waits with the age it had. ``CRASHES`` sets
how many of each kind (the default is small; ten of each take some minutes).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time

import httpx
import pytest

from tests.hub.conftest import ENVS, MakeHub
from tests.hub.test_restart import held, used_by_servers
from tests.hub.test_story import leases, waiting
from tests.support.hub import RealHub

CRASHES = int(os.environ.get("CRASHES", "1"))
KINDS = ("governor", "hub", "both")

pytestmark = [
    pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(120 + 120 * CRASHES * len(KINDS)),
]  # fmt: skip

POLICY = """
version: 1
flavors:
  a100: {model: "A100", memory: 80GiB}
tenants:
  vision: {groups: [vision], quotas: [{flavor: a100, guarantee: 2, ceiling: 4, lend: 2}]}
  nlp: {groups: [nlp], quotas: [{flavor: a100, guarantee: 2, ceiling: 4, lend: 2}]}
  bio: {groups: [bio], quotas: [{flavor: a100, guarantee: 1, ceiling: 3, lend: 1}]}
classes:
  notebook: {kind: interactive, priority: 100, interruptible: stateless, borrow: true,
             duration: {default: 4h, max: 12h}, claim_window: 10m}
borrowing: {term: 4h, renewals: 2, notice: 2s, protected: 1s}
reclaim:
  - {idle_after: 30m, unused_after: 4h, notice: 2s, freeze: 1s, stop_grace: 5s}
"""

INVENTORY = """
- {node: n1, devices: [{model: "NVIDIA A100-SXM4-80GB", memory: 80GiB, count: 5}]}
"""

USERS = {
    "ann": ["vision"], "cat": ["vision"], "bob": ["nlp"], "dan": ["nlp"],
    "eve": ["bio"], "fay": ["bio"],
}  # fmt: skip


class Demand(threading.Thread):
    """People who start, stop and ask again without pause, until they are told to go."""

    def __init__(self, hub: RealHub, seed: int) -> None:
        super().__init__(daemon=True)
        self.hub = hub
        self.random = random.Random(seed)
        self.gone = threading.Event()

    def run(self) -> None:
        while not self.gone.is_set():
            user = self.random.choice(list(self.hub.users))
            with contextlib.suppress(httpx.HTTPError, ValueError):
                if self.random.random() < 0.6:
                    gpus = self.random.choice([1, 1, 2])
                    self.hub.start_server(user, {"allotment": {"gpus": gpus, "start": "always"}})
                else:
                    self.hub.stop_server(user)
            self.gone.wait(self.random.uniform(0.1, 0.6))


def places(hub: RealHub) -> dict[str, str]:
    return {r["id"]: r["submitted_at"] for name in hub.users for r in waiting(hub, name)}


def check(hub: RealHub, asked: dict[str, str]) -> None:
    """What has to hold once all is up again."""
    held(hub)
    used_by_servers(hub)
    for request_id, since in asked.items():
        answer = hub.governor("GET", f"/requests/{request_id}", "admin")
        assert answer.status_code == 200, f"the place {request_id} is lost: {answer.text}"
        assert answer.json()["submitted_at"] == since


@pytest.mark.parametrize("env", ENVS)
def test_nothing_is_lost_or_given_twice(make_hub: MakeHub, env: str) -> None:
    hub = make_hub(env, policy=POLICY, inventory=INVENTORY, users=USERS, tiny=True)
    for name in (*USERS, "admin"):
        hub.user_token(name)
    chance = random.Random(20)
    kinds = [kind for kind in KINDS for _ in range(CRASHES)]
    chance.shuffle(kinds)
    for number, kind in enumerate(kinds):
        demand = Demand(hub, number)
        demand.start()
        time.sleep(chance.uniform(1.0, 5.0))  # a random moment of their work
        asked = places(hub)
        time.sleep(chance.uniform(0.0, 0.5))
        if kind in ("governor", "both"):
            hub.kill_governor()
        if kind in ("hub", "both"):
            hub.kill_hub()
            hub.start()
        hub.wait_up()
        demand.gone.set()
        demand.join(60)
        try:
            check(hub, asked)
        except AssertionError as error:
            raise AssertionError(f"{kind}, crash {number + 1}: {error}\n{hub.tail(400)}") from None
    settle(hub)


def settle(hub: RealHub) -> None:
    """Everybody goes; then nothing is held, nothing runs and nothing waits."""

    def empty() -> bool:
        for name in hub.users:
            for request in waiting(hub, name):
                hub.governor("DELETE", f"/requests/{request['id']}", name)
            for lease in leases(hub, name):
                if lease["state"] not in ("stopping", "released"):
                    hub.governor("POST", f"/leases/{lease['id']}/release", name, {})
        return not held(hub) and not used_by_servers(hub)

    hub.wait(empty, 120, "something is left")
