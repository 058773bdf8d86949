"""Finding rows for somebody: in the state while they live, in the ledger afterwards.

What is not there and what may not be seen are the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..domain.leases import Lease
from ..domain.requests import Request
from ..ledger import EventFilter, Ledger, StoredEvent
from ..views import lease_view, request_view
from ..views.frame import Frame
from ..views.outlook import outlook_of
from .problems import Fault, bad_input, not_found
from .schema import ListQuery

if TYPE_CHECKING:
    from .routes import Call
    from .site import Site

MOST_STEPS = 200
MOST_LEASES = 10

REQUEST_STATES = frozenset(
    {"queued", "parked", "granted", "done", "cancelled", "rejected", "expired"}
)
LEASE_STATES = frozenset(
    {"granted", "preparing", "active", "noticed", "frozen", "stopping", "released"}
)


def in_states(text: str | None, known: frozenset[str] = REQUEST_STATES) -> frozenset[str] | None:
    """The states of a ``state=queued,parked`` parameter; None for all."""
    if text is None:
        return None
    asked = frozenset(text.split(","))
    unknown = asked - known
    if unknown:
        right = f"there are {', '.join(sorted(known))}"
        raise bad_input([Fault("state", f"there is no state {min(unknown)!r}; {right}")])
    return asked


async def find_request(call: Call, id: str) -> Request:
    """A request that the asker may see; else the 404 that says neither."""
    found = call.governor.state.requests.get(id)
    if found is None:
        found = await call.site.service.past_request(id)
    if found is None or not call.viewer.sees_row(found):
        raise not_found("request")
    return found


async def own_request(call: Call, id: str) -> Request:
    """A request that the asker may change: the same that it may see."""
    return await find_request(call, id)


async def find_lease(call: Call, id: str) -> Lease:
    """A lease that the asker may see, by its id or its request's; else the 404."""
    state = call.governor.state
    found = state.leases.get(id)
    if found is None:
        by_request = state.requests.get(id)
        if by_request is not None and by_request.lease is not None:
            found = state.leases.get(by_request.lease)
    if found is None:
        found = await call.site.service.past_lease(id)
    if found is None or not call.viewer.sees_row(found):
        raise not_found("lease")
    return found


async def past_requests(
    call: Call, query: ListQuery, states: frozenset[str], limit: int
) -> list[Request]:
    """Requests that have ended, newest first, as far as the asker may see them."""
    if limit <= 0:
        return []
    rows = await call.site.service.past_requests(
        states=states, tenant=query.tenant, user=_narrow(call, query), limit=limit
    )
    return [row for row in rows if call.viewer.sees_row(row) and not row.live]


async def past_leases(
    call: Call, query: ListQuery, states: frozenset[str], limit: int
) -> list[Lease]:
    """Leases that have ended, newest first, as far as the asker may see them."""
    if limit <= 0:
        return []
    rows = await call.site.service.past_leases(
        states=states, tenant=query.tenant, user=_narrow(call, query), limit=limit
    )
    return [row for row in rows if call.viewer.sees_row(row) and not row.live]


def _narrow(call: Call, query: ListQuery) -> str | None:
    """Whose rows to read at all: an ordinary user's own only."""
    if call.viewer.admin or call.viewer.owns:
        return query.user
    return call.who.name


def request_shown(
    site: Site,
    frame: Frame,
    row: Request,
    *,
    helps: bool = True,
    history: Iterable[tuple[int, str, str]] = (),
) -> dict[str, Any]:
    """A request with what the rules say about it now. Without ``helps`` it is cheap: for lists."""
    lease = frame.state.leases.get(row.lease or "")
    known = site.service.known_start(row.id) if row.state == "queued" else None
    outlook = outlook_of(frame, row, history=history, helps=helps, known=known)
    view = request_view(frame, row, lease=lease, outlook=outlook)
    slot = site.service.start_slot(row.lease) if row.lease else None
    view["start_slot"] = slot
    view["url"] = f"{site.prefix}waiting/{row.id}"
    return view


async def history_of(call: Call, row: Request) -> list[tuple[int, str, str]]:
    """What has happened to a request and its leases: when, what, why."""
    subjects = [row.id, *(f"{row.id}.{number}" for number in range(1, row.grants + 1))]

    def ask(ledger: Ledger) -> list[StoredEvent]:
        return [
            event
            for subject in subjects[-MOST_LEASES:]
            for event in ledger.query_events(EventFilter(subject=subject), limit=MOST_STEPS)
        ]

    events = sorted(await call.site.service.query(ask), key=lambda event: event.seq)
    return [(event.at, event.what, event.why) for event in events[-MOST_STEPS:]]


def lease_shown(site: Site, frame: Frame, row: Lease) -> dict[str, Any]:
    """A lease, with its place among those that wait for a start slot."""
    view = lease_view(frame, row)
    view["start_slot"] = site.service.start_slot(row.id)
    return view
