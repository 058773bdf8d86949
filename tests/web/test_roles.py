"""Who may call what: each route of the table, each role, each method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allotment_hub.web.application import by_path, handlers
from allotment_hub.web.routes import TABLE, Route
from tests.support.governed import GATE_TOKEN, World, governed

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ROLES = ("nobody", "wrong token", "user", "server", "owner", "admin", "hub")
REFUSED = {401, 403, 404}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/requests"): {"gpus": 1, "flavor": "l40s"},
    ("POST", "/requests/preview"): {"gpus": 1, "flavor": "l40s"},
    ("PATCH", "/requests/{id}"): {"gpus": 1},
    ("PUT", "/policy"): {"text": "nonsense"},
    ("POST", "/policy/check"): {"text": "nonsense"},
    ("POST", "/policy/rollback"): {"to": 999},
    ("POST", "/approvals"): {"request": "none"},
    ("POST", "/exemptions"): {"user": "ann", "for": "1h", "reason": "a test"},
    ("POST", "/grants/pause"): {"on": False},
    ("POST", "/leases/{id}/force-release"): {"reason": "a test"},
    ("POST", "/gate/start"): {"user": "ann", "server": "", "groups": [], "wants": {"gpus": 1}},
    ("POST", "/gate/withdraw"): {"user": "ann", "server": "none"},
}


def test_the_table_names_a_role_for_every_route() -> None:
    roles = {"anyone", "user", "owner", "admin", "server", "hub"}
    assert TABLE
    for route in TABLE:
        assert route.who in roles, route
        assert route.gate == (route.who == "hub"), route
        assert route.change or route.method == "GET" or route.path in (
            "/requests/preview", "/policy/check", "/policy/dry-run", "/requests/{id}/presence",
        ), f"{route.method} {route.path} changes something without saying so"  # fmt: skip
        assert not (route.method == "GET" and route.change), route


def test_only_these_are_open_to_anyone() -> None:
    found = {f"{r.method} {r.path}" for r in TABLE if r.who == "anyone"}
    assert found == {"GET /health", "GET /ready", "GET /metrics", "GET /openapi.json"}


async def test_nothing_is_served_that_the_table_does_not_know(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        known = {id(methods) for methods in by_path().values()}
        for pattern, kind, *rest in handlers(world.site):
            if kind.__name__ in ("ApiHandler", "StreamHandler"):
                assert id(rest[0]["routes"]) in known or rest[0]["routes"] in by_path().values()
            else:
                assert kind.__name__ in ("LoginHandler", "OAuthCallbackHandler"), pattern


def _headers(role: str) -> tuple[str | None, dict[str, str]]:
    who = {"user": "ann", "server": "ann-server", "owner": "lin", "admin": "root"}.get(role)
    more = {}
    if role == "wrong token":
        more = {"Authorization": "token not-one-that-anybody-has"}
    elif role == "hub":
        more = {"Authorization": f"token {GATE_TOKEN}"}
    return who, more


def allowed(route: Route, role: str) -> bool:
    """What the table says."""
    if route.path == "/metrics":
        return role == "admin"
    if route.who == "anyone":
        return True
    if route.who == "hub":
        return role == "hub"
    if role in ("nobody", "wrong token", "hub"):
        return False
    if role == "server":
        return route.servers and route.who in ("user", "server")
    if route.who == "server":
        return False
    return {"user": 0, "owner": 1, "admin": 2}[route.who] <= {"user": 0, "owner": 1, "admin": 2}[
        role
    ]


async def _try(world: World, route: Route, method: str, role: str) -> tuple[int, dict[str, Any]]:
    who, more = _headers(role)
    path = route.path
    for name in route.parameters:
        path = path.replace("{" + name + "}", "none")
    url = path.lstrip("/") if route.gate else f"api/v1{path}"
    body = BODIES.get((method, route.path), {}) if method != "GET" else None
    client = world.client(who, **more)
    if route.stream and method == "GET":
        async with client.stream(method, url) as answer:
            return answer.status_code, {"code": "NotAuthenticated"}
    answer = await client.request(method, url, json=body)
    content = answer.json() if "json" in answer.headers.get("content-type", "") else {}
    return answer.status_code, content


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_reaches_what_the_table_says_and_nothing_else(
    tmp_path: Path, role: str
) -> None:
    async with governed(tmp_path) as world:
        for path, methods in by_path().items():
            for method in METHODS:
                route = methods.get(method)
                some = route or next(iter(methods.values()))
                status, content = await _try(world, some, method, role)
                where = f"{role} {method} {path}: {status} {content}"
                if route is None:
                    assert status == 405, where
                elif allowed(route, role):
                    # Not refused for who asks; what is asked for here may well not exist.
                    assert status not in (401, 403), where
                    assert status < 500, where
                    if "{" not in path and status == 404:
                        assert path in ("/approvals", "/policy/rollback"), where
                else:
                    assert status in REFUSED, where
                    assert content.get("code") in (
                        "NotAuthenticated", "Forbidden", "NotFound",
                    ), where  # fmt: skip


async def test_what_came_through_the_proxy_is_not_the_hub(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        answer = await world.gate().get("gate/leases", headers={"X-Forwarded-For": "10.0.0.9"})
        assert answer.status_code == 404
        assert (await world.gate().get("gate/leases")).status_code == 200


async def test_a_servers_token_reaches_nobody_else_and_learns_nothing(tmp_path: Path) -> None:
    """UI-02: the same answer whether or not it exists, and nothing changes."""
    async with governed(tmp_path) as world:
        theirs = await world.submit("bob", 1)
        lease = await world.active(theirs["id"])
        before = world.state.leases[lease.id]
        mine = world.client("ann-server")
        for method, path in (
            ("GET", "requests/{}"), ("DELETE", "requests/{}"), ("POST", "requests/{}/claim"),
            ("GET", "leases/{}"), ("POST", "leases/{}/renew"), ("POST", "leases/{}/keep"),
            ("POST", "leases/{}/release"), ("GET", "ended/{}"),
        ):  # fmt: skip
            there = theirs["id"] if "requests" in path else lease.id
            answers = [
                await mine.request(
                    method, f"api/v1/{path.format(id_)}", json={} if method != "GET" else None
                )
                for id_ in (there, "r-0000000000000000")
            ]
            assert [answer.status_code for answer in answers] == [404, 404], path
            assert answers[0].content == answers[1].content, path
        assert (await mine.get("api/v1/leases")).json()["leases"] == []
        assert world.state.leases[lease.id] is before


async def test_an_owner_sees_the_tenant_and_an_admin_all(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        await world.submit("ann", 1)
        await world.submit("bob", 1)

        async def seen(who: str) -> list[str]:
            rows = await world.call(who, "GET", "/requests")
            return sorted(row["user"] for row in rows["requests"])

        assert await seen("ann") == ["ann"]
        assert await seen("lin") == ["ann"]
        assert await seen("root") == ["ann", "bob"]
        assert await seen("eve") == []
        usage = await world.call("bob", "GET", "/usage")
        assert {row["user"] for row in usage["usage"]} == {"bob"}
        audit = await world.call("bob", "GET", "/audit")
        assert {row["user"] for row in audit["audit"]} == {"bob"}


async def test_an_admin_acting_for_somebody_is_named_in_the_audit(tmp_path: Path) -> None:
    """UI-23: actor and subject are told apart, and the subject sees it."""
    async with governed(tmp_path) as world:
        asked = await world.submit("ann", 1)
        lease = await world.active(asked["id"])
        await world.call("root", "POST", f"/leases/{lease.id}/release", {"reason": "night"})
        await world.until(lambda: lease.id not in world.state.leases)
        rows = (await world.call("ann", "GET", f"/audit?subject={lease.id}"))["audit"]
        stopping = next(row for row in rows if row["what"] == "lease.stopping")
        assert (stopping["actor"], stopping["user"]) == ("user:root", "ann")


async def test_a_class_is_approved_by_whom_the_policy_names(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        asked = await world.submit("ann", 1, **{"class": "urgent"})
        assert asked["reasons"][0]["code"] == "ApprovalPending"
        body = {"request": asked["id"], "reason": "a demonstration"}
        for who, status in (("bob", 404), ("ann", 403), ("lin", 403), ("root", 200)):
            answer = await world.client(who).post("api/v1/approvals", json=body)
            assert answer.status_code == status, (who, answer.text)
        assert answer.json()["state"] == "granted"


async def test_a_group_that_is_taken_away_grants_nothing_from_the_next_request_on(
    tmp_path: Path,
) -> None:
    """Authority is checked at the act; an unknown group has no quota."""
    async with governed(tmp_path) as world:
        assert (await world.submit("ann", 1))["state"] == "granted"
        path = tmp_path / "tokens.yaml"
        path.write_text(path.read_text().replace("groups: [vision]", "groups: [gone]"))
        refused = await world.submit("ann", 1)
        assert (refused["state"], refused["reasons"][0]["code"]) == ("rejected", "NoQuota")
