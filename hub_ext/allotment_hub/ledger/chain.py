"""The audit chain: each row carries a hash of itself and of the row before.

A row's hash is SHA-256 over three lines: the hash of the row before, its columns as a JSON list,
and its record as it is stored. Whoever changes, removes or inserts a row has to change every hash
after it, which shows against any head that was noted elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from json.encoder import encode_basestring_ascii

from allotment_hub.domain.events import Record

from .codec import loads
from .tables import GENESIS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """A row of the event history.

    Parameters
    ----------
    seq : int
        Its place, from 1 without gaps.
    at, wall : int
        Steady time, and UTC milliseconds since 1970 as they were believed then.
    what, kind, subject : str
        What happened, to which kind of record, to which one.
    tenant, user : str
        Whose it is; empty where it is nobody's.
    actor, why : str
        Who did it and the sentence for the audit.
    record : str
        The whole new record as JSON text.
    """

    seq: int
    at: int
    wall: int
    what: str
    kind: str
    subject: str
    tenant: str
    user: str
    actor: str
    why: str
    record: str
    prev_hash: str
    hash: str

    def decoded(self) -> Record:
        """The record itself; CodecError when the row does not hold one."""
        return loads(self.kind, self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What walking the chain found.

    Parameters
    ----------
    rows : int
        How many rows were found good.
    head : str
        Hash of the last good row.
    broken : int or None
        Place of the first row that is not what it was; None when all are.
    detail : str
        What is wrong with it.
    """

    rows: int
    head: str
    broken: int | None = None
    detail: str = ""

    @property
    def holds(self) -> bool:
        return self.broken is None


def link(prev_hash: str, numbers: tuple[int, int, int], words: list[str], record: str) -> str:
    """The hash of a row.

    Parameters
    ----------
    prev_hash : str
        The hash of the row before.
    numbers : tuple
        ``seq``, ``at`` and ``wall``.
    words : list of str
        The columns from ``what`` to ``why`` in the order of the table.
    record : str
        As it is stored.

    >>> import json
    >>> words = ["a", "Switch", "x", "", "", "governor", ""]
    >>> lines = ["0" * 64, json.dumps([1, 2, 3, *words], separators=(",", ":")), "{}"]
    >>> link("0" * 64, (1, 2, 3), words, "{}") == sha256(chr(10).join(lines).encode()).hexdigest()
    True
    """
    # Put together by hand: in a large batch, a list through the encoder costs as much as the hash.
    texts = ",".join(map(encode_basestring_ascii, words))
    line = f"{prev_hash}\n[{numbers[0]},{numbers[1]},{numbers[2]},{texts}]\n{record}"
    return sha256(line.encode()).hexdigest()


def verify(
    rows: Iterable[StoredEvent], position: int, head: str, noted: tuple[int, str] | None = None
) -> Verdict:
    """Walk the chain.

    Parameters
    ----------
    rows : iterable of StoredEvent
        All rows in their order.
    position, head : int, str
        Where the last commit left the chain: rows cut off at the end show against these.
    noted : (int, str) or None
        A place and hash kept elsewhere: a history that was written anew as a whole shows.
    """
    count, last = 0, GENESIS
    for row in rows:
        fault = _fault(row, count + 1, last)
        if not fault and noted is not None and row.seq == noted[0] and row.hash != noted[1]:
            fault = f"row {row.seq} is not the one whose hash was noted"
        if fault:
            return Verdict(rows=count, head=last, broken=count + 1, detail=fault)
        count, last = count + 1, row.hash
    if (count, last) != (position, head):
        detail = f"the chain ends at row {count}, but the last commit wrote row {position}"
        return Verdict(rows=count, head=last, broken=count + 1, detail=detail)
    if noted is not None and noted[0] > count:
        detail = f"the chain ends at row {count}, but a hash of row {noted[0]} was noted"
        return Verdict(rows=count, head=last, broken=count + 1, detail=detail)
    return Verdict(rows=count, head=last)


def _fault(row: StoredEvent, place: int, last: str) -> str:
    if row.seq != place:
        return f"row {place} is missing"
    if row.prev_hash != last:
        return f"row {place} does not follow the row before it"
    words = [row.what, row.kind, row.subject, row.tenant, row.user, row.actor, row.why]
    if link(last, (row.seq, row.at, row.wall), words, row.record) != row.hash:
        return f"the content of row {place} has been changed"
    return ""
