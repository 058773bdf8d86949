"""Who asks, by the hub's word: tokens, browsers, servers, and how old that word may be."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyterhub.services.auth import HubOAuth

from allotment_hub.clock import ManualClock
from allotment_hub.web.auth import HubAuthenticator, bound_server
from allotment_hub.web.identity import ADMIN_SCOPE
from allotment_hub.web.login import local_path
from allotment_hub.web.pages import page_handlers
from allotment_hub.web.tokens import TokenFileError, read_tokens
from tests.support.governed import BOUND, PREFIX, World, governed, token_of
from tests.support.hubpeer import ACCESS, HubPeer, hub_peer


@contextlib.asynccontextmanager
async def with_hub(folder: Path, clock: ManualClock) -> AsyncIterator[tuple[World, HubPeer]]:
    async with hub_peer() as peer:
        hub_auth = HubOAuth(
            api_url=f"http://127.0.0.1:{peer.port}/hub/api", api_token="service-token-0123456789",
            base_url=PREFIX, access_scopes={ACCESS}, oauth_client_id="service-allotment",
        )  # fmt: skip
        authenticator = HubAuthenticator(hub_auth, clock)
        async with governed(
            folder, clock=clock, authenticator=authenticator, pages=page_handlers(),
            settings={"hub_auth": hub_auth, "hub_prefix": "/hub/"},
        ) as world:  # fmt: skip
            yield world, peer


def token(value: str) -> dict[str, str]:
    return {"Authorization": f"token {value}"}


async def test_the_hub_says_who_and_which_groups(tmp_path: Path) -> None:
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("t-ann", "ann", ("vision",))
        me = (await world.client(None, **token("t-ann")).get("api/v1/me")).json()
        assert (me["user"], [one["name"] for one in me["tenants"]]) == ("ann", ["vision"])
        unknown = await world.client(None, **token("t-nobody")).get("api/v1/me")
        assert (unknown.status_code, unknown.json()["code"]) == (401, "NotAuthenticated")


async def test_reads_may_be_half_a_minute_old_and_changes_ask_afresh(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with with_hub(tmp_path, clock) as (world, peer):
        peer.person("t-ann", "ann", ("vision",))
        client = world.client(None, **token("t-ann"))
        for _ in range(5):
            await client.get("api/v1/me")
        assert len(peer.asked) == 1
        peer.person("t-ann", "ann", ())
        assert (await client.get("api/v1/me")).json()["tenants"] != []
        refused = await client.post("api/v1/requests", json={"gpus": 1, "flavor": "l40s"})
        assert refused.json()["reasons"][0]["code"] == "NoQuota"
        assert len(peer.asked) == 2
        assert (await client.get("api/v1/me")).json()["tenants"] == []
        peer.person("t-ann", "ann", ("vision",))
        clock.advance(30_001)
        assert (await client.get("api/v1/me")).json()["tenants"] != []


async def test_an_admin_is_who_holds_the_scope_and_not_its_server(tmp_path: Path) -> None:
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("t-root", "root", (), ADMIN_SCOPE)
        peer.server("t-root-server", "root", "", (), ADMIN_SCOPE)
        peer.person("t-ann", "ann", ("vision",))
        for value, status in (("t-root", 200), ("t-root-server", 403), ("t-ann", 403)):
            answer = await world.client(None, **token(value)).get("api/v1/policy")
            assert answer.status_code == status, value


async def test_a_servers_token_knows_its_server(tmp_path: Path) -> None:
    """UI-01: its owner's rows, in the documented configuration."""
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.server("t-s", "ann", "big one", ("vision",))
        me = (await world.client(None, **token("t-s")).get("api/v1/me")).json()
        assert (me["user"], me["server"]) == ("ann", "big one")
        peer.users["t-s"]["scopes"].remove(ACCESS)
        peer.users["t-x"] = peer.users["t-s"]
        answer = await world.client(None, **token("t-x")).get("api/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (403, "MissingScope")
        assert ACCESS in answer.json()["detail"]


async def test_a_hub_that_does_not_answer_lets_nobody_in(tmp_path: Path) -> None:
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("t-ann", "ann", ("vision",))
        peer.status = 500
        answer = await world.client(None, **token("t-ann")).get("api/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (503, "HubUnreachable")
        assert "retry-after" in answer.headers


async def test_no_token_is_taken_from_an_address(tmp_path: Path) -> None:
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("t-ann", "ann", ("vision",))
        answer = await world.client(None).get("api/v1/me?token=t-ann")
        assert answer.status_code == 401
        assert peer.asked == []


def _browser(world: World, secret: str) -> httpx.AsyncClient:
    """A browser that has logged in: it has the signed cookie that OAuth leaves."""
    from tornado.web import create_signed_value

    cookie = create_signed_value(b"s" * 32, "service-allotment", secret).decode()
    client = httpx.AsyncClient(base_url=world.url, timeout=BOUND, trust_env=False)
    client.cookies.set("service-allotment", cookie, path=PREFIX)
    world.clients[f"browser {secret}"] = client
    return client


async def test_a_browsers_change_needs_its_protection_token(tmp_path: Path) -> None:
    """UI-04: without 403, with it done; a token in the header needs neither."""
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("c-ann", "ann", ("vision",))
        browser = _browser(world, "c-ann")
        page = await browser.get("")
        assert page.status_code == 200
        xsrf = browser.cookies.get("_xsrf")
        assert xsrf
        body = {"gpus": 1, "flavor": "l40s"}
        bare = await browser.post("api/v1/requests", json=body)
        assert (bare.status_code, bare.json()["code"]) == (403, "XsrfMissing")
        assert world.state.requests == {}
        wrong = await browser.post("api/v1/requests", json=body, headers={"X-XSRFToken": "x" * 40})
        assert wrong.status_code == 403
        good = await browser.post("api/v1/requests", json=body, headers={"X-XSRFToken": xsrf})
        assert good.status_code == 201, good.text
        assert (await browser.get("api/v1/me")).status_code == 200


async def test_a_script_of_another_page_of_our_origin_reads_nothing(tmp_path: Path) -> None:
    """Users' servers share the origin: a read that a script sends needs the token as well."""
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, peer):
        peer.person("c-ann", "ann", ("vision",))
        browser = _browser(world, "c-ann")
        headers = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
        assert (await browser.get("api/v1/me", headers=headers)).status_code == 403
        await browser.get("")
        xsrf = browser.cookies.get("_xsrf") or ""
        with_it = await browser.get("api/v1/me", headers={**headers, "X-XSRFToken": xsrf})
        assert with_it.status_code == 200
        in_query = await browser.get(f"api/v1/me?_xsrf={xsrf}", headers=headers)
        assert in_query.status_code == 200


async def test_a_stranger_is_sent_to_the_hub_to_log_in(tmp_path: Path) -> None:
    async with with_hub(tmp_path, ManualClock(1_000_000)) as (world, _):
        answer = await world.client(None).get("")
        assert answer.status_code == 302
        assert answer.headers["location"].startswith("/hub/api/oauth2/authorize?")


async def test_every_answer_carries_the_headers_of_a_careful_site(tmp_path: Path) -> None:
    async with governed(tmp_path, pages=page_handlers()) as world:
        for path in ("", "api/v1/me", "api/v1/nothing", "health", "login", "console"):
            answer = await world.client("ann").get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy, path
            assert "unsafe" not in policy, path
            assert answer.headers["x-content-type-options"] == "nosniff", path
            assert answer.headers["cache-control"] == "no-store", path
            assert "server" not in answer.headers, path


async def test_alone_a_browser_logs_in_with_a_token_and_xsrf(tmp_path: Path) -> None:
    async with governed(tmp_path, pages=page_handlers()) as world:
        browser = world.client(None, **{"X-Browser": "1"})
        form = await browser.get("login?next=//evil.example/")
        xsrf = re.search(r'name="_xsrf" value="([^"]+)"', form.text)
        assert xsrf
        data = {"token": token_of("ann"), "_xsrf": xsrf[1], "next": "//evil.example/"}
        bare = await browser.post("login", data={**data, "_xsrf": ""})
        assert bare.status_code == 403
        wrong = await browser.post("login", data={**data, "token": "no-such-token-0123456789"})
        assert wrong.status_code == 403
        done = await browser.post("login", data=data)
        assert (done.status_code, done.headers["location"]) == (302, PREFIX)
        assert (await browser.get("api/v1/me")).json()["user"] == "ann"
        body = {"gpus": 1, "flavor": "l40s"}
        assert (await browser.post("api/v1/requests", json=body)).status_code == 403
        good = await browser.post(
            "api/v1/requests", json=body, headers={"X-XSRFToken": browser.cookies["_xsrf"]}
        )
        assert good.status_code == 201


@pytest.mark.parametrize(
    "url",
    ["//evil", "https://evil", "/services/allotment/../x", "/services/allotment//x", "javascript:x",
     "/services/allotment/\\x", "/services/allotmentx", "", None],
)  # fmt: skip
def test_a_next_address_never_leads_away(url: str | None) -> None:
    assert local_path(url, PREFIX) == PREFIX


@pytest.mark.parametrize(
    ("scopes", "server"),
    [
        (["access:servers!server=ann/", "users:activity!user=ann"], ""),
        (["access:servers!server=ann/x", "users:activity!user=ann"], "x"),
        (["access:servers!server=bob/x", "users:activity!user=ann"], None),
        (
            ["access:servers!server=ann/x", "access:servers!user=ann", "users:activity!user=ann"],
            None,
        ),
        (
            [
                "access:servers!server=ann/x",
                "access:servers!server=ann/y",
                "users:activity!user=ann",
            ],
            None,
        ),
        ([], None),
    ],
)
def test_a_token_is_a_servers_when_it_reaches_one_server_and_reports_for_it(
    scopes: list[str], server: str | None
) -> None:
    assert bound_server({"name": "ann", "scopes": scopes}) == server


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "one key 'tokens:'"), ("tokens: {}", "one a line"), ("tokens: [x]", "one a line"),
        ("tokens:\n  short: {name: ann}", "16 characters"),
        ("tokens:\n  sha256:12: {name: ann}", "64 hexadecimal"),
        ("tokens:\n  secret-secret-secret: {nam: ann}", "nam"),
        ("tokens:\n  secret-secret-secret: {name: ann, admin: 1}", "admin"),
        ("tokens:\n  1234567890123456: {name: ann}", "quotes"),
        ("tokens: {a: b", "not a YAML file"),
    ],
)  # fmt: skip
def test_a_token_file_that_is_wrong_says_where_and_never_the_token(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(TokenFileError) as caught:
        read_tokens(path)
    assert words in str(caught.value)
    assert "secret-secret" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_hash_in_the_token_file_stands_for_its_token(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "tokens.yaml"
    digest = hashlib.sha256(b"some-token-of-mine").hexdigest()
    path.write_text(f"tokens:\n  sha256:{digest}: {{name: ann, groups: [vision]}}\n")
    found: dict[str, Any] = dict(read_tokens(path))
    assert found[digest].name == "ann"
