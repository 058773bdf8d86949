"""The spawner gate: what the hub itself calls; see :mod:`...gateapi` for both sides' rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ... import gateapi
from ...domain import commands
from ...domain.admission import decide
from ...domain.amounts import MILLI, show_duration, show_gpus
from ...domain.leases import Lease
from ...domain.policy import Flavor
from ...domain.requests import Request
from ...domain.shapes import tenants_of
from ...domain.state import State
from ...gateapi import GateError, LeaseCall, ServerCall, StartCall
from ...sentences import flavor_name
from ...views.frame import EVERYTHING, Frame, Viewer
from ..look import lease_shown, request_shown
from ..problems import Fault, Problem, bad_input, not_found
from ..routes import Answer, Call, route
from ..schema import FormQuery, RawObject, ServerQuery, WaitQuery, Wants, read_wants
from .requests import new_id

LONGEST_WAIT_S = 20.0
HELD = ("granted", "preparing", "active", "noticed", "frozen")
SOON = frozenset({"Reconciling", "BackendUnreachable"})
"""Reasons that are over within seconds as a rule: worth a short wait at the gate."""


def _gate(method: str, path: str, **options: Any) -> Any:
    return route(method, f"/{path}", who="hub", gate=True, **options)


def _read(kind: Any, body: RawObject) -> Any:
    try:
        return kind.from_json(body.root)
    except GateError as error:
        raise bad_input([Fault("", str(error))]) from None


def _frame(call: Call, user: str | None = None) -> Frame:
    viewer = EVERYTHING if user is None else Viewer(name=user)
    return call.site.frame(viewer, call.headers.get("Accept-Language"))


def _lease_of(call: Call, user: str, server: str) -> Lease | None:
    """The live lease of a server; the youngest where an older one is still ending."""
    rows = list(call.governor.state.leases_of(user, server))
    return max(rows, key=lambda row: row.fence, default=None)


def _request_of(call: Call, user: str, server: str) -> Request | None:
    for row in call.governor.state.requests.values():
        if row.user == user and row.server == server and row.state in ("queued", "parked"):
            return row
    return None


@_gate("POST", gateapi.START, change=True, body=RawObject, query=WaitQuery)
async def start(call: Call) -> Answer:
    """May this server start? 200 with its lease, 202 with its place in line, 4xx refused."""
    asked: StartCall = _read(StartCall, call.body)
    wants = read_wants(asked.wants)
    lease = _lease_of(call, asked.user, asked.server)
    if lease is not None:
        return await _go_on(call, asked, wants, lease)
    waiting = _request_of(call, asked.user, asked.server)
    if waiting is not None:
        await call.governor.execute(
            lambda state, now: commands.presence(state, now, asked.user, waiting.id)
        )
        return await _wait(call, asked, wants, waiting.id)
    return await _submit(call, asked, wants)


async def _go_on(call: Call, asked: StartCall, wants: Wants, lease: Lease) -> Answer:
    """The server has a lease: the same answer again, unless it is another thing that is asked."""
    if lease.state == "stopping":
        raise Problem(
            409, "LeaseEnding", "The last session of this server is still ending; try again soon.",
            retry_after_ms=3000,
        )  # fmt: skip
    if wants.gpus > lease.gpus or wants.flavor not in (None, lease.flavor):
        raise Problem(
            409, "OtherLease",
            "This server holds another lease than is asked for now; stop it first, or cancel it in "
            "the waiting room.",
        )  # fmt: skip
    if lease.state == "granted":
        await _check_membership(call, asked, lease)
        if lease.held_until is not None:
            await call.governor.execute(
                lambda state, now: commands.claim(state, now, lease.request, f"user:{asked.user}")
            )
        if not call.site.service.may_start(lease.id):
            row = call.governor.state.requests[lease.request]
            return Answer({"request": request_shown(call.site, _frame(call, asked.user), row)}, 202)
        await call.governor.execute(lambda state, now: commands.preparing(state, now, lease.id))
    return _granted(call, asked.user, lease.id)


async def _check_membership(call: Call, asked: StartCall, lease: Lease) -> None:
    """Days may lie between asking and grant: who has left the team since does not start."""
    tenant = call.governor.state.policy.tenants.get(lease.tenant)
    if tenant is not None and not set(asked.groups).isdisjoint(tenant.groups):
        return
    why = f"{asked.user} does not belong to {lease.tenant} any more"
    await call.governor.execute(
        lambda state, now: commands.release(state, now, lease.id, "hub", why)
    )
    raise Problem(403, "NoQuota", f"{why}; ask again for another team.")


def _granted(call: Call, user: str, lease_id: str) -> Answer:
    lease = call.governor.state.leases.get(lease_id)
    if lease is None or lease.state not in HELD:
        raise Problem(409, "LeaseEnding", "This lease has just ended; ask again.")
    return Answer({"lease": lease_shown(call.site, _frame(call, user), lease)})


async def _submit(call: Call, asked: StartCall, wants: Wants) -> Answer:
    request_id = new_id()

    def take(state: State, now: int) -> Request:
        row = commands.submit(
            state, now, id=request_id, kind="session", user=asked.user, groups=asked.groups,
            wants=wants.wants(), server=asked.server, actor=asked.actor or f"user:{asked.user}",
            options=tuple(sorted(dict(asked.options).items())),
        )  # fmt: skip
        decide(state, now)
        granted = state.requests.get(request_id)
        # Granted and begun are one step: else the governor would start the server a second time.
        if granted is not None and granted.lease and call.site.service.may_start(granted.lease):
            commands.preparing(state, now, granted.lease)
        return row

    taken = await call.governor.execute(take)
    current = call.governor.state.requests.get(request_id, taken)
    call.site.service.count_request(current)
    if current.state == "rejected":
        raise refused(call, asked.user, current)
    return await _wait(call, asked, wants, request_id)


def refused(call: Call, user: str, row: Request) -> Problem:
    """The problem that a request which can never start is answered with."""
    view = request_shown(call.site, _frame(call, user), row)
    first: Mapping[str, Any] = view["reasons"][0]
    return Problem(
        422, first["code"], first["text"], extra={"reasons": view["reasons"], "request": row.id}
    )


async def _wait(call: Call, asked: StartCall, wants: Wants, request_id: str) -> Answer:
    """The grant, if it comes within the wait and is in sight; else the place in line."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + min(call.query.wait, LONGEST_WAIT_S)
    while True:
        row = call.governor.state.requests.get(request_id)
        if row is None:
            raise Problem(409, "WrongState", "This request was cancelled meanwhile.")
        if row.state == "granted" and row.lease is not None:
            await call.governor.settled()
            lease = call.governor.state.leases.get(row.lease)
            if lease is not None and lease.state == "granted":
                return await _go_on(call, asked, wants, lease)
            return _granted(call, asked.user, row.lease)
        left = ends - loop.time()
        if left <= 0 or not _in_sight(call, row, left):
            view = request_shown(call.site, _frame(call, asked.user), row)
            return Answer({"request": view}, status=202)
        await call.governor.changed(request_id, left)


