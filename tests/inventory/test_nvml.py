"""The real driver binding against a library that says what each test tells it to."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allotment_hub.domain.inventory import Device, Node
from allotment_hub.inventory import NvmlInventory, NvmlSettings
from tests.support.fake_nvml import (
    GIB,
    LOST,
    MISMATCH,
    NO_PERMISSION,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    UNKNOWN,
    Gpu,
    Machine,
)

from .conftest import Open, SteadyTime, healths, uuids

A, B, C, D = uuids("abcd")
SLICE = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"
OLD_SLICE = f"MIG-{A}/1/0"
ME = os.getpid()


def pid_of_nobody() -> int:
    """The number of a process that was there and is not any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_a_healthy_machine_is_read_whole(machine: Machine, inventory_of: Open) -> None:
    machine.write(Gpu(A, used=4 * GIB, utilisation=37, processes=[(ME, 4 * GIB, 30)]), Gpu(B))
    inventory = inventory_of(machine)
    inventory.set_held([A])
    assert await inventory.refresh()
    (node,) = await inventory.nodes()
    assert (node.name, node.driver, node.health) == ("n1", "570.86.15", "ok")
    assert [(d.uuid, d.index, d.model, d.memory, d.health) for d in node.devices] == [
        (A, 0, "NVIDIA A100-SXM4-80GB", 80 * GIB, "ok"),
        (B, 1, "NVIDIA A100-SXM4-80GB", 80 * GIB, "ok"),
    ]
    first, second = await inventory.readings()
    assert (first.utilisation, first.memory_used, first.memory_total) == (37, 4 * GIB, 80 * GIB)
    assert [(p.pid, p.memory, p.alive) for p in first.processes or ()] == [(ME, 4 * GIB, True)]
    assert first.missing == {}
    assert second.processes == ()


async def test_a_process_has_a_share_from_its_second_listing_on(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, utilisation=50, processes=[(ME, GIB, 40), (1, GIB, -1)]))
    inventory = inventory_of(machine)
    await inventory.refresh()
    (reading,) = await inventory.readings()
    assert [p.utilisation for p in reading.processes or ()] == [None, None]
    await inventory.refresh()
    (reading,) = await inventory.readings()
    # The driver has samples, and none of the other process: that one did nothing.
    assert {p.pid: p.utilisation for p in reading.processes or ()} == {ME: 40, 1: 0}


async def test_shares_stay_unknown_where_the_driver_keeps_no_samples(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, utilisation=90, processes=[(ME, GIB, -1)]))
    inventory = inventory_of(machine)
    await inventory.refresh()
    await inventory.refresh()
    (reading,) = await inventory.readings()
    assert [p.utilisation for p in reading.processes or ()] == [None]


async def test_nvlink_islands(machine: Machine, inventory_of: Open) -> None:
    bus = ["00000000:01:00.0", "00000000:02:00.0", "00000000:41:00.0", "00000000:42:00.0"]
    machine.write(
        Gpu(A, bus=bus[0], lines=[f"link {bus[1]}"]),
        Gpu(B, bus=bus[1], lines=[f"link {bus[0]}"]),
        Gpu(C, bus=bus[2], lines=[f"link {bus[3]}"]),
        Gpu(D, bus=bus[3], lines=[f"link {bus[2]}"]),
    )
    inventory = inventory_of(machine)
    await inventory.refresh()
    await inventory.refresh(slow=False)
    (node,) = await inventory.nodes()
    assert [device.island for device in node.devices] == [0, 0, 1, 1]


async def test_an_nvswitch_makes_one_island(machine: Machine, inventory_of: Open) -> None:
    links = ["link 00000000:C0:00.0", "link 00000000:C1:00.0"]
    machine.write(Gpu(A, lines=links), Gpu(B, lines=links), lines=["link-peer switch"])
    inventory = inventory_of(machine)
    await inventory.refresh()
    (node,) = await inventory.nodes()
    assert [device.island for device in node.devices] == [0, 0]


