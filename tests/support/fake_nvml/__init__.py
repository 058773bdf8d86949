"""A ``libnvidia-ml.so.1`` whose machine is a text file; ``nvml.c`` says what may stand in it.

The real ``pynvml`` loads it in a process of its own, by ``LD_LIBRARY_PATH``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
GIB = 1 << 30
NOT_AVAILABLE = (1 << 64) - 1

UNKNOWN, LOST, NOT_SUPPORTED, NO_PERMISSION, MISMATCH = 999, 15, 3, 4, 18


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Compile the library into a folder and return it."""
    target = folder / LIBRARY
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, f"-Wl,-soname,{LIBRARY}", "-o", str(target), str(SOURCE)], check=True)
    return target


@dataclass
class Gpu:
    """A device of the machine. ``lines`` are further statements, such as errors and slices."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-80GB"
    total: int = 80 * GIB
    used: int = 0
    utilisation: int = 0
    bus: str = ""
    lines: Sequence[str] = ()
    processes: Sequence[tuple[int, int, int]] = ()
    """Pid, bytes, percent; a percentage below zero stands for no sample."""

    def text(self, position: int) -> str:
        bus = self.bus or f"00000000:{position + 1:02X}:00.0"
        lines = [
            f"gpu {self.uuid}",
            f"name {self.name}",
            f"bus {bus}",
            f"memory {self.total} {self.used}",
            f"utilisation {self.utilisation}",
            *(f"process {pid} {memory} {share}" for pid, memory, share in self.processes),
            *self.lines,
        ]
        return "\n".join(lines)


@dataclass
class Machine:
    """The file that the library reads. Change what is in it and ``write`` again."""

    path: Path
    library: Path
    driver: str = "570.86.15"

    def write(self, *gpus: Gpu, lines: Sequence[str] = (), driver: str | None = None) -> None:
        """Be these devices from now on; ``lines`` hold for all of them."""
        text = "\n".join(
            [f"driver {driver or self.driver}", *lines, *(g.text(i) for i, g in enumerate(gpus))]
        )
        new = self.path.with_suffix(".new")
        new.write_text(text + "\n")
        new.replace(self.path)  # a reader sees the old machine or the new one, never half

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to meet this machine."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML": str(self.path)}
