"""Asking, changing one's mind, and waiting."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
from typing import Any

from ...domain import commands
from ...domain.requests import Request
from ...domain.state import State
from ...governor.preview import preview as look_ahead
from ...ledger import IdempotencyKey
from ..answers import PresenceView, PreviewView, RequestList, RequestView
from ..look import find_request, history_of, in_states, own_request, past_requests, request_shown
from ..problems import Fault, Problem, bad_input
from ..routes import Answer, Call, route
from ..schema import Changes, ListQuery, NewRequest, Nothing, Preview

_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def new_id() -> str:
    """An id that cannot be guessed."""
    return "r-" + secrets.token_hex(8)


def free_server(state: State, user: str) -> str:
    """The server of a session that names none: the default one, or where that is spoken for
    another of its own. Only who names a server replaces what it had.
    """
    taken = {row.server for row in state.requests.values() if row.user == user}
    taken |= {row.server for row in state.leases.values() if row.user == user}
    names = itertools.chain([""], (f"gpu-{number}" for number in itertools.count(1)))
    return next(name for name in names if name not in taken)


def _idempotency_key(call: Call) -> str | None:
    key = call.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise bad_input([Fault("Idempotency-Key", "write 1 to 200 visible ASCII characters")])
    return key


def _fingerprint(body: NewRequest) -> str:
    text = json.dumps(body.model_dump(by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@route(
    "POST", "/requests", who="user", change=True, body=NewRequest, answer=RequestView, status=201
)
async def submit(call: Call) -> Answer:
    """Ask for devices. With an ``Idempotency-Key`` a repeated call is the same request."""
    body: NewRequest = call.body
    if body.kind not in call.site.service.kinds:
        kinds = ", ".join(sorted(call.site.service.kinds))
        raise bad_input([Fault("kind", f"nothing here runs a {body.kind}; there is: {kinds}")])
    key = _idempotency_key(call)
    if key is None:
        return await _submit(call, body, None)
    async with call.site.service.one_at_a_time((call.who.name, key)):
        known = await call.site.service.query(lambda ledger: ledger.find_key(call.who.name, key))
        if known is None:
            return await _submit(call, body, key)
        if known.body_hash != _fingerprint(body) or known.request is None:
            raise Problem(
                409, "KeyReused",
                "This Idempotency-Key was sent before with another request; make a new one.",
            )  # fmt: skip
        return await _answer(call, known.request, 200)


async def _submit(call: Call, body: NewRequest, key: str | None) -> Answer:
    who = call.who
    request_id = new_id()
    idempotency = None
    if key is not None:
        idempotency = IdempotencyKey(
            user=who.name, key=key, request=request_id, body_hash=_fingerprint(body), answer="",
            at=call.now,
        )  # fmt: skip

    def take(state: State, now: int) -> Request:
        server = body.server
        if body.kind == "session" and server is None:
            server = free_server(state, who.name)
        return commands.submit(
            state, now, id=request_id, kind=body.kind, user=who.name,
            groups=tuple(sorted(who.groups)), wants=body.wants(), server=server, actor=who.actor,
        )  # fmt: skip

    taken = await call.governor.execute(
        take, **({} if idempotency is None else {"idempotency": (idempotency,)})
    )
    current = call.governor.state.requests.get(request_id, taken)
    call.site.service.count_request(current)
    return _shown(call, current, 201)


async def _answer(call: Call, request_id: str, status: int) -> Answer:
    return _shown(call, await own_request(call, request_id), status)


def _shown(call: Call, found: Request, status: int) -> Answer:
    view = request_shown(call.site, call.frame(), found)
    location = f"{call.site.prefix}api/v1/requests/{found.id}"
    return Answer(view, status=status, headers={"Location": location})


@route("POST", "/requests/preview", who="user", body=Preview, answer=PreviewView, fresh=True)
async def preview(call: Call) -> Answer:
    """What would be decided now, and what would start sooner. Nothing is asked for."""
    body: Preview = call.body
    found = look_ahead(
        call.governor.state, call.now, kind=body.kind, user=call.who.name,
        groups=tuple(sorted(call.who.groups)), wants=body.wants(), server=body.server,
    )  # fmt: skip
    return Answer(found.view(call.frame()))


@route("GET", "/requests", who="user", query=ListQuery, answer=RequestList)
async def requests(call: Call) -> Answer:
    """Requests: one's own; for owners of a tenant its; for admins all."""
    query: ListQuery = call.query
    states = in_states(query.state)
    frame = call.frame()
    live = [
        row
        for row in call.governor.state.requests.values()
        if frame.viewer.sees_row(row)
        and (states is None or row.state in states)
        and query.tenant in (None, row.tenant)
        and query.user in (None, row.user)
    ]
    rows: list[Request] = sorted(live, key=lambda row: row.sequence)
    if query.after is not None:
        rows = [row for row in rows if str(row.sequence).zfill(20) > query.after.zfill(20)]
    page = rows[: query.limit]
    shown: list[dict[str, Any]] = [
        request_shown(call.site, frame, row, helps=row.user == frame.viewer.name) for row in page
    ]
    if states is not None and states & {"done", "cancelled", "rejected", "expired"}:
        past = await past_requests(call, query, states, query.limit - len(shown))
        shown += [request_shown(call.site, frame, row) for row in past]
    more = str(page[-1].sequence) if len(rows) > query.limit else None
    return Answer({"requests": shown, "next": more})


