from __future__ import annotations

import asyncio
from typing import Any

import pytest

from allotment_hub.domain.inventory import Device, Node
from allotment_hub.inventory import DeclaredInventory, Inventory, Reading, change_device

from .conftest import SteadyTime


def two_nodes() -> tuple[Node, ...]:
    return tuple(
        Node(
            name=name,
            devices=tuple(
                Device(uuid=f"GPU-{name}-{i}", index=i, model="L40S", memory=48) for i in range(2)
            ),
        )
        for name in ("n1", "n2")
    )


@pytest.fixture
def inventory(now: SteadyTime) -> DeclaredInventory:
    return DeclaredInventory(two_nodes(), now)


def health(inventory: DeclaredInventory) -> dict[str, str]:
    return {device.uuid: device.health for node in inventory.current for device in node.devices}


async def test_it_serves_as_an_inventory(inventory: DeclaredInventory) -> None:
    port: Inventory = inventory
    await port.start()
    port.set_held(["GPU-n1-0"])
    assert await port.nodes() == two_nodes()
    assert await port.readings() == ()
    await port.close()


@pytest.mark.parametrize(
    ("what", "expected"), [("lost", "lost"), ("dirty", "dirty"), ("tainted", "degraded")]
)
async def test_a_device_changes_and_comes_back(
    inventory: DeclaredInventory, now: SteadyTime, what: Any, expected: str
) -> None:
    now.pass_by(5)
    inventory.device("GPU-n1-1", what)
    assert health(inventory)["GPU-n1-1"] == expected
    assert inventory.current[0].devices[1].since == now.ms
    assert inventory.current[0].devices[1].detail == f"declared {what}"
    inventory.device("GPU-n1-1", "restored")
    assert set(health(inventory).values()) == {"ok"}


async def test_gpu_09_one_lost_device_leaves_the_others_in_service(
    inventory: DeclaredInventory,
) -> None:
    inventory.device("GPU-n1-0", "lost", "fell off the bus")
    assert [uuid for uuid, each in health(inventory).items() if each != "ok"] == ["GPU-n1-0"]
    assert all(node.serves for node in inventory.current)


async def test_a_node_is_lost_and_restored(inventory: DeclaredInventory) -> None:
    inventory.node("n2", "lost")
    assert [node.serves for node in inventory.current] == [True, False]
    inventory.node("n2", "restored")
    assert inventory.current == two_nodes()


async def test_a_node_is_tainted_once_and_restored(inventory: DeclaredInventory) -> None:
    inventory.node("n1", "tainted", "maintenance")
    inventory.node("n1", "tainted", "maintenance")
    inventory.node("n1", "tainted")
    assert inventory.current[0].taints == ("maintenance", "tainted")
    inventory.node("n1", "restored")
    assert inventory.current[0].taints == ("maintenance",)
    inventory.node("n1", "restored", "maintenance")
    assert inventory.current == two_nodes()


async def test_a_dirty_node_has_dirty_devices(inventory: DeclaredInventory) -> None:
    inventory.node("n1", "dirty")
    assert list(health(inventory).values()) == ["dirty", "dirty", "ok", "ok"]


async def test_what_cannot_be_is_said_clearly(inventory: DeclaredInventory) -> None:
    with pytest.raises(KeyError, match="no node has a device 'GPU-x'"):
        inventory.device("GPU-x", "lost")
    with pytest.raises(KeyError, match="no node 'n3'; there are n1, n2"):
        inventory.node("n3", "lost")
    with pytest.raises(ValueError, match="'broken' cannot happen to it; write one of lost, rest"):
        change_device(two_nodes(), "GPU-n1-0", "broken", at=0)  # type: ignore[arg-type]  # what a caller without types may do
    assert inventory.current == two_nodes()


async def test_changes_wake_who_waits(inventory: DeclaredInventory) -> None:
    seen = await inventory.wait_for_change(0)
    waiting = asyncio.create_task(inventory.wait_for_change(seen))
    await asyncio.sleep(0)
    inventory.device("GPU-n1-0", "restored")  # it was never otherwise
    await asyncio.sleep(0)
    assert not waiting.done()
    inventory.device("GPU-n1-0", "lost")
    inventory.replace_nodes(two_nodes()[:1])
    assert await waiting == seen + 2


async def test_proof_of_release(inventory: DeclaredInventory) -> None:
    assert (await inventory.device_clear(["GPU-n1-0", "GPU-n2-0"])).verdict == "clear"
    inventory.device("GPU-n1-0", "lost")
    assert (await inventory.device_clear(["GPU-n1-0"])).verdict == "unknown"
    assert (await inventory.device_clear(["GPU-gone"])).verdict == "unknown"
    inventory.device("GPU-n1-1", "dirty", "10 GiB of a process that is gone")
    clearance = await inventory.device_clear(["GPU-n1-0", "GPU-n1-1"])
    assert clearance.verdict == "busy"
    assert clearance.evidence == ("GPU-n1-1: 10 GiB of a process that is gone",)


async def test_readings_are_declared_too(inventory: DeclaredInventory) -> None:
    inventory.read(Reading(node="n1", device="GPU-n1-0", at=1, utilisation=5))
    inventory.read(Reading(node="n1", device="GPU-n1-0", at=2, utilisation=None))
    (reading,) = await inventory.readings()
    assert (reading.at, reading.utilisation) == (2, None)
