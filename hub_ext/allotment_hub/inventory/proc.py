"""Processes of this machine, as ``/proc`` shows them."""

from __future__ import annotations

import os
from pathlib import Path

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first pid namespace this number (PROC_PID_INIT_INO in linux/proc_ns.h)."""

SYSTEM_PROCESSES = frozenset(
    {"Xorg", "Xwayland", "nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine", "dcgm-exporter"}
)
"""Names, cut at 15 characters as the kernel does, that count as the machine's own for root."""


class ProcTable:
    """Reads ``/proc``, and says None for what it does not show.

    Parameters
    ----------
    root
        Where it is mounted; the host's, if a container has it elsewhere.
    host
        Whether the pids in it are those of the host, which are what the driver reports. None
        finds out: only in the first pid namespace they are.
    """

    def __init__(self, root: str | Path = "/proc", *, host: bool | None = None) -> None:
        self._root = Path(root)
        self.host = self._in_first_namespace() if host is None else host

    def _in_first_namespace(self) -> bool:
        try:
            return str((self._root / "self" / "ns" / "pid").readlink()) == INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def alive(self, pid: int) -> bool | None:
        """Whether a process of the host runs; a zombie does not. None where pids mean nothing."""
        if not self.host:
            return None
        stat = self._stat(pid)
        if stat is not None:
            return stat[0] not in ("Z", "X")
        return self._root == Path("/proc") and _answers(pid)

    def parent(self, pid: int) -> int | None:
        """The parent's pid; None for the first process and for one that is gone."""
        stat = self._stat(pid)
        return int(stat[1]) or None if stat else None

    def started(self, pid: int) -> int | None:
        """Clock ticks from the boot to the start: with the pid, a process's identity."""
        stat = self._stat(pid)
        return int(stat[19]) if stat else None

    def name(self, pid: int) -> str:
        """The command's name, at most 15 characters; empty when it is gone."""
        try:
            return (self._root / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def uid(self, pid: int) -> int | None:
        """The real user id."""
        for line in self._lines(pid, "status"):
            if line.startswith("Uid:"):
                return int(line.split()[1])
        return None

    def cgroup(self, pid: int) -> str | None:
        """The path in the unified hierarchy, else the longest of version 1; None at the root."""
        paths = [line.split(":", 2) for line in self._lines(pid, "cgroup") if line.count(":") >= 2]
        unified = [path for number, _, path in paths if number == "0"]
        best = max([path for _, _, path in paths], key=len, default="")
        chosen = unified[0] if unified and len(unified[0]) > 1 else best
        return chosen if len(chosen) > 1 else None

    def is_system(self, pid: int) -> bool:
        """Whether a process is part of the machine's own running: a known name, run by root."""
        return self.host and self.name(pid) in SYSTEM_PROCESSES and self.uid(pid) == 0

    def ancestors(self, pid: int) -> list[int]:
        """The process and all above it, nearest first."""
        found: list[int] = []
        current: int | None = pid
        while current is not None and current not in found and len(found) < 1000:
            found.append(current)
            current = self.parent(current)
        return found

    def _stat(self, pid: int) -> list[str] | None:
        """The fields from the state on: the name before may hold spaces and brackets."""
        try:
            text = (self._root / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return fields if len(fields) >= 20 else None

    def _lines(self, pid: int, name: str) -> list[str]:
        try:
            return (self._root / str(pid) / name).read_text(errors="replace").splitlines()
        except OSError:
            return []


def _answers(pid: int) -> bool:
    """Whether a process is there that ``/proc`` hides from us, as its option hidepid does."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
