"""How devices are addressed: UUIDs, the two forms of MIG names, and visible-devices variables.

An index is not an identity: CUDA orders devices by speed unless ``CUDA_DEVICE_ORDER`` is
``PCI_BUS_ID``, the driver orders them by bus, and neither promises the same order after a reboot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allotment_hub.domain.inventory import Device

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MIG_NEW = re.compile(rf"MIG-({_UUID})")
_MIG_OLD = re.compile(rf"MIG-(GPU-{_UUID})/(\d{{1,3}})/(\d{{1,3}})")
_INDEX = re.compile(r"\d{1,4}")


@dataclass(frozen=True, slots=True)
class OldMigName:
    """A slice by its GPU, GPU instance and compute instance, as drivers before 470 name it."""

    gpu: str
    gpu_instance: int
    compute_instance: int

    def __str__(self) -> str:
        return f"MIG-{self.gpu}/{self.gpu_instance}/{self.compute_instance}"


def parse_old_mig(name: str) -> OldMigName | None:
    """Read ``MIG-GPU-<uuid>/gi/ci``; None for anything else.

    >>> gpu = "GPU-2ac434d3-1aca-57a0-597d-1d2effdba9f3"
    >>> parse_old_mig(f"MIG-{gpu}/1/0") == OldMigName(gpu, 1, 0)
    True
    """
    match = _MIG_OLD.fullmatch(name)
    return OldMigName(match[1], int(match[2]), int(match[3])) if match else None


def is_mig(name: str) -> bool:
    """Whether a name is that of a MIG slice, in either form."""
    return bool(_MIG_NEW.fullmatch(name) or _MIG_OLD.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Visible:
    """The devices that a variable makes visible. ``unknown`` says why they cannot be named."""

    devices: tuple[str, ...] = ()
    unknown: str = ""


def resolve_visible(
    value: str | None,
    devices: Sequence[Device],
    *,
    order: str | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Visible:
    """Which devices ``CUDA_VISIBLE_DEVICES`` means; never a guess.

    Parameters
    ----------
    value
        The variable; None when it is not set.
    devices
        Those of the node.
    order
        ``CUDA_DEVICE_ORDER`` of the same environment.
    aliases
        Other names of devices, such as old MIG names, to their UUIDs.

    Returns
    -------
    Visible
        As in CUDA, a name that fits nothing hides what stands after it. With numbers, the devices
        are known only where the order is by bus or all devices are alike and none is sliced.

    >>> small = Device(uuid="GPU-a", index=0, model="L40S", memory=48)
    >>> large = Device(uuid="GPU-b", index=1, model="H100", memory=80)
    >>> resolve_visible("1", [small, large], order="PCI_BUS_ID").devices
    ('GPU-b',)
    >>> resolve_visible("0", [small, large]).unknown
    'CUDA numbers devices of different models by speed; only UUIDs name them for certain'
    """
    if value is None:
        return Visible(tuple(device.uuid for device in devices))
    found: list[str] = []
    for name in (part.strip() for part in value.split(",")):
        if _INDEX.fullmatch(name):
            doubt = _why_not_by_index(devices, order)
            if doubt:
                return Visible(tuple(found), doubt)
            match = [device.uuid for device in devices if device.index == int(name)]
        else:
            match = _by_name(name, devices, aliases or {})
        if len(match) != 1:
            break
        if match[0] not in found:
            found.append(match[0])
    return Visible(tuple(found))


def _why_not_by_index(devices: Sequence[Device], order: str | None) -> str:
    if any(device.mig_profile for device in devices):
        return "a number does not name a MIG slice; only its UUID does"
    if order != "PCI_BUS_ID" and len({device.model for device in devices}) > 1:
        return "CUDA numbers devices of different models by speed; only UUIDs name them for certain"
    return ""


def _by_name(name: str, devices: Sequence[Device], aliases: Mapping[str, str]) -> list[str]:
    uuids = [device.uuid for device in devices]
    target = aliases.get(name, name)
    if target in uuids:
        return [target]
    # CUDA takes an abbreviation of a GPU's UUID as long as it is unique; not of a slice's.
    if name.startswith("GPU-") and len(name) > len("GPU-"):
        return [uuid for uuid in uuids if uuid.startswith(name)]
    return []


def devices_of_session(
    recorded: Sequence[str],
    environment: Mapping[str, str],
    devices: Sequence[Device],
    aliases: Mapping[str, str] | None = None,
) -> Visible:
    """The devices of a session: those on record; only where there are none, its environment's.

    Under a partitioned MPS a worker's device 0 may be any card: the record outranks the
    environment.
    """
    if recorded:
        return Visible(tuple((aliases or {}).get(name, name) for name in recorded))
    return resolve_visible(
        environment.get("CUDA_VISIBLE_DEVICES"),
        devices,
        order=environment.get("CUDA_DEVICE_ORDER"),
        aliases=aliases,
    )
