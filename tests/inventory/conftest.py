from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.inventory import NvmlInventory, NvmlSettings
from allotment_hub.inventory.sampler import SamplerSettings
from tests.support import paths
from tests.support.fake_nvml import Machine, build, compiler


class SteadyTime:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms

    def pass_by(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture
def now() -> SteadyTime:
    return SteadyTime()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with a driver's name, built once."""
    if compiler() is None:
        message = "no C compiler for the stand-in of the GPU driver: apt-get install gcc"
        pytest.fail(message) if paths.in_ci() else pytest.skip(message)
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path, nvml_library: Path) -> Machine:
    return Machine(tmp_path / "machine", nvml_library)


Open = Callable[..., NvmlInventory]


@pytest.fixture
async def inventory_of(now: SteadyTime) -> AsyncIterator[Open]:
    """Makes inventories of a machine and closes them at the end of the test."""
    async with contextlib.AsyncExitStack() as stack:

        def make(machine: Machine, *, sampler: Any = None, **settings: Any) -> NvmlInventory:
            keywords = {"environment": machine.environment, **(sampler or {})}
            inventory = NvmlInventory(
                now,
                NvmlSettings(
                    node="n1",
                    memory=settings.pop("memory", 256 << 30),
                    sampler=SamplerSettings(**keywords),
                    **settings,
                ),
            )
            stack.push_async_callback(inventory.close)
            return inventory

        yield make


async def healths(inventory: NvmlInventory) -> dict[str, str]:
    (node,) = await inventory.nodes()
    return {device.uuid: device.health for device in node.devices}


def uuids(letters: Sequence[str]) -> list[str]:
    return [f"GPU-{letter * 8}-0000-4000-8000-000000000000" for letter in letters]
