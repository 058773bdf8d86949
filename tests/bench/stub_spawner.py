"""A spawner whose servers are all one stub: what is left is the cost of the hub and the gate."""

from __future__ import annotations

import os
from typing import Any

from jupyterhub.spawner import Spawner

PORT = "BENCH_STUB_PORT"


class StubSpawner(Spawner):  # type: ignore[misc]  # JupyterHub carries no types
    """Says that a server runs from its start to its stop; it answers at the stub's port."""

    up = False

    async def start(self) -> tuple[str, int]:
        self.up = True
        return "127.0.0.1", int(os.environ[PORT])

    async def poll(self) -> int | None:
        return None if self.up else 0

    async def stop(self, now: bool = False) -> None:
        self.up = False

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.up = bool(state.get("up"))

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "up": self.up}
