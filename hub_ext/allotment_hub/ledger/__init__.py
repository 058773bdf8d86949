"""What happened, kept: the event history, its audit chain, and the present read from both.

One process leads and writes; anybody may read. ::

    ledger = Ledger.open("sqlite:////srv/allotment/ledger.sqlite")
    ledger.lead(since=wall_now)                 # AlreadyLed: a standby tries again later
    loaded = ledger.load()                      # records for the state, numbers given out so far
    committer = Committer(ledger, clock.offset_ms)
    await committer.commit(events)              # durable when it returns; batched with others

A batch is one transaction: events with their chain, projections, devices held, fencing numbers,
idempotency keys. A failed commit ends the committer; the state in memory is dropped and loaded
anew. See :mod:`.tables` for what the database itself refuses, :mod:`.errors` for what is raised.
"""

from .batch import IdempotencyKey, Unit
from .chain import StoredEvent, Verdict
from .committer import Committer, CommitterStopped
from .errors import (
    AlreadyLed,
    CannotOpen,
    CodecError,
    CommitFailed,
    Holder,
    LedgerError,
    LostLeadership,
    NetworkFileSystem,
    NotLeading,
    RevisionMismatch,
)
from .reading import EventFilter, LeaseFilter, Loaded, RequestFilter
from .store import Ledger
from .tables import REVISION

__all__ = [
    "REVISION", "AlreadyLed", "CannotOpen", "CodecError", "CommitFailed", "Committer",
    "CommitterStopped", "EventFilter", "Holder", "IdempotencyKey", "LeaseFilter", "Ledger",
    "LedgerError", "Loaded", "LostLeadership", "NetworkFileSystem", "NotLeading", "RequestFilter",
    "RevisionMismatch", "StoredEvent", "Unit", "Verdict",
]  # fmt: skip
