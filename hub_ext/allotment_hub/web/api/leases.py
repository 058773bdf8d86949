"""What is held: look, renew, keep, give back, confirm."""

from __future__ import annotations

from ...domain import commands
from ...domain.leases import Lease
from ..answers import LeaseList, LeaseView
from ..look import LEASE_STATES, find_lease, in_states, lease_shown, past_leases
from ..problems import forbidden
from ..routes import Answer, Call, route
from ..schema import ListQuery, Nothing, Release


@route("GET", "/leases", who="user", query=ListQuery, answer=LeaseList)
async def leases(call: Call) -> Answer:
    """Leases: one's own; for owners of a tenant its; for admins all."""
    query: ListQuery = call.query
    states = in_states(query.state, LEASE_STATES)
    frame = call.frame()
    rows = [
        row
        for row in call.governor.state.leases.values()
        if frame.viewer.sees_row(row)
        and (states is None or row.state in states)
        and query.tenant in (None, row.tenant)
        and query.user in (None, row.user)
    ]
    rows.sort(key=lambda row: row.fence)
    if query.after is not None:
        rows = [row for row in rows if str(row.fence).zfill(20) > query.after.zfill(20)]
    page = rows[: query.limit]
    if states is not None and "released" in states:
        page += await past_leases(call, query, states, query.limit - len(page))
    more = str(page[-1].fence) if len(rows) > query.limit else None
    return Answer({"leases": [lease_shown(call.site, frame, row) for row in page], "next": more})


@route("GET", "/leases/{id}", who="user", answer=LeaseView)
async def lease(call: Call) -> Answer:
    """One lease, of the present or the past, by its id or its request's."""
    found = await find_lease(call, call.path["id"])
    return Answer(lease_shown(call.site, call.frame(), found))


async def _shown(call: Call, id: str) -> Answer:
    return Answer(lease_shown(call.site, call.frame(), await find_lease(call, id)))


@route("POST", "/leases/{id}/renew", who="user", change=True, body=Nothing, answer=LeaseView)
async def renew(call: Call) -> Answer:
    """Begin another term, as often as the lease allows."""
    found = await find_lease(call, call.path["id"])
    await call.governor.execute(
        lambda state, now: commands.renew(state, now, found.id, call.who.actor)
    )
    return await _shown(call, found.id)


@route("POST", "/leases/{id}/keep", who="user", change=True, body=Nothing, answer=LeaseView)
async def keep(call: Call) -> Answer:
    """Undo a notice for idleness, as often as the rule allows."""
    found = await find_lease(call, call.path["id"])
    await call.governor.execute(
        lambda state, now: commands.keep(state, now, found.id, call.who.actor)
    )
    return await _shown(call, found.id)


@route("POST", "/leases/{id}/release", who="user", change=True, body=Release, answer=LeaseView)
async def release(call: Call) -> Answer:
    """Give back. The server is stopped; the devices are free once it is gone. Repeating it is
    harmless.
    """
    found = await find_lease(call, call.path["id"])
    if found.live:
        await call.governor.execute(
            lambda state, now: commands.release(
                state, now, found.id, call.who.actor, call.body.reason or "released"
            )
        )
    return await _shown(call, found.id)


def may_confirm(call: Call, lease: Lease) -> bool:
    """Whether the asker may confirm the stop of a lease under its reclaim rule."""
    viewer, policy = call.viewer, call.governor.state.policy
    rule = policy.reclaim_rule(
        class_=lease.class_, flavor=lease.flavor, tenant=lease.tenant, user=lease.user
    )
    return viewer.admin or (rule.confirm != "admin" and lease.tenant in viewer.owns)


@route(
    "POST",
    "/leases/{id}/confirm",
    who="user",
    change=True,
    body=Nothing,
    answer=LeaseView,
    servers=False,
)
async def confirm(call: Call) -> Answer:
    """Confirm a reclaim before its stop, where the policy wants a person to."""
    found = await find_lease(call, call.path["id"])
    if not may_confirm(call, found):
        raise forbidden("This stop is confirmed by an owner of the tenant or an admin.")
    await call.governor.execute(
        lambda state, now: commands.confirm(state, now, found.id, call.who.actor)
    )
    return await _shown(call, found.id)