async def test_gpu_01_utilisation_of_mig_slices_is_unknown_and_never_zero(
    machine: Machine, inventory_of: Open
) -> None:
    slices = [
        line
        for number in range(7)
        for line in (
            f"slice MIG-{number:08d}-0000-4000-8000-000000000000 1g.5gb {number} 0",
            f"memory {5 * GIB} {2 * GIB}",
        )
    ]
    machine.write(Gpu(A, total=40 * GIB, used=14 * GIB, lines=["mig on", *slices]))
    inventory = inventory_of(machine)
    await inventory.refresh()
    readings = await inventory.readings()
    assert len(readings) == 7
    assert {reading.utilisation for reading in readings} == {None}
    assert {reading.missing["utilisation"] for reading in readings} == {"Not Supported"}
    assert {reading.memory_used for reading in readings} == {2 * GIB}
    (node,) = await inventory.nodes()
    assert {device.mig_profile for device in node.devices} == {"1g.5gb"}


async def test_gpu_02_a_slice_is_shown_although_its_gpu_is_closed(
    machine: Machine, inventory_of: Open
) -> None:
    closed = [
        f"error {call} {NO_PERMISSION}" for call in ("DeviceGetMemoryInfo", "DeviceGetMigMode")
    ]
    closed.append(f"error DeviceGetMaxMigDeviceCount {NO_PERMISSION}")
    machine.write(
        Gpu(A, lines=["mig on", *closed, f"slice {SLICE} 1g.10gb 1 0", f"memory {10 * GIB} 3"])
    )
    inventory = inventory_of(machine, devices=(SLICE,))
    await inventory.refresh()
    (reading,) = await inventory.readings()
    assert (reading.memory_total, reading.memory_used) == (10 * GIB, 3)
    (node,) = await inventory.nodes()
    (device,) = node.devices
    assert (device.uuid, device.health) == (SLICE, "ok")
    assert (device.model, device.memory) == ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10 * GIB)


@pytest.mark.parametrize("name", [SLICE, OLD_SLICE], ids=["by uuid", "by gpu and instances"])
async def test_gpu_17_both_kinds_of_mig_names_lead_to_the_slice(
    machine: Machine, inventory_of: Open, name: str
) -> None:
    machine.write(Gpu(A, lines=["mig on", f"slice {SLICE} 3g.40gb 1 0", f"memory {40 * GIB} 0"]))
    inventory = inventory_of(machine)
    await inventory.refresh()
    assert (await inventory.device_clear([name])).verdict == "clear"
    assert inventory.aliases.get(name, name) == SLICE


async def test_gpu_06_the_drivers_marker_is_no_amount(machine: Machine, inventory_of: Open) -> None:
    machine.write(
        Gpu(A, used=6 * GIB, processes=[(ME, NOT_AVAILABLE, -1), (1, GIB, -1)]),
        Gpu(B, total=NOT_AVAILABLE, used=NOT_AVAILABLE),
    )
    inventory = inventory_of(machine)
    inventory.set_held([A])
    await inventory.refresh()
    first, second = await inventory.readings()
    assert {p.pid: p.memory for p in first.processes or ()} == {ME: None, 1: GIB}
    assert (first.memory_used, first.unattributed) == (6 * GIB, None)
    assert (second.memory_total, second.memory_used) == (None, None)
    assert "not available" in second.missing["memory"]


