"""The history as events, for whoever folds it again."""

from __future__ import annotations

from allotment_hub.domain.events import Event

from .reader import Reader
from .reading import EventFilter

KINDS = ("Request", "Lease", "Claim", "Reservation", "NodeRecord", "Switch")
"""What a story of waits is made of; policies and money are not."""


def history_of(ledger: Reader, until: int | None = None) -> tuple[list[Event], int]:
    """All events of requests, leases and what holds them up, oldest first, and how far wall time
    was ahead of steady time at the last of them.

    Parameters
    ----------
    until : int or None
        UTC milliseconds up to which events are read; None reads all.
    """
    found = []
    offset = 0
    for row in ledger.iterate_events(EventFilter(until=until)):
        offset = row.wall - row.at
        if row.kind in KINDS:
            found.append(Event(row.at, row.what, row.decoded(), row.actor, row.why))
    return found, offset


def returns_of(ledger: Reader, *, since: int) -> list[Event]:
    """Notices given since a time (UTC milliseconds), oldest first: at most the last 10,000."""
    chosen = EventFilter(what=("lease.noticed",), since=since)
    rows = ledger.query_events(chosen, limit=10_000, newest_first=True)
    return [Event(row.at, row.what, row.decoded(), row.actor, row.why) for row in reversed(rows)]
