"""The calls, by noun. Importing this package fills the table of :mod:`..routes`."""

from . import admin, events, gate, insight, leases, me, policy, records, requests, system

__all__ = [
    "admin",
    "events",
    "gate",
    "insight",
    "leases",
    "me",
    "policy",
    "records",
    "requests",
    "system",
]
