"""Which processes of this machine belong to a lease: those that carry its mark.

The environment of a local server names its lease, and its children inherit it, so kernels and
whatever they started are found even where the hub has lost the server's process id. A process
that drops the mark is not found here; the node's own reading of its GPUs is the check for that.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

MARK = "ALLOTMENT_LEASE"


@dataclass(frozen=True, slots=True)
class Found:
    """Process ids that carry the mark; ``blind`` when some could not be looked at."""

    pids: tuple[int, ...]
    blind: bool


def find_carriers(lease: str, uid: int, proc: Path = Path("/proc")) -> Found:
    """Look for processes that carry a lease's mark.

    Parameters
    ----------
    lease : str
    uid : int
        Whose processes have to be readable for the answer to be complete.
    proc : Path
        Where the kernel lists processes. Where it does not, the answer is blind.
    """
    needle = b"\0" + f"{MARK}={lease}".encode() + b"\0"
    pids: list[int] = []
    blind = False
    try:
        entries = [entry for entry in os.listdir(proc) if entry.isdigit()]  # noqa: PTH208 (half the cost)
    except OSError:
        return Found((), True)
    if not entries:
        return Found((), True)
    for entry in entries:
        try:
            environ = (proc / entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        except OSError:
            # The machine's first process is nobody's server, and often unreadable in containers.
            blind = blind or (entry != "1" and _owned(proc / entry, uid))
            continue
        if needle in b"\0" + environ + b"\0" and not _zombie(proc / entry):
            pids.append(int(entry))
    return Found(tuple(pids), blind)


def end_carriers(lease: str, uid: int, how: signal.Signals) -> Found:
    """Send a signal to every process that carries the mark, found anew right before it."""
    found = find_carriers(lease, uid)
    for pid in found.pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue
        except OSError:
            found = Found(found.pids, True)
    return found


def is_carrier(pid: int, lease: str, proc: Path = Path("/proc")) -> bool | None:
    """Whether one process carries the mark; None where it cannot be looked at."""
    try:
        environ = (proc / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return None
    return b"\0" + f"{MARK}={lease}".encode() + b"\0" in b"\0" + environ + b"\0"


def _owned(entry: Path, uid: int) -> bool:
    try:
        return entry.stat().st_uid == uid
    except OSError:
        return False


def _zombie(entry: Path) -> bool:
    """Tell a process that has ended and only waits to be counted; it holds no device."""
    try:
        return (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True
