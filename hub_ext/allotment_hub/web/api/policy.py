"""The policy in force, its history, and putting another one in its place."""

from __future__ import annotations

from typing import Any

from ...domain import commands
from ...domain.events import PolicyVersion
from ...domain.policy import Policy
from ...domain.shapes import refused_for
from ...domain.state import State
from ...policyfile import Loaded, PolicyError, diff_policies, dump_policy, load_policy, policy_data
from ..answers import PolicyCheckView, PolicyHistory, PolicyView
from ..problems import Fault, Problem, not_found
from ..routes import Answer, Call, route
from ..schema import PolicyCheck, PolicyText, Rollback, VersionQuery

SOURCE = "policy"


def read_policy(text: str) -> Loaded:
    """Read a policy, or answer with all that is wrong with it."""
    try:
        return load_policy(text, name=SOURCE)
    except PolicyError as error:
        raise Problem(
            400, "BadPolicy", f"The policy has {len(error.errors)} faults; nothing was changed.",
            errors=[Fault(e.path, e.message, e.line) for e in error.problems],
        ) from None  # fmt: skip


def _shown(call: Call, version: PolicyVersion, *, text: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "version": version.number,
        "by": version.by,
        "at": call.site.wall(version.at),
        "note": version.note,
    }
    if text:
        shown["text"] = dump_policy(version.policy)
        shown["policy"] = policy_data(version.policy, full=True)
    return shown


async def _version(call: Call, number: int) -> PolicyVersion:
    if number == call.governor.state.version.number:
        return call.governor.state.version
    found = await call.site.service.query(lambda ledger: ledger.get("PolicyVersion", str(number)))
    if not isinstance(found, PolicyVersion):
        raise not_found("policy version")
    return found


@route("GET", "/policy", who="admin", query=VersionQuery, answer=PolicyView, servers=False)
async def show(call: Call) -> Answer:
    """The policy in force, or an earlier version: as text, and as data with every default."""
    number = call.query.version
    version = call.governor.state.version if number is None else await _version(call, number)
    return Answer(_shown(call, version, text=True), headers={"ETag": f'"{version.number}"'})


@route(
    "PUT", "/policy", who="admin", change=True, body=PolicyText, answer=PolicyView, servers=False
)
async def apply(call: Call) -> Answer:
    """Put a policy in force, whole or not at all. ``If-Match`` names the version it replaces."""
    body: PolicyText = call.body
    loaded = read_policy(body.text)
    return await _apply(call, loaded.policy, body.note)


async def _apply(call: Call, policy: Policy, note: str) -> Answer:
    expected = call.headers.get("If-Match")

    def change(state: State, now: int) -> PolicyVersion:
        # Compared in the same step as it is replaced: two admins cannot both win.
        if expected is not None and expected.strip('"') != str(state.version.number):
            raise commands.Refusal(
                "VersionChanged",
                f"version {state.version.number} is in force by now; look at it and try again",
            )
        return commands.set_policy(state, now, policy, call.who.actor, note)

    version = await call.governor.execute(change)
    return Answer(_shown(call, version, text=True), headers={"ETag": f'"{version.number}"'})


@route(
    "POST", "/policy/check", who="admin", body=PolicyCheck, answer=PolicyCheckView, servers=False
)
async def check(call: Call) -> Answer:
    """Look at a policy without applying it: faults, warnings, and what would differ."""
    body: PolicyCheck = call.body
    try:
        loaded = load_policy(body.text, name=SOURCE)
    except PolicyError as error:
        return Answer(
            {
                "ok": False,
                "errors": [e.as_dict() for e in error.problems],
                "warnings": [],
                "changes": [],
            }
        )
    changes = diff_policies(call.governor.state.policy, loaded.policy)
    return Answer({
        "ok": True,
        "errors": [],
        "warnings": [w.as_dict() for w in loaded.warnings],
        "changes": list(changes),
        "never": _never(call, loaded.policy),
    })  # fmt: skip


def _never(call: Call, policy: Policy) -> list[dict[str, Any]]:
    """Requests that wait now and could never start under the policy."""
    copy = call.governor.state.fork()
    commands.set_policy(copy, call.now, policy, "check")
    found = []
    for row in copy.requests.values():
        if row.state == "queued":
            why = refused_for(copy, row, replaces=row)
            if why is not None:
                found.append({"request": row.id, "tenant": row.tenant, "code": why.code})
    return found


@route(
    "POST",
    "/policy/rollback",
    who="admin",
    change=True,
    body=Rollback,
    answer=PolicyView,
    servers=False,
)
async def rollback(call: Call) -> Answer:
    """Put an earlier version in force again, as a new version."""
    body: Rollback = call.body
    version = await _version(call, body.to)
    return await _apply(call, version.policy, body.note or f"rollback to version {body.to}")


@route("GET", "/policy/history", who="admin", answer=PolicyHistory, servers=False)
async def history(call: Call) -> Answer:
    """All versions, newest first, with who, when and what changed against the one before."""
    rows = await call.site.service.query(
        lambda ledger: ledger.query_records("PolicyVersion", limit=200)
    )
    versions = [row for row in rows if isinstance(row, PolicyVersion)]
    shown = []
    for place, version in enumerate(versions):
        entry = _shown(call, version, text=False)
        before = versions[place + 1] if place + 1 < len(versions) else None
        if before is not None:
            changes = diff_policies(before.policy, version.policy)
            entry["changes"] = list(changes[:200])
        shown.append(entry)
    return Answer({"versions": shown})
