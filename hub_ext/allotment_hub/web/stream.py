"""The handler of ``GET /events``.

A frame is encoded once and written to each stream that may see it. A stream that cannot keep up,
whose credential does not hold any more, or that outlives its governor, is closed: its browser comes
back with the id of the last event that it saw, and gets what it missed.
"""

from __future__ import annotations

import asyncio
import random

from tornado.iostream import StreamClosedError

from ..governor.feed import Listener, encode
from ..governor.life import Life
from ..governor.publish import place_frame
from .handler import ApiHandler
from .identity import Identity, viewer
from .problems import Problem
from .schema import EventsQuery, read_query
from .site import unavailable

RETRY_MS = 3_000
RECHECK_MS = 30_000
MOST_UNSENT = 512 * 1024
"""Bytes that a stream may be behind before it is closed."""


class StreamHandler(ApiHandler):
    """One open stream."""

    _listener: Listener | None = None
    _done: asyncio.Event

    async def get(self, **_: str) -> None:
        """Open the stream and keep it open."""
        assert self.identity is not None  # noqa: S101 (the route is for known people only)
        site = self.site
        await self._check_phase(self.route)
        query = read_query(EventsQuery, {
            name: [value.decode("utf-8", "replace") for value in values]
            for name, values in self.request.query_arguments.items()
        })  # fmt: skip
        life = site.service.life
        if life is None:
            raise unavailable(site.service.phase)
        self._check_room(life)
        self._done = asyncio.Event()
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")
        self.set_header("Cache-Control", "no-store, no-transform")
        self._open(life, self.request.headers.get("Last-Event-ID") or query.last_event_id)
        try:
            await self._keep(life)
        finally:
            self._leave(life)

    def _check_room(self, life: Life) -> None:
        assert self.identity is not None  # noqa: S101 (set by prepare)
        mine = life.feed.count(self.identity.name)
        if mine >= self.site.streams_per_user or len(life.feed) >= self.site.streams:
            raise Problem(
                429, "TooManyStreams", "Too many streams are open; close some pages.",
                retry_after_ms=10_000,
            )  # fmt: skip

    def _open(self, life: Life, last_id: str | None) -> None:
        assert self.identity is not None  # noqa: S101 (set by prepare)
        listener = Listener(
            self.identity.name, lambda: self._rights(life), self._send, self._done.set
        )
        self._listener = listener
        missed = None if last_id is None else life.feed.since(last_id, listener)
        hello = {
            "now": self.site.service.wall(life.clock.now_ms()),
            "reset": missed is None,
            "user": self.identity.name,
        }
        self.write(f"retry: {RETRY_MS}\n\n".encode())
        self.write(encode("hello", hello, life.feed.last_id if missed is None else None))
        for frame in missed or ():
            self.write(frame)
        for row in list(life.governor.state.requests.values()):
            if row.user == self.identity.name:
                frame_ = place_frame(life.governor.state, row, life.clock.now_ms())
                if frame_ is not None:
                    self.write(frame_)
        # Listening begins in the same breath as the catching up: nothing falls in between.
        life.feed.listen(listener)
        self._flush()

    def _send(self, frame: bytes) -> None:
        stream = self.request.connection.stream  # type: ignore[union-attr]  # HTTP/1 always has one
        # Tornado tells how much is unsent nowhere else.
        unsent = len(stream._write_buffer)  # noqa: SLF001 (see above)
        if self._done.is_set() or stream.closed() or unsent > MOST_UNSENT:
            self._done.set()
        elif self.request.version == "HTTP/1.1":
            # A chunk, straight to the socket: what tornado does around it for each stream costs
            # as much again, and there are thousands of streams.
            stream.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        else:
            self.write(frame)
            self._flush()

    def _flush(self) -> None:
        flushed = asyncio.ensure_future(self.flush())
        flushed.add_done_callback(self._flushed)

    def _flushed(self, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._done.set()

    async def _keep(self, life: Life) -> None:
        """Until the client goes, the credential ends, or the governor does."""
        # Spread, so that a thousand streams do not ask the hub in the same second.
        wait_s = RECHECK_MS / 1000 * (0.7 + 0.3 * random.random())  # noqa: S311 (no secret)
        while not self._done.is_set():
            try:
                await asyncio.wait_for(self._done.wait(), wait_s)
            except asyncio.TimeoutError:
                if not await self._still_valid(life):
                    self._bye("credential")
                    return

    async def _still_valid(self, life: Life) -> bool:
        assert self.identity is not None and self._listener is not None  # noqa: S101, PT018 (set before)
        try:
            found: Identity | None = await self.site.authenticator.recheck(self.identity)
        except Problem:
            # The hub is away: what it said last is too old to go on with.
            return False
        if found is None or found.name != self.identity.name:
            return False
        self.identity = found
        if self._rights(life) != (self._listener.tenants, self._listener.admin):
            life.feed.judge_anew()
        return True

    def _rights(self, life: Life) -> tuple[frozenset[str], bool]:
        assert self.identity is not None  # noqa: S101 (set by prepare)
        seen = viewer(self.identity, life.governor.state.policy)
        return seen.owns, seen.admin

    def _bye(self, why: str) -> None:
        try:
            self.write(encode("bye", {"why": why}))
        except (RuntimeError, StreamClosedError):
            return

    def _leave(self, life: Life) -> None:
        if self._listener is not None:
            life.feed.leave(self._listener)

    def on_connection_close(self) -> None:
        """The client has gone."""
        if hasattr(self, "_done"):
            self._done.set()
