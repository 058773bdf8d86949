"""Stored devices against those that are there: by UUID, whatever number they have now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allotment_hub.domain.inventory import Device, Node


@dataclass(frozen=True, slots=True)
class Matched:
    """``present``: UUID to where it is now. ``gone``: stored, but on no node any more."""

    present: dict[str, tuple[Node, Device]]
    gone: tuple[str, ...]


def match_devices(
    stored: Iterable[str], nodes: Iterable[Node], aliases: Mapping[str, str] | None = None
) -> Matched:
    """Find stored devices again after a restart of the governor or a reboot of a node.

    Parameters
    ----------
    stored
        UUIDs on record, in either form of MIG names.
    nodes
        As they are now.
    aliases
        Old MIG names to UUIDs. A driver that changed its naming since is matched by them.

    Examples
    --------
    >>> x, y = (Device(uuid=u, index=i, model="m", memory=1) for i, u in enumerate("XY"))
    >>> matched = match_devices(["Y", "Z"], [Node(name="n", devices=(x, y))])
    >>> matched.present["Y"][1].index, matched.gone
    (1, ('Z',))
    """
    where = {device.uuid: (node, device) for node in nodes for device in node.devices}
    present: dict[str, tuple[Node, Device]] = {}
    gone: list[str] = []
    for uuid in stored:
        place = where.get(uuid) or where.get((aliases or {}).get(uuid, ""))
        if place is None:
            gone.append(uuid)
        else:
            present[uuid] = place
    return Matched(present, tuple(gone))
