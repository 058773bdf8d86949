"""Whose process it is: certain or unknown, never by chance."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment_hub.inventory import (
    ProcessReading,
    ProcTable,
    Reading,
    Root,
    attribute,
    owner_of,
    root_of,
)

GIB = 1 << 30
DEVICE = "GPU-4"


class Proc:
    """A made-up ``/proc``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(
        self,
        pid: int,
        *,
        parent: int = 1,
        name: str = "python",
        uid: int = 1000,
        cgroup: str = "/",
        started: int = 100,
        state: str = "S",
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        rest = " ".join(["0"] * 17)
        (folder / "stat").write_text(
            f"{pid} ({name} (x) y) {state} {parent} {rest} {started} 0 0\n"
        )
        (folder / "comm").write_text(name + "\n")
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")

    def table(self, *, host: bool = True) -> ProcTable:
        return ProcTable(self.root, host=host)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    made.process(1, parent=0, name="systemd", uid=0)
    return made


def process(pid: int, memory: int | None = GIB, utilisation: int | None = 10) -> ProcessReading:
    return ProcessReading(pid=pid, memory=memory, utilisation=utilisation)


def reading(*processes: ProcessReading, **values: object) -> Reading:
    keywords: dict[str, object] = {"utilisation": 80, "memory_used": 6 * GIB}
    return Reading(node="n", device=DEVICE, at=1, processes=processes, **{**keywords, **values})  # type: ignore[arg-type]  # values are those of a Reading, chosen by each test


def test_a_grandchild_belongs_to_the_lease_of_its_server(proc: Proc) -> None:
    proc.process(500, name="jupyterhub-sin")
    proc.process(600, parent=500)
    proc.process(700, parent=600)
    owner = owner_of(process(700), [Root(lease="L1", user="ann", pid=500)], proc.table())
    assert (owner.kind, owner.lease, owner.user, owner.how) == (
        "lease",
        "L1",
        "ann",
        "process tree",
    )


def test_a_later_process_with_the_servers_number_is_not_the_server(proc: Proc) -> None:
    proc.process(500, started=900)
    proc.process(600, parent=500)
    root = Root(lease="L1", user="ann", pid=500, started=100)
    assert owner_of(process(600), [root], proc.table()).kind == "unmanaged"


def test_a_daemon_that_left_the_tree_is_found_by_its_control_group(proc: Proc) -> None:
    group = "/system.slice/jupyter-ann.service"
    proc.process(600, cgroup=f"{group}/leaf")
    proc.process(601, cgroup=f"{group}-other")
    roots = [Root(lease="L1", user="ann", pid=500, cgroup=group)]
    assert owner_of(process(600), roots, proc.table()).lease == "L1"
    assert owner_of(process(601), roots, proc.table()).kind == "unmanaged"


def test_a_control_group_that_two_servers_share_tells_nothing(proc: Proc) -> None:
    group = "/system.slice/jupyterhub.service"
    proc.process(600, cgroup=group)
    roots = [Root(lease=name, user=name, pid=1, started=1, cgroup=group) for name in ("L1", "L2")]
    assert owner_of(process(600), roots, proc.table()).lease is None


def test_a_user_id_counts_only_where_it_has_one_lease(proc: Proc) -> None:
    proc.process(600, uid=1007)
    one = Root(lease="L1", user="ann", uid=1007)
    other = Root(lease="L2", user="ann", uid=1007)
    assert owner_of(process(600), [one], proc.table()).lease == "L1"
    owner = owner_of(process(600), [one, other], proc.table())
    assert (owner.kind, owner.lease, owner.user) == ("unknown", None, "ann")


def test_nothing_is_foreign_while_a_lease_cannot_be_traced(proc: Proc) -> None:
    proc.process(600)
    traced = Root(lease="L1", user="ann", pid=500)
    owner = owner_of(process(600), [traced, Root(lease="L2", user="bob")], proc.table())
    assert owner.kind == "unknown"
    assert "L2" in owner.how
    assert owner_of(process(600), [traced], proc.table()).kind == "unmanaged"


@pytest.mark.parametrize("pid", [37, 28290], ids=["same number by chance", "no such number"])
def test_gpu_04_in_a_container_no_process_is_matched_by_its_number(proc: Proc, pid: int) -> None:
    proc.process(37, name="bash")
    roots = [Root(lease="L1", user="ann", pid=37)]
    table = proc.table(host=False)
    assert owner_of(process(pid), roots, table).kind == "unknown"
    alone = attribute([reading(process(pid))], roots, {DEVICE: ["L1"]}, table).uses[0]
    assert (alone.level, alone.memory, alone.utilisation) == ("device", 6 * GIB, 80)
    shared = attribute([reading(process(pid))], roots, {DEVICE: ["L1", "L2"]}, table).uses
    assert [(use.level, use.memory) for use in shared] == [("unknown", None)] * 2


def test_gpu_06_device_memory_stands_in_for_what_processes_do_not_tell(proc: Proc) -> None:
    proc.process(500)
    unknown = process(500, memory=None, utilisation=None)
    found = attribute(
        [reading(unknown)], [Root(lease="L1", user="ann", pid=500)], {DEVICE: ["L1"]}, proc.table()
    )
    assert (found.uses[0].level, found.uses[0].memory) == ("device", 6 * GIB)
    assert found.uses[0].unattributed is None


def test_gpu_14_and_18_use_is_counted_on_the_device_that_the_driver_and_the_ledger_name(
    proc: Proc,
) -> None:
    """The environment of the process says device 0; nothing here ever asks it."""
    proc.process(500)
    small = Reading(node="n", device="GPU-0", at=1, utilisation=0, memory_used=0, processes=())
    large = reading(process(500), memory_total=80 * GIB)
    found = attribute(
        [small, large],
        [Root(lease="L1", user="ann", pid=500)],
        {DEVICE: ["L1"], "GPU-0": ["L0"]},
        proc.table(),
    )
    assert [(each.device, each.owner.lease) for each in found.processes] == [(DEVICE, "L1")]
    assert {use.lease: (use.device, use.memory) for use in found.uses} == {
        "L0": ("GPU-0", 0),
        "L1": (DEVICE, 6 * GIB),
    }


def test_gpu_20_a_phantom_is_no_activity_of_the_session(proc: Proc) -> None:
    proc.process(500)
    roots = [Root(lease="L1", user="ann", pid=500)]
    phantom = process(4242, memory=10151 << 20, utilisation=None)
    found = attribute([reading(phantom, utilisation=100)], roots, {DEVICE: ["L1"]}, proc.table())
    assert found.processes[0].owner.kind == "phantom"
    assert (found.uses[0].utilisation, found.uses[0].processes) == (0, 0)


def test_gpu_22_the_only_holder_is_shown_the_devices_memory(proc: Proc) -> None:
    proc.process(500)
    found = attribute(
        [reading(process(500, memory=5 * GIB), memory_used=58 * GIB)],
        [Root(lease="L1", user="ann", pid=500)],
        {DEVICE: ["L1"]},
        proc.table(),
    )
    assert (found.uses[0].memory, found.uses[0].unattributed) == (58 * GIB, 53 * GIB)


def test_a_stale_reading_says_nothing_about_anybody(proc: Proc) -> None:
    stale = reading(process(500)).without_values("stale")
    found = attribute([stale], [Root(lease="L1", user="a", pid=1)], {DEVICE: ["L1"]}, proc.table())
    assert (found.uses[0].level, found.uses[0].utilisation) == ("unknown", None)


def test_a_foreign_process_is_listed_and_not_charged(proc: Proc) -> None:
    proc.process(500)
    proc.process(600, uid=0, name="miner")
    found = attribute(
        [reading(process(500, GIB, 20), process(600, 5 * GIB, 60))],
        [Root(lease="L1", user="ann", pid=500)],
        {DEVICE: ["L1"]},
        proc.table(),
    )
    assert [each.process.pid for each in found.unmanaged] == [600]
    assert (found.uses[0].level, found.uses[0].utilisation) == ("process", 20)
    assert found.uses[0].memory == GIB


def test_several_kernels_of_two_leases_on_two_devices(proc: Proc) -> None:
    for pid, parent in ((500, 1), (600, 1), (501, 500), (502, 500), (601, 600)):
        proc.process(pid, parent=parent)
    first = reading(process(501, GIB, 30), process(601, 2 * GIB, 50))
    second = Reading(
        node="n", device="GPU-5", at=1, utilisation=9, memory_used=GIB, processes=(process(502),)
    )
    roots = [Root(lease="L1", user="ann", pid=500), Root(lease="L2", user="bob", pid=600)]
    found = attribute([first, second], roots, {DEVICE: ["L1", "L2"], "GPU-5": ["L1"]}, proc.table())
    assert [(use.lease, use.device, use.utilisation) for use in found.uses] == [
        ("L1", DEVICE, 30),
        ("L2", DEVICE, 50),
        ("L1", "GPU-5", 9),
    ]


def test_the_machines_own_processes_belong_to_nobody_and_bother_nobody(proc: Proc) -> None:
    proc.process(900, name="Xorg", uid=0)
    proc.process(901, name="Xorg", uid=1000)
    table = proc.table()
    assert table.is_system(900)
    assert not table.is_system(901)  # a name is easily taken; root's is not
    own = ProcessReading(pid=900, memory=GIB, utilisation=3, system=True)
    found = attribute([reading(own)], [Root(lease="L1", user="a", pid=1)], {DEVICE: ["L1"]}, table)
    assert (found.processes[0].owner.kind, found.uses[0].level) == ("system", "device")


def test_a_zombie_is_not_alive(proc: Proc) -> None:
    proc.process(500, state="Z")
    assert proc.table().alive(500) is False


@pytest.fixture
def child() -> Iterator[Callable[[], int]]:
    """Starts a process that starts another, and gives the pid of the inner one."""
    inner = "import sys; print(__import__('os').getpid(), flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    running: list[subprocess.Popen[str]] = []

    def start() -> int:
        popen = subprocess.Popen(
            [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        running.append(popen)
        assert popen.stdout is not None
        return int(popen.stdout.readline())

    yield start
    for popen in running:
        popen.communicate()


def test_real_processes_are_found_by_descent(child: Callable[[], int]) -> None:
    pid = child()
    table = ProcTable(host=True)
    assert table.alive(pid)
    assert os.getpid() in table.ancestors(pid)
    root = root_of("L1", "ann", os.getpid(), table)
    assert root.cgroup is None  # one's own group tells nobody apart
    assert owner_of(process(pid), [root], table).lease == "L1"


def test_the_first_pid_namespace_is_recognised() -> None:
    assert isinstance(ProcTable().host, bool)
    assert not ProcTable("/nonexistent").host