def _in_sight(call: Call, row: Request, left_s: float) -> bool:
    """Whether a grant within so many seconds is likely enough to wait for."""
    state = call.governor.state
    if row.state != "queued" or not row.reasons:
        return row.state == "queued" and any(state.on(name) for name in ("reconciling",))
    first = row.reasons[0]
    if first.code in SOON:
        return True
    return first.until is not None and first.until <= call.governor.clock.now_ms() + left_s * 1000


@_gate("POST", gateapi.PREPARING, change=True, body=RawObject)
async def preparing(call: Call) -> Answer:
    """The server of a lease is being started now."""
    return await _about_lease(call, lambda state, now, id, _: commands.preparing(state, now, id))


@_gate("POST", gateapi.READY, change=True, body=RawObject)
async def ready(call: Call) -> Answer:
    """The server of a lease answers."""
    return await _about_lease(call, lambda state, now, id, _: commands.started(state, now, id))


@_gate("POST", gateapi.FAILED, change=True, body=RawObject)
async def failed(call: Call) -> Answer:
    """The start of a server ended without one. Its devices are not free yet."""
    return await _about_lease(
        call,
        lambda state, now, id, told: commands.start_failed(
            state, now, id, told.detail or "no detail"
        ),
    )


@_gate("POST", gateapi.ABSENT, change=True, body=RawObject)
async def absent(call: Call) -> Answer:
    """The backend confirms that nothing of a lease runs: its devices are free."""

    def confirmed(state: Any, now: int, id: str, told: LeaseCall) -> None:
        why = f"confirmed absent ({told.proof or 'by the spawner'})"
        commands.gone(state, now, id, f"{why}: {told.detail}" if told.detail else why)

    return await _about_lease(call, confirmed)