async def test_gpu_08_a_lost_device_takes_no_other_down(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    gpus = [Gpu(uuid, utilisation=10) for uuid in (A, B, C, D)]
    machine.write(*gpus)
    inventory = inventory_of(machine)
    await inventory.refresh()
    lost_at = now.ms + 60_000
    now.pass_by(60)
    gpus[2].lines = [f"error DeviceGetHandleByIndex {LOST}", f"error DeviceGetHandleByUUID {LOST}"]
    machine.write(*gpus)
    await inventory.refresh()
    assert await healths(inventory) == {A: "ok", B: "ok", C: "lost", D: "ok"}
    (node,) = await inventory.nodes()
    assert (node.devices[2].since, node.devices[2].detail) == (lost_at, "GPU is lost")
    now.pass_by(5)
    await inventory.refresh()
    (node,) = await inventory.nodes()
    assert node.devices[2].since == lost_at
    readings = {reading.device: reading for reading in await inventory.readings()}
    assert [readings[uuid].utilisation for uuid in (A, B, C, D)] == [10, 10, None, 10]


async def test_gpu_08_a_device_that_kills_the_sampler_is_left_out(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    gpus = [Gpu(uuid, utilisation=10) for uuid in (A, B, C, D)]
    machine.write(*gpus)
    inventory = inventory_of(machine)
    await inventory.refresh()
    gpus[2].lines = ["crash DeviceGetMemoryInfo"]
    machine.write(*gpus)
    assert not await inventory.refresh()
    assert inventory.sampler.failure is not None
    assert "by signal 11, at device 2" in inventory.sampler.failure.text
    started = inventory.sampler.started
    assert not await inventory.refresh()  # the pause after a crash
    assert inventory.sampler.started == started
    now.pass_by(1)
    assert await inventory.refresh()
    assert await healths(inventory) == {A: "ok", B: "ok", C: "unknown", D: "ok"}
    (node,) = await inventory.nodes()
    assert "at device 2" in node.devices[2].detail
    gpus[2].lines = []
    machine.write(*gpus)
    now.pass_by(61)
    assert await inventory.refresh()
    assert await healths(inventory) == {A: "ok", B: "ok", C: "ok", D: "ok"}


async def test_gpu_08_pauses_between_restarts_grow(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    machine.write(Gpu(A), lines=["crash Init"])
    inventory = inventory_of(machine)
    pauses = []
    for _ in range(12):
        assert not await inventory.refresh()
        failure = inventory.sampler.failure
        assert failure is not None
        pauses.append((failure.retry_at - now.ms) // 1000)
        now.ms = failure.retry_at
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert inventory.sampler.started == 12


async def test_gpu_09_a_device_that_came_back_has_to_answer_for_a_while(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    broken = [f"error DeviceGetMemoryInfo {LOST}"]
    machine.write(Gpu(A), Gpu(B, lines=broken))
    inventory = inventory_of(machine)
    await inventory.refresh()
    machine.write(Gpu(A), Gpu(B))
    seen = []
    for _ in range(4):
        now.pass_by(20)
        await inventory.refresh()
        seen.append((await healths(inventory))[B])
    assert seen == ["lost", "lost", "lost", "ok"]


async def test_gpu_11_a_driver_mismatch_stops_new_work_and_nothing_else(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    machine.write(Gpu(A, used=GIB, processes=[(ME, GIB, 90)]))
    inventory = inventory_of(machine, sampler={"recycle_after": 0})
    inventory.set_held([A])
    await inventory.refresh()
    machine.write(Gpu(A), lines=[f"error Init {MISMATCH}"])
    assert not await inventory.refresh()
    (node,) = await inventory.nodes()
    assert not node.serves
    assert node.detail.startswith("unavailable (driver mismatch")
    assert [device.uuid for device in node.devices] == [A]  # known still, never dropped
    (reading,) = await inventory.readings()
    assert (reading.stale, reading.utilisation) == (True, None)
    assert "driver mismatch" in reading.missing["utilisation"]
    assert (await inventory.device_clear([A])).verdict == "unknown"
    machine.write(Gpu(A))
    now.pass_by(5)
    assert await inventory.refresh()
    (node,) = await inventory.nodes()
    assert node.serves


async def test_gpu_11_a_library_exchanged_under_the_sampler_is_noticed(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A))
    copy = machine.path.parent / machine.library.name
    copy.write_bytes(machine.library.read_bytes())
    machine.library = copy
    inventory = inventory_of(machine)
    await inventory.refresh()
    first = inventory.sampler.pid
    await inventory.refresh()
    assert inventory.sampler.pid == first
    new = copy.with_suffix(".new")
    new.write_bytes(copy.read_bytes())
    new.replace(copy)
    machine.write(Gpu(A), lines=[f"error Init {MISMATCH}"])
    await inventory.refresh()  # answered by the old process, which sees that its file is gone
    await inventory.refresh()
    (node,) = await inventory.nodes()
    assert "driver mismatch" in node.detail


NO_LIBRARY = {"LD_LIBRARY_PATH": "/nonexistent"}


async def test_gpu_12_a_machine_without_the_library_has_no_devices(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    inventory = inventory_of(machine, sampler={"environment": NO_LIBRARY})
    assert not await inventory.refresh()
    (node,) = await inventory.nodes()
    assert (node.devices, node.health) == ((), "ok")
    assert node.detail.startswith("no NVML")
    for _ in range(29):
        now.pass_by(10)
        await inventory.refresh(at_once=True)
    assert inventory.sampler.started == 1
    now.pass_by(10)
    await inventory.refresh()
    assert inventory.sampler.started == 2


async def test_gpu_12_the_binding_may_be_missing(machine: Machine, inventory_of: Open) -> None:
    hides = machine.path.parent / "pynvml.py"
    hides.write_text("raise ModuleNotFoundError('no', name='pynvml')\n")
    inventory = inventory_of(machine, sampler={"environment": {"PYTHONPATH": str(hides.parent)}})
    assert not await inventory.refresh()
    (node,) = await inventory.nodes()
    assert (node.devices, node.detail) == ((), "no NVML: pynvml is not installed")


async def test_gpu_15_devices_are_the_same_after_they_were_numbered_anew(
    machine: Machine, now: SteadyTime, inventory_of: Open
) -> None:
    machine.write(Gpu(B), Gpu(A))
    before = Node(
        name="n1",
        devices=(
            Device(uuid=A, index=0, model="NVIDIA A100-SXM4-80GB", memory=80 * GIB),
            Device(uuid=C, index=1, model="NVIDIA A100-SXM4-80GB", memory=80 * GIB),
        ),
    )
    made = inventory_of(machine)
    inventory = NvmlInventory(now, made.settings, remembered=[before], sampler=made.sampler)
    (node,) = await inventory.nodes()
    assert {device.health for device in node.devices} == {"unknown"}  # until it has been looked at
    await inventory.refresh()
    (node,) = await inventory.nodes()
    found = {device.uuid: (device.index, device.health) for device in node.devices}
    assert found == {A: (1, "ok"), B: (0, "ok"), C: (1, "lost")}


async def test_gpu_20_a_phantom_makes_a_free_device_dirty(
    machine: Machine, inventory_of: Open
) -> None:
    ghost = pid_of_nobody()
    machine.write(
        Gpu(A, used=10151 << 20, utilisation=100, processes=[(ghost, 10151 << 20, -1)]), Gpu(B)
    )
    inventory = inventory_of(machine)
    inventory.set_held([A])
    await inventory.refresh()
    assert (await healths(inventory))[A] == "ok"  # its lease is there: nothing to hand on yet
    clearance = await inventory.device_clear([A, B])
    assert clearance.verdict == "busy"
    assert clearance.evidence == (f"{A}: used by process {ghost} (no longer exists)",)
    inventory.set_held([])
    await inventory.refresh()
    (node,) = await inventory.nodes()
    assert (node.devices[0].health, node.devices[1].health) == ("dirty", "ok")
    assert "no longer exists" in node.devices[0].detail
    machine.write(Gpu(A, used=3 << 20), Gpu(B))
    await inventory.refresh()
    assert await healths(inventory) == {A: "ok", B: "ok"}
    assert (await inventory.device_clear([A, B])).verdict == "clear"


async def test_gpu_22_memory_without_a_process_is_unattributed_and_not_free(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, used=58 * GIB, processes=[(ME, 5 * GIB, 80)]))
    inventory = inventory_of(machine)
    await inventory.refresh()
    (reading,) = await inventory.readings()
    assert (reading.memory_used, reading.unattributed) == (58 * GIB, 53 * GIB)


async def test_gpu_23_the_same_silence_about_memory_means_two_things(
    machine: Machine, inventory_of: Open
) -> None:
    silent = [f"error DeviceGetMemoryInfo {NOT_SUPPORTED}"]
    broken = [f"error DeviceGetMemoryInfo {UNKNOWN}"]
    machine.write(
        Gpu(A, name="NVIDIA GB10", utilisation=40, lines=silent),
        Gpu(B, name="NVIDIA L40S", lines=broken),
        Gpu(C, name="NVIDIA GB100", lines=silent),
    )
    inventory = inventory_of(machine, memory=128 * GIB)
    await inventory.refresh()
    integrated, discrete, _ = await inventory.readings()
    assert (integrated.memory_used, integrated.unified, integrated.utilisation) == (None, True, 40)
    assert (discrete.memory_used, discrete.unified) == (None, False)
    (node,) = await inventory.nodes()
    assert [(d.health, d.memory) for d in node.devices] == [
        ("ok", 128 * GIB),
        ("degraded", 0),
        ("degraded", 0),
    ]
    assert node.devices[1].detail == "memory: Unknown Error"


async def test_gpu_24_a_hanging_driver_holds_nobody_up(
    machine: Machine, inventory_of: Open, now: SteadyTime
) -> None:
    machine.write(Gpu(A, utilisation=70), Gpu(B, utilisation=20))
    inventory = inventory_of(machine, sampler={"answer_within": 1000})
    await inventory.refresh()
    machine.write(
        Gpu(A, utilisation=70), Gpu(B, utilisation=20, lines=["hang DeviceGetMemoryInfo 120"])
    )
    polls = [asyncio.create_task(inventory.refresh(at_once=True)) for _ in range(3)]
    ticks = 0
    while not polls[0].done():
        await asyncio.sleep(0)
        await inventory.readings()
        ticks += 1
    assert ticks > 100  # the loop went on all the time
    assert inventory.sampler.failure is not None
    assert inventory.sampler.failure.kind == "hung"
    await asyncio.gather(*polls)
    now.pass_by(31)
    first, second = await inventory.readings()
    assert first.stale
    assert second.stale
    assert (first.utilisation, second.utilisation) == (None, None)
    assert await inventory.refresh()
    first, second = await inventory.readings()
    assert (first.stale, first.utilisation) == (False, 70)
    assert (second.stale, second.utilisation) == (True, None)


async def test_a_change_of_health_wakes_who_waits_for_it(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A))
    inventory = inventory_of(machine)
    await inventory.refresh()
    seen = await inventory.wait_for_change(0)
    waiting = asyncio.create_task(inventory.wait_for_change(seen))
    await inventory.refresh()
    await asyncio.sleep(0)
    assert not waiting.done()
    machine.write(Gpu(A, lines=[f"error DeviceGetUtilizationRates {UNKNOWN}"]))
    await inventory.refresh()
    assert await waiting == seen + 1


async def test_memory_that_is_still_in_use_is_no_proof_of_release(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, used=GIB), Gpu(B, used=200 << 20))
    inventory = inventory_of(machine)
    assert (await inventory.device_clear([A])).verdict == "busy"
    assert (await inventory.device_clear([B])).verdict == "clear"
    assert (await inventory.device_clear([C])).verdict == "unknown"


async def test_on_a_shared_device_only_strange_processes_count(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, used=9 * GIB, processes=[(ME, 4 * GIB, 5), (1, 5 * GIB, 5)]))
    inventory = inventory_of(machine)
    assert (await inventory.device_clear([A], elsewhere=[1])).verdict == "busy"
    assert (await inventory.device_clear([A], elsewhere=[1, ME])).verdict == "clear"


async def test_processes_that_cannot_be_listed_are_no_proof_of_release(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, lines=[f"error DeviceGetComputeRunningProcesses {NO_PERMISSION}"], used=0))
    inventory = inventory_of(machine)
    clearance = await inventory.device_clear([A])
    assert clearance.verdict == "unknown"
    assert "Insufficient Permissions" in clearance.evidence[0]


async def test_slices_that_were_cut_anew_do_not_stay_as_lost(
    machine: Machine, inventory_of: Open
) -> None:
    other = SLICE.replace("377e", "488f")
    machine.write(Gpu(A), Gpu(B))
    inventory = inventory_of(machine)
    inventory.set_held([])
    await inventory.refresh()
    machine.write(Gpu(A, lines=["mig on", f"slice {SLICE} 3g.40gb 1 0", "memory 9 0"]), Gpu(B))
    await inventory.refresh()
    assert set(await healths(inventory)) == {SLICE, B}
    inventory.set_held([SLICE])
    machine.write(Gpu(A, lines=["mig on", f"slice {other} 7g.80gb 0 0", "memory 9 0"]), Gpu(B))
    await inventory.refresh()
    assert (await healths(inventory))[SLICE] == "lost"  # somebody's lease names it
    inventory.set_held([])
    await inventory.refresh()
    assert set(await healths(inventory)) == {other, B}
    machine.write(Gpu(A, lines=["mig on"]), Gpu(B))
    await inventory.refresh()
    (node,) = await inventory.nodes()
    assert node.detail == "GPU 0 is in MIG mode and has no slices"


async def test_the_sampler_ends_with_its_inventory_even_within_a_call(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, lines=["hang DeviceGetMemoryInfo 120"]))
    inventory = inventory_of(machine, sampler={"answer_within": 60_000})
    starting = asyncio.create_task(inventory.refresh())
    while inventory.sampler.pid is None:  # noqa: ASYNC110 - nothing tells that a process began
        await asyncio.sleep(0.01)
    pid = inventory.sampler.pid
    await inventory.close()
    await starting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_gpu_24_a_hanging_driver_does_not_hold_up_the_start_or_a_release(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A), lines=["hang Init 120"])
    inventory = inventory_of(machine, answer_within=50)
    await inventory.start()
    (node,) = await inventory.nodes()
    assert (node.serves, node.detail) == (False, "not read yet")
    clearance = await inventory.device_clear([A])
    assert clearance.verdict == "unknown"
    assert clearance.evidence == ("the driver has not answered yet",)


