"""What can be known about a server, and from whom.

"Does not run" from a single source is not yet absence: right after a hub restart a watch that has
not loaded its data, a proxy, or a half-dead API say it about servers that run.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner

from .carriers import find_carriers, is_carrier


class Sight(Enum):
    """What was seen."""

    RUNNING = "running"
    NEGATIVE = "negative"  # one source says it does not run
    ENDED = "ended"  # the server is dead, something of it remains
    ABSENT = "absent"  # a second source confirms that nothing remains
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Seen:
    """A sight, with the exit code where the server does not run, and the proof of absence."""

    sight: Sight
    code: int = 0
    proof: str = ""


async def second_local(spawner: Any, lease: str) -> tuple[Sight, str] | None:
    """Ask the kernel which processes carry the lease; None where its answer is not complete.

    Returns
    -------
    (Sight, proof) or None
        ``ENDED`` while processes remain, ``ABSENT`` when there are none.
    """
    uid = carrier_uid(spawner)
    if uid is None:
        return None
    for _ in range(2):  # what is forked while one listing is read is in the next
        found = await asyncio.to_thread(find_carriers, lease, uid)
        if found.pids:
            return Sight.ENDED, ""
        if found.blind:
            return None
    return Sight.ABSENT, "process"


def disown_stranger(spawner: Any, lease: str) -> bool:
    """Drop a stored process id that belongs to somebody else by now, as after a reboot.

    The wrapped class would take any process of that number for the server, and signal it.
    """
    if not isinstance(spawner, LocalProcessSpawner) or spawner.proc is not None:
        return False
    if not spawner.pid or is_carrier(spawner.pid, lease) is not False:
        return False
    spawner.pid = 0
    return True


def carrier_uid(spawner: Any) -> int | None:
    """As whom the server of a local spawner runs; None where that cannot be told or looked at."""
    if isinstance(spawner, SimpleLocalProcessSpawner):
        return os.geteuid()
    if isinstance(spawner, LocalProcessSpawner) and os.geteuid() == 0:
        try:
            return pwd.getpwnam(spawner.user.name).pw_uid
        except KeyError:
            return None
    return None