async def _about_lease(call: Call, command: Any) -> Answer:
    """Tell the state about a lease, under its fence. Said twice is said once."""
    told: LeaseCall = _read(LeaseCall, call.body)
    lease = call.governor.state.leases.get(told.lease)
    known = lease or await call.site.service.past_lease(told.lease)
    if known is None:
        raise not_found("lease")
    if told.fence < known.fence:
        raise Problem(
            409, "StaleFence", f"This is about an earlier grant; the lease has fence {known.fence}."
        )
    if lease is not None:
        try:
            await call.governor.execute(lambda state, now: command(state, now, lease.id, told))
        except commands.Refusal as refusal:
            # It has gone on meanwhile: what the spawner says is old news and not its fault.
            if refusal.code not in ("Conflict", "NotFound"):
                raise
    current = call.governor.state.leases.get(told.lease)
    if current is None:
        current = await call.site.service.past_lease(told.lease)
    return Answer(
        {"lease": None if current is None else lease_shown(call.site, _frame(call), current)}
    )


@_gate("POST", gateapi.WITHDRAW, change=True, body=RawObject)
async def withdraw(call: Call) -> Answer:
    """A start was cancelled while it waited: its request leaves the line."""
    told: ServerCall = _read(ServerCall, call.body)
    waiting = _request_of(call, told.user, told.server)
    if waiting is not None:
        await call.governor.execute(
            lambda state, now: commands.cancel(state, now, waiting.id, f"user:{told.user}")
        )
    return Answer({"cancelled": None if waiting is None else waiting.id})


@_gate("GET", gateapi.LEASES, change=False, query=ServerQuery)
async def leases(call: Call) -> Answer:
    """The live leases of a server, or of all servers of a user."""
    query: ServerQuery = call.query
    rows = [
        row
        for row in call.governor.state.leases.values()
        if query.user in (None, row.user) and query.server in (None, row.server)
    ]
    frame = _frame(call, query.user)
    return Answer({"leases": [lease_shown(call.site, frame, row) for row in rows]})


@_gate("GET", gateapi.REQUESTS, change=False, query=ServerQuery)
async def requests(call: Call) -> Answer:
    """The live requests of a server, or of all servers of a user."""
    query: ServerQuery = call.query
    rows = [
        row
        for row in call.governor.state.requests.values()
        if query.user in (None, row.user) and query.server in (None, row.server)
    ]
    frame = _frame(call, query.user)
    return Answer({"requests": [request_shown(call.site, frame, row) for row in rows]})


@_gate("GET", gateapi.FORM, change=False, query=FormQuery)
async def form(call: Call) -> Answer:
    """What a spawn form may offer to somebody of these groups."""
    query: FormQuery = call.query
    return Answer(form_of(call, query.user or "", tuple(query.group)))


def slot_share(flavor: Flavor) -> int:
    """Milli-GPUs of the smallest part that a flavor is given out in."""
    return MILLI if flavor.sharing is None else flavor.sharing.share


def form_of(call: Call, user: str, groups: tuple[str, ...]) -> dict[str, Any]:
    """Tenants, flavors and classes that a session of a user may name, each with a text."""
    state = call.governor.state
    policy = state.policy
    mine = tenants_of(policy, groups)
    flavors = dict.fromkeys(
        quota.flavor for name in mine for quota in policy.tenants[name].quotas if quota.most > 0
    )
    return {
        "tenants": [{"name": name, "text": name} for name in mine],
        "flavors": [
            {
                "name": name,
                "text": flavor_name(name),
                "share": show_gpus(slot_share(policy.flavors[name])),
                "rate": policy.flavors[name].rate / 1_000_000,
            }
            for name in flavors
            if name in policy.flavors
        ],
        "classes": [
            {
                "name": name,
                "text": name,
                "default": show_duration(class_.duration.default),
                "max": show_duration(class_.duration.max),
                "interruptible": class_.interruptible,
                "approval": class_.approval is not None,
            }
            for name, class_ in policy.classes.items()
            if class_.kind == "interactive"
        ],
    }
