"""What the governor asks of an inventory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from allotment_hub.domain.inventory import Node

from .readings import Clearance, Reading

Now = Callable[[], int]
"""Milliseconds of the governor's steady clock."""


class Inventory(Protocol):
    """A source of nodes, devices and readings. No call raises for a fault of the hardware.

    ``nodes`` and ``readings`` answer from memory, at once. ``device_clear`` looks afresh.
    """

    async def start(self) -> None:
        """Begin to observe, and return after the first attempt or a few seconds."""

    async def close(self) -> None:
        """Stop observing and leave no process behind."""

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes with their devices; unusable ones are there with their health."""

    async def readings(self) -> tuple[Reading, ...]:
        """One reading for each device of the present or of the past that may still hold work."""

    async def wait_for_change(self, seen: int) -> int:
        """Return the number of the newest change once it is not ``seen`` any more (start with 0).

        A change is one of nodes or health. Readings change all the time and do not count.
        """

    def set_held(self, devices: Collection[str]) -> None:
        """Say which devices live leases hold: memory in use on one of those is not dirt.

        Before it was said for the first time, all count as held.
        """

    async def device_clear(
        self, devices: Collection[str], *, elsewhere: Collection[int] = ()
    ) -> Clearance:
        """Whether nothing of a lease is left on its devices: the proof that a release needs.

        Parameters
        ----------
        devices
            UUIDs.
        elsewhere
            Processes known to belong to other live leases, on devices that are shared. While one
            of them is there the memory says nothing, so only processes are looked at.
        """
