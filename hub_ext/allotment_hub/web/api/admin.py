"""What a person in charge does: approve, exempt, pause, drain, release by force."""

from __future__ import annotations

import secrets

from ...clock import parse_time
from ...domain import commands
from ...domain.policy import Approval
from ...domain.requests import Request
from ..answers import GrantView, LeaseView, NodeView, RequestView, SwitchView
from ..identity import named
from ..look import find_lease, find_request, lease_shown, request_shown
from ..problems import Fault, Problem, bad_input, forbidden, not_found
from ..routes import Answer, Call, route
from ..schema import Drain, NewApproval, NewExemption, NewForce, Pause


def may_approve(call: Call, row: Request, approval: Approval) -> bool:
    """Whether the asker is one of those who may approve; nobody approves an own request."""
    if row.user == call.who.name and not call.viewer.admin:
        return False
    return call.viewer.admin or named(call.who, approval.by)


@route(
    "POST",
    "/approvals",
    who="user",
    change=True,
    body=NewApproval,
    answer=RequestView,
    servers=False,
)
async def approve(call: Call) -> Answer:
    """Approve the use of a class by a waiting request; the policy says who may."""
    body: NewApproval = call.body
    row = call.governor.state.requests.get(body.request)
    class_ = None if row is None else call.governor.state.policy.classes.get(row.class_)
    approval = None if class_ is None else class_.approval
    if row is None or (approval is None and not call.viewer.sees_row(row)):
        raise not_found("request")
    if approval is None:
        raise Problem(409, "Conflict", f"The class {row.class_} needs no approval.")
    if not may_approve(call, row, approval):
        if not call.viewer.sees_row(row):
            raise not_found("request")
        raise forbidden(f"The class {row.class_} is approved by {', '.join(approval.by)}.")
    await call.governor.execute(
        lambda state, now: commands.approve(
            state, now, row.id, call.who.actor, body.reason, body.valid_for
        )
    )
    current = call.governor.state.requests.get(row.id)
    if current is None:
        current = await find_request(call, row.id)
    return Answer(request_shown(call.site, call.frame(), current))


@route(
    "POST",
    "/exemptions",
    who="admin",
    change=True,
    body=NewExemption,
    answer=GrantView,
    status=201,
    servers=False,
)
async def exempt(call: Call) -> Answer:
    """Spare a lease or a user from reclaim, with a reason and an end."""
    body: NewExemption = call.body
    if (body.lease is None) == (body.user is None):
        raise bad_input([Fault("lease", "name either a lease or a user")])
    if (body.duration is None) == (body.until is None):
        raise bad_input([Fault("for", "say either for how long or until when")])
    subject = f"user:{body.user}"
    if body.lease is not None:
        subject = f"lease:{(await find_lease(call, body.lease)).id}"
    until = None if body.until is None else _steady(call, body.until)

    def ends_at(now: int) -> int:
        return now + (body.duration or 0) if until is None else until

    grant = await call.governor.execute(
        lambda state, now: commands.exempt(
            state, now, subject, call.who.actor, body.reason, ends_at(now),
            f"x-{secrets.token_hex(8)}",
        )
    )  # fmt: skip
    wall = call.site.wall
    return Answer(
        {
            "id": grant.id, "kind": grant.kind, "subject": grant.subject, "by": grant.by,
            "reason": grant.reason, "starts_at": wall(grant.starts_at),
            "ends_at": wall(grant.ends_at),
        },
        status=201,
    )  # fmt: skip


def _steady(call: Call, text: str) -> int:
    try:
        return call.site.steady(parse_time(text))
    except ValueError as error:
        raise bad_input([Fault("until", str(error))]) from None


@route(
    "POST", "/grants/pause", who="admin", change=True, body=Pause, answer=SwitchView, servers=False
)
async def pause(call: Call) -> Answer:
    """Grant nothing for now, or go on. What runs is not touched."""
    body: Pause = call.body
    await call.governor.execute(
        lambda state, now: commands.switch(
            state, now, "paused", body.on, call.who.actor, body.reason
        )
    )
    known = call.governor.state.switches.get("paused")
    return Answer({
        "name": "paused",
        "on": known is not None and known.on,
        "text": "" if known is None else known.text,
        "since": None if known is None else call.site.wall(known.since),
    })  # fmt: skip


@route(
    "POST", "/nodes/{n}/drain", who="admin", change=True, body=Drain, answer=NodeView, servers=False
)
async def drain(call: Call) -> Answer:
    """Put nothing new on a node, or again. What runs there ends by its own terms."""
    body: Drain = call.body
    name = call.path["n"]
    if name not in call.governor.state.nodes:
        raise not_found("node")
    await call.governor.execute(
        lambda state, now: commands.drain(state, now, name, body.on, call.who.actor)
    )
    node = call.governor.state.nodes[name]
    return Answer({"node": node.name, "health": node.health, "draining": node.draining})


@route(
    "POST",
    "/leases/{id}/force-release",
    who="admin",
    change=True,
    body=NewForce,
    answer=LeaseView,
    servers=False,
)
async def force_release(call: Call) -> Answer:
    """Free the devices of a lease without proof that nothing runs there. It is in the audit."""
    body: NewForce = call.body
    found = await find_lease(call, call.path["id"])
    if found.state not in ("stopping", "released"):
        raise Problem(
            409, "Conflict", "Release the lease first; only one that is stopping is forced."
        )
    await call.governor.execute(
        lambda state, now: commands.gone(
            state, now, found.id, f"forced: {body.reason}", forced_by=call.who.actor
        )
    )
    return Answer(lease_shown(call.site, call.frame(), await find_lease(call, found.id)))
