"""What there is: devices of this machine by NVML, declared ones, and readings of what they do.

:class:`Inventory` is the port that the governor uses; :class:`NvmlInventory` and
:class:`DeclaredInventory` are behind it. All driver calls happen in a process of their own
(:mod:`.worker`, kept by :mod:`.sampler`); what its answers mean is decided by pure functions
(:mod:`.observe`, :mod:`.health`, :mod:`.owners`).
"""

from .declared import DeclaredInventory, change_device, change_node
from .matching import Matched, match_devices
from .names import devices_of_session, is_mig, resolve_visible
from .nvml import NvmlInventory, NvmlSettings
from .owners import Attribution, LeaseUse, Owner, Root, attribute, owner_of, root_of
from .ports import Inventory
from .proc import ProcTable
from .readings import Clearance, ProcessReading, Reading

__all__ = [
    "Attribution",
    "Clearance",
    "DeclaredInventory",
    "Inventory",
    "LeaseUse",
    "Matched",
    "NvmlInventory",
    "NvmlSettings",
    "Owner",
    "ProcTable",
    "ProcessReading",
    "Reading",
    "Root",
    "attribute",
    "change_device",
    "change_node",
    "devices_of_session",
    "is_mig",
    "match_devices",
    "owner_of",
    "resolve_visible",
    "root_of",
]