async def test_nothing_is_dirty_before_it_is_known_what_is_held(
    machine: Machine, inventory_of: Open
) -> None:
    machine.write(Gpu(A, used=GIB))
    inventory = inventory_of(machine)
    await inventory.refresh()
    assert await healths(inventory) == {A: "ok"}
    inventory.set_held([])
    await inventory.refresh()
    assert await healths(inventory) == {A: "dirty"}


async def test_the_inventory_looks_by_itself(machine: Machine, inventory_of: Open) -> None:
    machine.write(Gpu(A))
    inventory = inventory_of(machine, sample_every=10)
    await inventory.start()
    seen = await inventory.wait_for_change(0)
    machine.write(Gpu(A), Gpu(B))
    assert await inventory.wait_for_change(seen) == seen + 1
    assert set(await healths(inventory)) == {A, B}


async def test_the_worker_is_given_no_secrets(
    machine: Machine, inventory_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "canary")
    machine.write(Gpu(A))
    inventory = inventory_of(machine)
    await inventory.refresh()
    environment = await asyncio.to_thread(Path(f"/proc/{inventory.sampler.pid}/environ").read_bytes)
    assert b"canary" not in environment


def test_the_settings_describe_this_machine() -> None:
    settings = NvmlSettings()
    assert settings.node
    assert settings.memory is None or settings.memory > GIB


