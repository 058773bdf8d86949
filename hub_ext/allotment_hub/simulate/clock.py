"""Virtual time: what happens next, in the order of time, priority and registration."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Agenda(Generic[T]):
    """A heap of things to come. It has no clock: who takes the next thing is at its time.

    Two things of one moment come out by ``priority``, smallest first, then in the order in which
    they were put in.

    >>> agenda = Agenda[str]()
    >>> agenda.add(5, "late"); agenda.add(3, "second", 1); agenda.add(3, "first", 0)
    >>> agenda.next_at()
    3
    >>> list(agenda.due(3)), agenda.next_at()
    (['first', 'second'], 5)
    """

    _heap: list[tuple[int, int, int, T]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def add(self, at: int, thing: T, priority: int = 0) -> None:
        """Put in what happens at ``at`` (milliseconds)."""
        heapq.heappush(self._heap, (at, priority, next(self._numbers), thing))

    def next_at(self) -> int | None:
        """When the next thing happens; None where nothing is to come."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[T]:
        """Take out all that has happened by ``now``, in order."""
        taken = []
        while self._heap and self._heap[0][0] <= now:
            taken.append(heapq.heappop(self._heap)[3])
        return taken
