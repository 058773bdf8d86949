"""NVLink islands: devices that reach each other without leaving NVLink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SWITCH = "switch"
"""The far end of a link that leads to an NVSwitch. A node has one such fabric."""


def islands(links: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Number the NVLink islands of a node.

    Parameters
    ----------
    links
        For each device's bus id, the bus ids at the far ends of its active links, or ``"switch"``.

    Returns
    -------
    dict
        Bus id to island, for devices with a link to another device here. Islands are numbered
        from 0 in the order of the devices.

    >>> islands({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"], "e": []})
    {'a': 0, 'b': 0, 'c': 1, 'd': 1}
    >>> islands({"a": ["switch"], "b": ["switch"]})
    {'a': 0, 'b': 0}
    """
    parent = {bus: bus for bus in links}

    def root(bus: str) -> str:
        while parent[bus] != bus:
            bus = parent[bus]
        return bus

    on_switch = [bus for bus, ends in links.items() if SWITCH in ends]
    pairs = [(bus, end) for bus, ends in links.items() for end in ends if end in links]
    pairs += [(on_switch[0], bus) for bus in on_switch[1:]]
    for one, other in pairs:
        parent[root(other)] = root(one)
    members: dict[str, list[str]] = {}
    for bus in links:
        members.setdefault(root(bus), []).append(bus)
    groups = [group for group in members.values() if len(group) > 1]
    return {bus: number for number, group in enumerate(groups) for bus in group}
