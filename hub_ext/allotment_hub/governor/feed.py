"""What happened, told to whoever is listening: numbered, kept for a while, encoded once.

A :class:`Feed` hands a :class:`Change` to each listener that may see it. It keeps the last few
thousand, so that a listener that was cut off takes up where it left: after the number that it saw
last. Numbers start anew with each start of the governor and carry its epoch, so that a number of
an earlier start is never taken for one of this.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

KEPT = 4096


Data = Callable[[], Any]
"""Makes what an event says. Called when somebody is to read it, and then once."""


@dataclass(slots=True)
class Change:
    """One event of the stream. ``user`` None is for everybody; else for that user, for owners of
    ``tenant`` and for admins.
    """

    id: str
    number: int
    event: str
    data: Data
    user: str | None = None
    tenant: str | None = None
    _frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The event as it is sent, encoded once however many read it."""
        if self._frame is None:
            self._frame = encode(self.event, self.data(), self.id)
        return self._frame


class Listener:
    """One open stream: whose it is, what it may see, how to send it bytes, and how to end it.

    Parameters
    ----------
    user : str
    judge : callable
        The tenants whose rows it may see, as their owner, and whether it sees all, by now.
    send : callable
        Takes one frame. Must not raise and must not block.
    end : callable
        Closes the stream. Must not raise.
    """

    __slots__ = ("admin", "end", "judge", "send", "tenants", "user")

    def __init__(
        self,
        user: str,
        judge: Callable[[], tuple[frozenset[str], bool]],
        send: Callable[[bytes], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.user, self.judge, self.send, self.end = user, judge, send, end
        self.tenants, self.admin = judge()

    def sees(self, change: Change) -> bool:
        """Whether a change is this listener's business."""
        return (
            change.user is None
            or self.admin
            or change.user == self.user
            or (change.tenant is not None and change.tenant in self.tenants)
        )


def encode(event: str, data: Any, id: str | None = None) -> bytes:
    r"""One frame of a stream of server-sent events.

    >>> encode("capacity", {"free": 2}, "7.1")
    b'id: 7.1\nevent: capacity\ndata: {"free":2}\n\n'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    head = f"id: {id}\n" if id is not None else ""
    # JSON text holds no bare line feed, so one data line always holds all of it.
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


class Feed:
    """See the module.

    Parameters
    ----------
    epoch : str
        Names this start of the governor; letters, digits and hyphens only.
    kept : int
        How many changes are kept for listeners that come back.
    """

    def __init__(self, epoch: str, kept: int = KEPT) -> None:
        self.epoch = epoch
        self._number = 0
        self._ring: deque[Change] = deque(maxlen=kept)
        self._listeners: dict[Listener, None] = {}
        self._by_user: dict[str, dict[Listener, None]] = {}
        # Owners and admins: few, and looked through for each private change.
        self._wide: dict[Listener, None] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    @property
    def users(self) -> Iterable[str]:
        """The names of all who listen."""
        return self._by_user.keys()

    @property
    def last_id(self) -> str:
        """The id of the newest change."""
        return f"{self.epoch}.{self._number}"

    def publish(
        self, event: str, data: Data, *, user: str | None = None, tenant: str | None = None
    ) -> None:
        """Number, keep and send one change."""
        self._number += 1
        change = Change(f"{self.epoch}.{self._number}", self._number, event, data, user, tenant)
        self._ring.append(change)
        if user is None:
            if self._listeners:
                self.beat(change.frame)
        else:
            self._send_private(change)

    def beat(self, frame: bytes) -> None:
        """Send a frame to all that is neither numbered nor kept."""
        for listener in list(self._listeners):
            listener.send(frame)

    def tell(self, user: str, frame: bytes) -> None:
        """Send a frame to one user that is neither numbered nor kept."""
        for listener in list(self._by_user.get(user, ())):
            listener.send(frame)

    def _send_private(self, change: Change) -> None:
        if change.user is not None:
            for listener in list(self._by_user.get(change.user, ())):
                listener.send(change.frame)
        for listener in list(self._wide):
            if listener.user != change.user and listener.sees(change):
                listener.send(change.frame)

    def listen(self, listener: Listener) -> None:
        """Send from now on."""
        self._listeners[listener] = None
        self._by_user.setdefault(listener.user, {})[listener] = None
        if listener.admin or listener.tenants:
            self._wide[listener] = None

    def judge_anew(self) -> None:
        """Ask again what each listener may see: another policy is in force."""
        for listener in self._listeners:
            listener.tenants, listener.admin = listener.judge()
            if listener.admin or listener.tenants:
                self._wide[listener] = None
            else:
                self._wide.pop(listener, None)

    def leave(self, listener: Listener) -> None:
        """Send no more. Leaving twice is harmless."""
        self._listeners.pop(listener, None)
        self._wide.pop(listener, None)
        mine = self._by_user.get(listener.user)
        if mine is not None:
            mine.pop(listener, None)
            if not mine:
                del self._by_user[listener.user]

    def close(self, why: str) -> None:
        """Say goodbye to all and end their streams: they come back by themselves."""
        self.beat(encode("bye", {"why": why}))
        for listener in list(self._listeners):
            listener.end()
            self.leave(listener)

    def count(self, user: str) -> int:
        """How many streams a user has open."""
        return len(self._by_user.get(user, ()))

    def since(self, last_id: str, listener: Listener) -> list[bytes] | None:
        """The frames after ``last_id`` that the listener may see.

        Returns
        -------
        list of bytes or None
            None when that cannot be told: the id is of an earlier start, of the future, or older
            than what is kept. The listener then has to read everything anew.
        """
        epoch, _, number = last_id.rpartition(".")
        if epoch != self.epoch or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return None
        seen = int(number)
        oldest = self._ring[0].number if self._ring else self._number + 1
        if seen > self._number or seen + 1 < oldest:
            return None
        return [c.frame for c in self._ring if c.number > seen and listener.sees(c)]
