"""Turns what was committed into events of the stream.

``request`` and ``lease`` carry the whole row, for its owner, the owners of its tenant and admins.
``notice`` carries all notices of one user. ``capacity`` is for everybody and says what is free by
now; ``place`` tells everybody who waits and listens the own place, without a number of its own:
whoever comes back reads it anew. The last two are sent at most once a second: at once after a
quiet second, else at the end of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..clock import Clock, show_time
from ..domain.amounts import show_gpus
from ..domain.events import Event, NodeRecord, PolicyVersion, Switch
from ..domain.inventory import group_of_pool
from ..domain.leases import Lease
from ..domain.lines import bucket_key
from ..domain.ordering import position
from ..domain.requests import Request
from ..domain.state import State
from ..views import lease_view, notices_of, request_view
from ..views.frame import Frame, Viewer
from .feed import Feed, encode

QUIET_MS = 1_000
AT_ONCE = 200
"""Places worked out in one go, before other work gets its turn."""


class Publisher:
    """See the module."""

    def __init__(self, state: State, clock: Clock, feed: Feed) -> None:
        self._state = state
        self._clock = clock
        self._feed = feed
        self._capacity = Pulse(self._send_capacity, clock)
        self._places = Pulse(self._send_places, clock)
        self._walking: asyncio.Task[None] | None = None

    def committed(self, events: Sequence[Event]) -> None:
        """Publish a batch: each row once, as it is after the batch."""
        rows: dict[str, Request | Lease] = {}
        capacity = places = False
        for event in events:
            record = event.record
            if isinstance(record, (Request, Lease)):
                rows[record.id] = record
                capacity = capacity or isinstance(record, Lease)
                places = places or isinstance(record, Request)
            elif isinstance(record, (NodeRecord, PolicyVersion, Switch)):
                capacity = True
                if isinstance(record, PolicyVersion):
                    self._feed.judge_anew()
        for row in rows.values():
            self._send_row(row)
        if len(self._feed):
            if capacity:
                self._capacity.beat()
            if places:
                self._places.beat()

    def _frame(self, viewer: Viewer) -> Frame:
        offset = self._clock.offset_ms()
        return Frame(
            state=self._state,
            now=self._clock.now_ms(),
            wall=lambda at: show_time(at + offset),
            viewer=viewer,
        )

    def _send_row(self, row: Request | Lease) -> None:
        """Publish a row as its own user sees it: what names other people's rows is left out."""
        user, tenant = row.user, row.tenant
        if isinstance(row, Request):
            self._feed.publish("request", partial(self._request, row), user=user, tenant=tenant)
            return
        self._feed.publish("lease", partial(self._lease, row), user=user, tenant=tenant)
        if row.reclaim is not None or row.held_until is not None:
            self._feed.publish("notice", partial(self._notices, user), user=user)

    def _request(self, row: Request) -> dict[str, Any]:
        lease = self._state.leases.get(row.lease or "")
        return request_view(self._frame(Viewer(name=row.user)), row, lease=lease)

    def _lease(self, row: Lease) -> dict[str, Any]:
        return lease_view(self._frame(Viewer(name=row.user)), row)

    def _notices(self, user: str) -> dict[str, Any]:
        return {"notices": notices_of(self._frame(Viewer(name=user)), user)}

    def _send_capacity(self) -> None:
        offset = self._clock.offset_ms()
        at = show_time(self._clock.now_ms() + offset)
        self._feed.publish("capacity", partial(free_now, self._state, at))

    def _send_places(self) -> None:
        if self._walking is None or self._walking.done():
            self._walking = asyncio.ensure_future(self._walk())

    async def _walk(self) -> None:
        listening = set(self._feed.users)
        waiting = [
            row
            for row in self._state.requests.values()
            if row.state == "queued" and row.user in listening
        ]
        for number, row in enumerate(waiting, 1):
            frame = place_frame(self._state, row, self._clock.now_ms())
            if frame is not None:
                self._feed.tell(row.user, frame)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Send nothing more."""
        self._capacity.close()
        self._places.close()
        if self._walking is not None:
            self._walking.cancel()


def free_now(state: State, at: str) -> dict[str, Any]:
    """What serves and what of it is free, by flavor and group of nodes: from the counters, since
    it is said every second. Why the rest does not serve is what ``GET /capacity`` works out.
    """
    lines = [
        {
            "pools": [
                name for name in state.policy.pools if group_of_pool(state.policy, name) == group
            ],
            "flavor": flavor,
            "in_service": show_gpus(stock.in_service),
            "free": show_gpus(stock.free),
        }
        for (group, flavor), stock in state.stocks.items()
    ]
    return {
        "at": at,
        "free": sum(line["free"] for line in lines),
        "in_service": sum(line["in_service"] for line in lines),
        "flavors": lines,
        "switches": sorted(name for name, switch in state.switches.items() if switch.on),
    }


def place_frame(state: State, row: Request, now: int) -> bytes | None:
    """The frame that tells a waiting request its place; None when it does not wait any more."""
    current = state.requests.get(row.id)
    if current is None or current.state != "queued":
        return None
    bucket = state.queue.get(bucket_key(state.policy, current))
    if bucket is None:
        return None
    place, line = position(state, current, bucket, now)
    return encode("place", {"id": row.id, "position": place, "ahead": place - 1, "in_line": line})


class Pulse:
    """Calls at most once in ``QUIET_MS``: at once after quiet, else when it has passed."""

    def __init__(self, call: Callable[[], None], clock: Clock) -> None:
        self._call = call
        self._clock = clock
        self._last: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Something changed."""
        if self._timer is not None:
            return
        now = self._clock.now_ms()
        wait = 0 if self._last is None else self._last + QUIET_MS - now
        if wait <= 0:
            self._last = now
            self._call()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait / 1000, self._late)

    def _late(self) -> None:
        self._timer = None
        self._last = self._clock.now_ms()
        self._call()

    def close(self) -> None:
        """Call no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
