"""The free devices of one flavor in one group of nodes, indexed so that a fit is found quickly."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

from .inventory import Device, Node


@dataclass(slots=True)
class Shelf:
    """The devices of one flavor on one node. ``free`` holds the positions of untouched devices
    in service, sorted; ``part`` the free milli-GPUs of devices that are partly used.
    """

    node: Node
    devices: tuple[Device, ...]
    free: list[int]
    part: dict[int, int]

    def copy(self) -> Shelf:
        return Shelf(self.node, self.devices, self.free.copy(), self.part.copy())


class Stock:
    """All shelves of one flavor in one group.

    ``by_free[n]`` lists the nodes that have exactly ``n`` untouched devices, ``partly`` the
    partly used devices as ``(free, node, position)``; both sorted, so that walking them is best
    fit with the name as the last tie-break. ``whole`` counts
    all devices, in service or not; ``answers`` keeps which shapes could ever fit, ``gradient`` what
    :mod:`.fragmentation` has worked out but for the ``changed`` nodes.
    """

    __slots__ = (
        "answers",
        "by_free",
        "capacity",
        "changed",
        "flavor",
        "free",
        "gradient",
        "group",
        "in_service",
        "largest",
        "partly",
        "shelves",
        "whole",
    )  # fmt: skip

    def __init__(self, group: str, flavor: str, capacity: int) -> None:
        self.group = group
        self.flavor = flavor
        self.capacity = capacity
        self.shelves: dict[str, Shelf] = {}
        self.by_free: list[list[str]] = [[]]
        self.partly: list[tuple[int, str, int]] = []
        self.in_service = 0
        self.free = 0
        self.largest = 0
        self.whole = 0
        self.changed: set[str] = set()
        self.gradient: Any = None
        self.answers: dict[tuple[object, ...], str | None] = {}

    def copy(self) -> Stock:
        other = Stock(self.group, self.flavor, self.capacity)
        other.shelves = {name: shelf.copy() for name, shelf in self.shelves.items()}
        other.by_free = [names.copy() for names in self.by_free]
        other.partly = self.partly.copy()
        other.in_service, other.free = self.in_service, self.free
        other.largest = self.largest
        other.changed = set(self.shelves)
        other.answers, other.whole = self.answers.copy(), self.whole
        return other

    def add(self, node: Node, devices: tuple[Device, ...], taken: dict[str, int]) -> None:
        """Put a node's devices in. Devices out of service are known but offer nothing."""
        shelf = Shelf(node, devices, [], {})
        self.shelves[node.name] = shelf
        self.changed.add(node.name)
        self.answers.clear()
        self.whole += len(devices) * self.capacity
        self.largest = max(self.largest, len(devices))
        while len(self.by_free) <= len(devices):
            self.by_free.append([])
        for position, device in enumerate(devices):
            if device.health != "ok" or node.health != "ok":
                continue
            self.in_service += self.capacity
            left = self.capacity - taken.get(device.uuid, 0)
            if not node.serves or left <= 0:
                continue
            self.free += left
            if left == self.capacity:
                shelf.free.append(position)
            else:
                shelf.part[position] = left
                insort(self.partly, (left, node.name, position))
        insort(self.by_free[len(shelf.free)], node.name)

    def change(self, node: str, position: int, amount: int) -> None:
        """Take ``amount`` milli-GPUs from a device (negative: give back)."""
        shelf = self.shelves[node]
        self.changed.add(node)
        device = shelf.devices[position]
        if device.health != "ok" or not shelf.node.serves:
            return
        untouched = len(shelf.free)
        at = bisect_left(shelf.free, position)
        if at < untouched and shelf.free[at] == position:
            left = self.capacity
            del shelf.free[at]
        else:
            left = shelf.part.pop(position, 0)
            if left:
                del self.partly[bisect_left(self.partly, (left, node, position))]
        left -= amount
        self.free -= amount
        if left >= self.capacity:
            insort(shelf.free, position)
        elif left > 0:
            shelf.part[position] = left
            insort(self.partly, (left, node, position))
        if len(shelf.free) != untouched:
            names = self.by_free[untouched]
            del names[bisect_left(names, node)]
            insort(self.by_free[len(shelf.free)], node)
