"""The calls, by noun. Importing this package fills the table of :mod:`..routes`."""

from . import admin, events, gate, leases, me, policy, records, requests, system

__all__ = ["admin", "events", "gate", "leases", "me", "policy", "records", "requests", "system"]
