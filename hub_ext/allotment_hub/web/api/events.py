"""The stream of changes: server-sent events that can be taken up where they broke off."""

from __future__ import annotations

from ..answers import EventStream
from ..routes import Answer, Call, route
from ..schema import EventsQuery


@route("GET", "/events", who="user", query=EventsQuery, answer=EventStream, stream=True)
async def events(call: Call) -> Answer:
    """Follow requests, leases, notices and capacity; ``Last-Event-ID`` resumes.

    Events: ``hello`` at the start (``reset`` true: read everything anew), ``request``, ``lease``
    (whole rows), ``notice`` (all notices of the user), ``capacity``, ``place`` (of a waiting
    request), ``heartbeat`` every 15 s and ``bye`` before the stream is closed.
    """
    raise RuntimeError("streams are answered by their own handler")