@route("GET", "/requests/{id}", who="user", answer=RequestView)
async def request(call: Call) -> Answer:
    """One request, of the present or the past."""
    found = await find_request(call, call.path["id"])
    history = await history_of(call, found)
    return Answer(request_shown(call.site, call.frame(), found, history=history))


@route("PATCH", "/requests/{id}", who="user", change=True, body=Changes, answer=RequestView)
async def amend(call: Call) -> Answer:
    """Change what is asked for while it waits. Asking for less keeps the age."""
    found = await own_request(call, call.path["id"])
    wants = call.body.wants()
    if not wants:
        raise bad_input([Fault("", "name at least one thing to change")])
    _check_live(found)
    await call.governor.execute(
        lambda state, now: commands.amend(state, now, found.id, wants, call.who.actor)
    )
    return await _answer(call, found.id, 200)


@route("DELETE", "/requests/{id}", who="user", change=True, answer=RequestView)
async def cancel(call: Call) -> Answer:
    """Leave the line, or give a grant back that was not used. Repeating it is harmless."""
    found = await own_request(call, call.path["id"])
    if found.live:
        await call.governor.execute(
            lambda state, now: commands.cancel(state, now, found.id, call.who.actor)
        )
    return await _answer(call, found.id, 200)


@route("POST", "/requests/{id}/claim", who="user", change=True, body=Nothing, answer=RequestView)
async def claim(call: Call) -> Answer:
    """Take what was granted, or rejoin the line with the age of a parked request."""
    found = await own_request(call, call.path["id"])
    _check_live(found)
    await call.governor.execute(
        lambda state, now: commands.claim(state, now, found.id, call.who.actor)
    )
    return await _answer(call, found.id, 200)


@route(
    "POST", "/requests/{id}/presence", who="user", change=False, body=Nothing, answer=PresenceView
)
async def presence(call: Call) -> Answer:
    """Say that the owner is looking: sent every 20 s by a waiting room that is visible."""
    found = await own_request(call, call.path["id"])
    if found.live and found.user == call.who.name:
        await call.governor.execute(
            lambda state, now: commands.presence(state, now, found.user, found.id)
        )
    current = call.governor.state.requests.get(found.id, found)
    return Answer({"id": current.id, "state": current.state, "lease": current.lease})


def _check_live(found: Request) -> None:
    if not found.live:
        raise Problem(
            409, "WrongState", f"This request is {found.state}: that is final. Ask anew instead."
        )
