"""What can go wrong with the ledger.

::

    LedgerError
    ├── CodecError          a record that cannot be written or read
    ├── CannotOpen          no such place, wrong address, not permitted
    │   ├── NetworkFileSystem
    │   └── RevisionMismatch
    ├── AlreadyLed          another governor decides on this ledger
    ├── NotLeading          a commit without leadership
    ├── LostLeadership      another governor has taken over since
    └── CommitFailed        nothing of the batch was written
"""

from __future__ import annotations

from dataclasses import dataclass


class LedgerError(Exception):
    """Base of all errors of this package."""


class CodecError(LedgerError, ValueError):
    """A record that does not have the declared form; the message names the field."""


class CannotOpen(LedgerError):
    """The ledger cannot be used as it is; the message says what would be right."""


class NetworkFileSystem(CannotOpen):
    """The path lies on a file system without the locks that SQLite needs."""


class RevisionMismatch(CannotOpen):
    """The schema of the database is not the one that this program was written for.

    Parameters
    ----------
    where : str
        Address of the ledger, without a password.
    found : str or None
        Revision of the database; None is a database with other tables and no revision.
    wanted : str
        Revision of this program.
    known : bool
        Whether the program knows the revision found, and so can migrate it.
    """

    def __init__(self, where: str, found: str | None, wanted: str, *, known: bool) -> None:
        self.found, self.wanted = found, wanted
        if known:
            advice = "run `allotment-hub upgrade-db`; it makes a backup first"
        else:
            advice = "it was written by another version of this program: install that one"
        super().__init__(
            f"ledger {where} has schema revision {found or 'none'}, this program needs {wanted}; "
            f"{advice}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who decides on a ledger. ``since`` is UTC in milliseconds since 1970."""

    pid: int
    host: str
    since: int
    epoch: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class AlreadyLed(LedgerError):
    """Another governor holds the ledger. ``holder`` is None where it is not known."""

    def __init__(self, where: str, holder: Holder | None) -> None:
        self.holder = holder
        by = str(holder) if holder else "another process"
        super().__init__(f"ledger {where} is led by {by}; stop it first or wait for it to end")


class NotLeading(LedgerError):
    """Only the leader writes: call :meth:`Ledger.lead` first."""


class LostLeadership(LedgerError):
    """Another governor has taken over; nothing was written."""

    def __init__(self, where: str, epoch: int, holder: Holder | None) -> None:
        self.epoch, self.holder = epoch, holder
        by = str(holder) if holder else "another process"
        super().__init__(f"ledger {where}: leadership {epoch} has ended; {by} leads now")


class CommitFailed(LedgerError):
    """The batch was refused or could not be written. The state in memory has to be dropped."""
