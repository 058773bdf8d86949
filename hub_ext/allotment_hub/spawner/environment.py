"""What a lease looks like from inside the server: environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from allotment_hub.gateapi import HeldLease

from .carriers import MARK

OURS = ("ALLOTMENT_LEASE", "ALLOTMENT_URL")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
NOTHING = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
"""For sessions without a lease: CUDA sees no device, the container runtime mounts none."""


def lease_environment(
    lease: HeldLease | None, *, url: str, name_devices: bool, hide: bool
) -> dict[str, str]:
    """Return the variables that a session has whatever else its environment says.

    Parameters
    ----------
    lease : HeldLease or None
        None for a session without GPUs.
    url : str
        Where the session reaches the governor.
    name_devices : bool
        Name the devices by UUID (indices change when a device is lost). Not where a device
        plugin does it.
    hide : bool
        Hide all devices from a session without a lease.
    """
    found = {"ALLOTMENT_URL": url}
    if lease is None:
        if hide:
            found |= NOTHING if name_devices else {"NVIDIA_VISIBLE_DEVICES": "void"}
        return found
    found[MARK] = lease.id
    if name_devices:
        # A device of which several shares are held is named once.
        uuids = ",".join(dict.fromkeys(device.uuid for device in lease.devices))
        found |= {
            "CUDA_VISIBLE_DEVICES": uuids,
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
    return found


def apply_environment(env: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Lay ours over an environment; what is ours alone cannot come from elsewhere."""
    kept = {key: value for key, value in env.items() if key not in OURS}
    return {**kept, **ours}
