"""Servers that come and go by themselves: the runtime of a scenario."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from .scenario import RuntimeRules

Phase = Literal["starting", "up", "stopping", "away"]


@dataclass(order=True)
class Due:
    """Something that a server will do at ``at``; ``sequence`` keeps the order within a moment."""

    at: int
    sequence: int
    lease: str = field(compare=False)
    phase: Phase = field(compare=False)


class Servers:
    """One server per lease: asked to start, it is up after a while; asked to stop, it is away.

    ``manual`` servers do nothing by themselves. While the runtime is unreachable nobody can be
    asked anything, but what was asked before goes on.
    """

    def __init__(self, rules: RuntimeRules) -> None:
        self.rules = rules
        self.unreachable = False
        self.phase: dict[str, Phase] = {}
        self._due: list[Due] = []
        self._sequence = 0

    def next_due(self) -> int | None:
        """Return when a server does something next."""
        return self._due[0].at if self._due else None

    def take_due(self, now: int) -> list[Due]:
        """Return what servers have done up to now, in the order of its time."""
        done = []
        while self._due and self._due[0].at <= now:
            due = heapq.heappop(self._due)
            wanted: Phase = "starting" if due.phase == "up" else "stopping"
            if self.phase.get(due.lease) == wanted:  # else it was told otherwise meanwhile
                self.set(due.lease, due.phase)
                done.append(due)
        return done

    def start(self, leases: Iterable[str], now: int) -> list[str]:
        """Ask for servers; return the leases that were asked for now for the first time."""
        asked = [lease for lease in leases if not self.unreachable and lease not in self.phase]
        for lease in asked:
            self.phase[lease] = "starting"
            if not self.rules.manual:
                self._plan(now + self.rules.start_after, lease, "up")
        return asked

    def stop(self, leases: Iterable[str], now: int) -> None:
        """Ask servers to stop. One that never was there is away at once."""
        for lease in leases:
            if self.unreachable or self.phase.get(lease) in ("stopping", "away"):
                continue
            running = lease in self.phase
            self.phase[lease] = "stopping"
            if not self.rules.manual:
                self._plan(now + (self.rules.stop_after if running else 0), lease, "away")

    def set(self, lease: str, phase: Phase) -> None:
        """Say what a server is, whatever it was asked for."""
        self.phase[lease] = phase

    def away(self, lease: str) -> bool:
        """Whether no server of a lease is there (any more)."""
        return self.phase.get(lease, "away") == "away"

    def _plan(self, at: int, lease: str, phase: Phase) -> None:
        self._sequence += 1
        heapq.heappush(self._due, Due(at, self._sequence, lease, phase))
