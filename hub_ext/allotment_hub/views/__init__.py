"""Records in the shape that REST answers: one place for the governor, the commands and scenarios.

GPUs become numbers, times RFC 3339 by a function that the caller hands in, reasons sentences.
Everything here is pure: a :class:`Frame` says which state is looked at, when, by whom.
"""

from .capacity import capacity_view, device_view, pool_view
from .frame import Frame, Viewer
from .leases import job_view, lease_view
from .notices import notices_of
from .outlook import change_in_words, help_view, outlook_of, start_of
from .people import me_view, tenant_view
from .requests import Outlook, reason_view, rejected_view, request_view

__all__ = [
    "Frame",
    "Outlook",
    "Viewer",
    "capacity_view",
    "change_in_words",
    "device_view",
    "help_view",
    "job_view",
    "lease_view",
    "me_view",
    "notices_of",
    "outlook_of",
    "pool_view",
    "reason_view",
    "rejected_view",
    "request_view",
    "start_of",
    "tenant_view",
]
