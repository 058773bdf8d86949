"""The ledger of a scenario: what is committed goes through the real codec, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allotment_hub.domain.events import (
    Claim,
    Event,
    Grant,
    NodeRecord,
    PolicyVersion,
    Record,
    Reservation,
    Spent,
    Switch,
)
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from allotment_hub.ledger.codec import dumps, encode, kind_of, loads

if TYPE_CHECKING:
    from allotment_hub.ledger import Ledger


class Store:
    """Committed events in their order, each record as the text that a ledger keeps.

    For looking at the past, and for a restart where no ledger is needed: opening one takes
    longer than most scenarios.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._last: dict[str, tuple[str, str]] = {}

    def commit(self, events: Sequence[Event], offset_ms: int = 0) -> None:
        """Keep events; nothing that was not kept survives a restart.

        ``offset_ms`` is the wall clock less steady time.
        """
        for event in events:
            kind, text = kind_of(event.record), dumps(event.record)
            self._last[identity(event.record)] = (kind, text)
            self.rows.append(
                {
                    "seq": len(self.rows) + 1,
                    "at": event.at,
                    "what": event.what,
                    "kind": kind,
                    "subject": subject_of(event.record),
                    "tenant": getattr(event.record, "tenant", None),
                    "user": getattr(event.record, "user", None),
                    "actor": event.actor,
                    "why": event.why,
                    "record": encode(event.record),
                }
            )

    def records(self) -> list[Record]:
        """The last record of each id, read back from its text."""
        return [loads(kind, text) for kind, text in self._last.values()]

    def reload(self) -> State:
        """Rebuild the state, as a governor does that starts."""
        state = State()
        state.load(self.records())
        return state


class LedgerStore(Store):
    """A ledger beside: what it refuses ends the play, and a restart reads what it kept."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def commit(self, events: Sequence[Event], offset_ms: int = 0) -> None:
        """Keep events here and in the ledger, in one transaction."""
        super().commit(events)
        if events:
            self.ledger.commit(events, offset_ms=offset_ms)

    def reload(self) -> State:
        """Rebuild the state from the ledger."""
        loaded = self.ledger.load()
        state = State()
        state.load(loaded.records)
        state.sequence = max(state.sequence, loaded.sequence)
        state.fence = max(state.fence, loaded.fence)
        return state


def identity(record: Record) -> str:
    """What a later record has to share to replace this one."""
    if isinstance(record, Spent):
        return f"Spent {record.tenant} {record.period_starts_at}"
    if isinstance(record, PolicyVersion):
        return "PolicyVersion"
    return f"{kind_of(record)} {subject_of(record)}"


def subject_of(record: Record) -> str:
    """The id of the thing that a record is about."""
    if isinstance(record, (Request, Lease, Grant)):
        return record.id
    if isinstance(record, (Claim, Reservation)):
        return record.request
    if isinstance(record, PolicyVersion):
        return str(record.number)
    if isinstance(record, NodeRecord):
        return record.node.name
    if isinstance(record, Switch):
        return record.name
    return record.tenant
