"""Placement by the fragmentation gradient: where a request costs what is typical the least room.

After Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent* (USENIX ATC 2023). What is left of a node is a fragment for a shape where that
shape cannot use it: all of it where the shape does not fit at all, else the devices that have too
little left. The fragmentation of a node is the mean over the typical shapes; a request goes where
it adds least. Typical is what runs: the shapes of the live leases, in sixteenths, so that the
answer depends on the state alone and figures can be kept while that mix stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .inventory import Node
from .requests import Ask
from .stock import Stock

Shape = tuple[int, int, int]
"""Milli-GPUs of each device, devices and milli-CPUs on a node."""

Typical = tuple[tuple[int, int, int, int], ...]
"""Shapes with their weight."""

MOST_SHAPES = 12
PARTS = 16
MOST_KEPT = 200_000
NO_LIMIT = 1 << 40


def typical(shapes: dict[Shape, int]) -> Typical:
    """The most frequent shapes with their weights in sixteenths; those below half of one go.

    >>> typical({(1000, 1, 0): 12, (500, 1, 0): 4})
    ((1000, 1, 0, 12), (500, 1, 0, 4))
    """
    total = sum(shapes.values())
    ranked = sorted(shapes.items(), key=lambda item: (-item[1], item[0]))[:MOST_SHAPES]
    weighed = ((*shape, (2 * PARTS * count + total) // (2 * total)) for shape, count in ranked)
    return tuple(one for one in weighed if one[3])


def fragmentation(mix: Typical, whole: int, parts: tuple[int, ...], cpus: int, size: int) -> int:
    """What is left of a node and typical shapes cannot use, times their weights.

    Parameters
    ----------
    whole, parts
        Untouched devices, and what is left of partly used ones.
    cpus : int
        Milli-CPUs left.
    size : int
        Milli-GPUs of a whole device.
    """
    left = whole * size + sum(parts)
    total = 0
    for per_device, devices, needed, weight in mix:
        fitting = whole + sum(1 for part in parts if part >= per_device)
        if needed > cpus or fitting < devices:
            total += weight * left
        else:
            total += weight * sum(part for part in parts if part < per_device)
    return total


class Gradient:
    """What is kept for one stock while its nodes and the mix of shapes stay as they are."""

    def __init__(self) -> None:
        self.mix: Typical = ()
        self._groups: dict[tuple[int, tuple[int, ...], int], set[str]] = {}
        self._where: dict[str, tuple[int, tuple[int, ...], int]] = {}
        self._kept: dict[tuple[object, ...], tuple[int, int] | None] = {}

    def refresh(self, stock: Stock, cpus_left: Callable[[Node], int], mix: Typical) -> None:
        """Take in what has changed since the last call."""
        if mix != self.mix or len(self._kept) > MOST_KEPT:
            self.mix = mix
            self._kept.clear()
        for name in stock.changed:
            shelf = stock.shelves[name]
            parts = tuple(sorted(shelf.part.values()))
            now = (len(shelf.free), parts, cpus_left(shelf.node))
            before = self._where.get(name)
            if before == now:
                continue
            if before is not None:
                self._groups[before].discard(name)
                if not self._groups[before]:
                    del self._groups[before]
            self._where[name] = now
            self._groups.setdefault(now, set()).add(name)
        stock.changed.clear()

    def ranked(self, ask: Ask, size: int) -> Iterator[tuple[str, int]]:
        """Nodes from the best on, each with what is left of the device to take (``size``: an
        untouched one).
        """
        shape = (ask.per_device, ask.devices, ask.cpus or 0)
        found = []
        for group, names in self._groups.items():
            cost = self._cost(group, shape, size)
            if cost is not None:
                found.append((cost, names))
        found.sort(key=lambda item: (item[0], min(item[1])))
        at = 0
        while at < len(found):
            cost, names = found[at]
            alike = set(names)
            while at + 1 < len(found) and found[at + 1][0] == cost:
                at += 1
                alike |= found[at][1]
            for name in sorted(alike):
                yield name, cost[1]
            at += 1

    def _cost(
        self, group: tuple[int, tuple[int, ...], int], shape: Shape, size: int
    ) -> tuple[int, int] | None:
        key = (group, shape)
        if key not in self._kept:
            self._kept[key] = self._work_out(group, shape, size)
        return self._kept[key]

    def _work_out(
        self, group: tuple[int, tuple[int, ...], int], shape: Shape, size: int
    ) -> tuple[int, int] | None:
        (whole, parts, cpus), (per_device, devices, needed) = group, shape
        if needed > cpus:
            return None
        before = fragmentation(self.mix, whole, parts, cpus, size)
        options = []
        if devices == 1 and per_device < size:
            for part in sorted({part for part in parts if part >= per_device}):
                rest = list(parts)
                rest.remove(part)
                rest += [part - per_device] if part > per_device else []
                after = fragmentation(self.mix, whole, tuple(rest), cpus - needed, size)
                options.append((after - before, part))
        if whole >= devices:
            rest = list(parts) + [size - per_device] * devices * (per_device < size)
            after = fragmentation(self.mix, whole - devices, tuple(rest), cpus - needed, size)
            options.append((after - before, size))
        return min(options, default=None)