GOVERNOR = """
import asyncio, json, sys
from allotment_hub.inventory import NvmlInventory, NvmlSettings
from allotment_hub.inventory.sampler import SamplerSettings

async def main():
    sampler = SamplerSettings(environment=json.loads(sys.argv[1]))
    inventory = NvmlInventory(lambda: 0, NvmlSettings(node="n1", sampler=sampler))
    await inventory.refresh()
    print(inventory.sampler.pid, flush=True)
    sys.stdin.readline()
    await inventory.refresh()

asyncio.run(main())
"""


async def test_the_sampler_does_not_outlive_a_governor_that_was_killed(machine: Machine) -> None:
    machine.write(Gpu(A))
    pipe = asyncio.subprocess.PIPE
    governor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GOVERNOR, json.dumps(machine.environment)), stdin=pipe, stdout=pipe
    )
    assert governor.stdout is not None
    assert governor.stdin is not None
    sampler = int(await governor.stdout.readline())
    machine.write(Gpu(A, lines=["hang DeviceGetMemoryInfo 120"]))
    governor.stdin.write(b"go on\n")
    await governor.stdin.drain()
    handle = os.pidfd_open(sampler)
    governor.kill()
    await governor.wait()
    readable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(handle, readable.set_result, None)
    await asyncio.wait_for(readable, 10)
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)
