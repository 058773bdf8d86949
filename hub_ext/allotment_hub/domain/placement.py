"""Which devices: fit and topology, with the least fragmentation.

Best fit: the node with the fewest untouched devices that still suffice, so that whole nodes stay
whole for large requests; partly used devices before untouched ones; the smallest NVLink island
that suffices. The name of the node and the position of the device break every tie.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .fragmentation import NO_LIMIT, Gradient, typical
from .inventory import Device, Node
from .leases import LeasedDevice
from .requests import Ask
from .state import State
from .stock import Shelf, Stock

Usable = Callable[[str], bool] | None
"""Whether a device may be used, by its identity; None: all may."""


@dataclass(frozen=True, slots=True)
class Want:
    """What one placement needs: the shape, whose it is and when its devices are free again.

    ``owed``: it lies within its tenant's guarantee. ``priority``: that of its class.
    ``only``: the devices to choose from, where not all are. ``blind``: what is kept for others is
    looked past, to find out whether that is in the way.
    """

    ask: Ask
    request: str
    ends_at: int
    owed: bool = False
    priority: int = 0
    blind: bool = False
    only: frozenset[str] | None = None

    @property
    def per_node(self) -> int:
        return self.ask.devices // self.ask.nodes


def usable(state: State, want: Want) -> Usable:
    """Whether a device is not spoken for by a claim of somebody else, nor by a reservation that
    begins before ``want`` is certain to have ended.
    """
    held, reserved = state.held, state.reserved
    only = want.only
    if want.blind or not (held or reserved or only is not None):
        return None

    def check(uuid: str) -> bool:
        if only is not None and uuid not in only:
            return False
        if held.get(uuid, want.request) != want.request:
            return False
        kept = reserved.get(uuid)
        if kept is None or kept[0] == want.request or want.ends_at <= kept[1]:
            return True
        reservation = state.reservations[kept[0]]
        return want.priority > reservation.priority or (want.owed and not reservation.owed)

    return check


def version_of(driver: str | None) -> tuple[int, ...]:
    """A driver version as numbers: ``570.86`` → (570, 86). Unknown is lower than everything."""
    if driver is None:
        return ()
    parts = []
    for part in driver.split("."):
        digits = "".join(c for c in part if c.isdigit())
        parts.append(int(digits) if digits else 0)
    return tuple(parts)


def node_suits(state: State, node: Node, ask: Ask, *, empty: bool = False) -> bool:
    """Whether a node may take a request at all now: in service, taints tolerated, driver new
    enough, processors and memory left (``empty``: were nothing else on it).
    """
    if not node.serves or node_unfit(node, ask) is not None:
        return False
    if empty or (ask.cpus is None and ask.memory is None):
        return True
    per_node = ask.nodes if ask.same_node else 1
    used_cpus, used_memory = state.host_used.get(node.name, (0, 0))
    cpus = used_cpus + (ask.cpus or 0) // per_node
    if ask.cpus is not None and node.cpus is not None and cpus > node.cpus:
        return False
    if ask.memory is not None and node.memory is not None:
        return used_memory + ask.memory // per_node <= node.memory
    return True


def node_unfit(node: Node, ask: Ask) -> str | None:
    """The code of the reason why a node can never take a request, whoever uses it; else None."""
    if any(taint not in ask.tolerations for taint in node.taints):
        return "NodeTainted"
    if ask.min_driver is not None and version_of(node.driver) < version_of(ask.min_driver):
        return "DriverTooOld"
    if ask.cpus is not None and node.cpus is not None and ask.cpus // ask.nodes > node.cpus:
        return "TooLargeForAnyNode"
    if ask.memory is not None and node.memory is not None and ask.memory // ask.nodes > node.memory:
        return "TooLargeForAnyNode"
    return None


def place(state: State, stock: Stock, want: Want) -> tuple[LeasedDevice, ...] | None:
    """The devices that a request gets if it is granted now, or None where nothing fits."""
    ask = want.ask
    if stock.free < ask.gpus or ask.per_device > stock.capacity:
        return None
    check = usable(state, want)
    if not ask.same_node and ask.nodes == 1:
        return _place_anywhere(state, stock, want, check)
    if state.placement == "fragmentation-gradient" and ask.nodes == 1:
        return _place_by_gradient(state, stock, want, check)
    if ask.devices == 1 and ask.per_device < stock.capacity:
        found = _place_part(state, stock, want, check)
        if found is not None:
            return found
    picked: list[LeasedDevice] = []
    left = ask.nodes
    for shelf in _shelves(stock, want.per_node, ask.per_device):
        if not node_suits(state, shelf.node, ask):
            continue
        part = pick(stock, shelf, want, shelf.free, shelf.part, check)
        if part is not None:
            picked += part
            left -= 1
            if left == 0:
                return tuple(picked)
    return None


def _place_by_gradient(
    state: State, stock: Stock, want: Want, check: Usable
) -> tuple[LeasedDevice, ...] | None:
    """On the node where the typical shapes lose the least room by it."""
    ask = want.ask

    def cpus_left(node: Node) -> int:
        used, _ = state.host_used.get(node.name, (0, 0))
        return NO_LIMIT if node.cpus is None else node.cpus - used

    if stock.gradient is None:
        stock.gradient = Gradient()
        stock.changed.update(stock.shelves)
    gradient: Gradient = stock.gradient
    mix = typical(state.shapes.get((stock.group, stock.flavor), {}))
    gradient.refresh(stock, cpus_left, mix)
    for name, left in gradient.ranked(ask, stock.capacity):
        shelf = stock.shelves[name]
        if not node_suits(state, shelf.node, ask):
            continue
        part = {p: amount for p, amount in shelf.part.items() if amount == left}
        found = pick(stock, shelf, want, shelf.free if left == stock.capacity else (), part, check)
        if found is not None:
            return tuple(found)
    return None


def _shelves(stock: Stock, count: int, per_device: int) -> Iterator[Shelf]:
    whole = per_device == stock.capacity
    for untouched in range(count if whole or count == 1 else 0, len(stock.by_free)):
        for name in stock.by_free[untouched]:
            yield stock.shelves[name]


def _place_part(
    state: State, stock: Stock, want: Want, check: Usable
) -> tuple[LeasedDevice, ...] | None:
    start = bisect_left(stock.partly, (want.ask.per_device, "", 0))
    for _, name, position in stock.partly[start:]:
        shelf = stock.shelves[name]
        device = shelf.devices[position]
        if (
            (check is None or check(device.uuid))
            and node_suits(state, shelf.node, want.ask)
            and _device_suits(device, want.ask)
        ):
            return (leased_device(stock, shelf, position, want.ask.per_device),)
    return None


def _place_anywhere(
    state: State, stock: Stock, want: Want, check: Usable
) -> tuple[LeasedDevice, ...] | None:
    """Over as few nodes as it takes: the fullest offers first."""
    picked: list[LeasedDevice] = []
    missing = want.ask.devices
    for untouched in range(len(stock.by_free) - 1, 0, -1):
        for name in stock.by_free[untouched]:
            shelf = stock.shelves[name]
            if not node_suits(state, shelf.node, want.ask):
                continue
            part = usable_of(shelf, shelf.free, want.ask, check)[:missing]
            picked += [
                leased_device(stock, shelf, position, want.ask.per_device) for position in part
            ]
            missing -= len(part)
            if missing == 0:
                return tuple(picked)
    return None


def pick(
    stock: Stock,
    shelf: Shelf,
    want: Want,
    free: Iterable[int],
    part: dict[int, int],
    check: Usable,
) -> list[LeasedDevice] | None:
    """Devices of one node for the part of a request that falls on it, or None.

    ``free`` and ``part`` are passed in so that a look ahead can ask what would fit if certain
    leases were gone.
    """
    ask, count = want.ask, want.per_node
    positions: list[int] = []
    if ask.per_device < stock.capacity:
        positions = sorted(
            (position for position, left in part.items() if left >= ask.per_device),
            key=lambda position: (part[position], position),
        )
    positions += free
    positions = usable_of(shelf, positions, ask, check)
    if len(positions) < count:
        return None
    if count > 1:
        grouped = _one_island(shelf, positions, count)
        if grouped is None and ask.nvlink:
            return None
        positions = grouped or positions
    return [leased_device(stock, shelf, position, ask.per_device) for position in positions[:count]]


def usable_of(shelf: Shelf, positions: list[int], ask: Ask, check: Usable) -> list[int]:
    """Those of some devices of a node that a request may have."""
    if check is None and ask.min_memory is None:
        return positions
    devices = shelf.devices
    return [
        position
        for position in positions
        if (check is None or check(devices[position].uuid))
        and _device_suits(devices[position], ask)
    ]


def _one_island(shelf: Shelf, positions: list[int], count: int) -> list[int] | None:
    """The smallest set of offered devices on one NVLink island that has at least ``count``."""
    islands: dict[int, list[int]] = {}
    for position in positions:
        island = shelf.devices[position].island
        if island is not None:
            islands.setdefault(island, []).append(position)
    enough = [
        (len(members), number) for number, members in islands.items() if len(members) >= count
    ]
    return islands[min(enough)[1]] if enough else None


def _device_suits(device: Device, ask: Ask) -> bool:
    # Nominal sizes as in flavors: a driver reports less than the label on the box.
    return ask.min_memory is None or device.memory * 100 >= ask.min_memory * 92


def leased_device(stock: Stock, shelf: Shelf, position: int, amount: int) -> LeasedDevice:
    """A device of a node as a lease names it."""
    device = shelf.devices[position]
    return LeasedDevice(
        node=shelf.node.name,
        uuid=device.uuid,
        index=device.index,
        flavor=stock.flavor,
        share=amount,
    )


def possible(stock: Stock, ask: Ask) -> str | None:
    """None where a shape fits this stock when it is empty and healthy; else the reason's code.

    Devices out of service count here: they may come back, and the request may wait for them.
    """
    shape = (
        ask.gpus, ask.devices, ask.nodes, ask.same_node, ask.nvlink, ask.min_memory,
        ask.min_driver, ask.cpus, ask.memory, ask.tolerations,
    )  # fmt: skip
    if shape not in stock.answers:
        stock.answers[shape] = _possible(stock, ask)
    return stock.answers[shape]


def _possible(stock: Stock, ask: Ask) -> str | None:
    count = ask.devices // ask.nodes
    if ask.per_device > stock.capacity:
        return "TooLargeForAnyNode"
    if not stock.shelves:
        return "NoSuchFlavor"
    fitting = 0
    refusals: list[str] = []
    for shelf in stock.shelves.values():
        unfit = node_unfit(shelf.node, ask)
        fine = [device for device in shelf.devices if _device_suits(device, ask)]
        if unfit is not None:
            refusals.append(unfit)
        elif not fine:
            refusals.append("MemoryTooSmall")
        elif not ask.same_node and ask.nodes == 1:
            fitting += len(fine)
        elif len(fine) < count:
            refusals.append("TooLargeForAnyNode")
        elif ask.nvlink and count > 1 and not _has_island(fine, count):
            refusals.append("TopologyConflict")
        else:
            fitting += 1
    needed = ask.devices if not ask.same_node and ask.nodes == 1 else ask.nodes
    if fitting >= needed:
        return None
    for code in ("TopologyConflict", "DriverTooOld", "NodeTainted", "MemoryTooSmall"):
        if code in refusals:
            return code
    return "TooLargeForAnyNode"


def _has_island(devices: list[Device], count: int) -> bool:
    sizes: dict[int, int] = {}
    for device in devices:
        if device.island is not None:
            sizes[device.island] = sizes.get(device.island, 0) + 1
    return any(size >= count for size in sizes.values())
