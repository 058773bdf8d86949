"""What the pages' routes answer, before any script runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import httpx
import pytest

from allotment_hub.web.pages import assets_hash, page_handlers
from tests.support.alone import NASTY, PREFIX, Alone

from .messages import PAGES


@pytest.fixture(scope="module")
def governor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    alone = Alone(tmp_path_factory.mktemp("governor")).start()
    yield alone
    alone.stop()


@contextmanager
def browser(governor: Alone, who: str | None = None) -> Iterator[httpx.Client]:
    """A client with the cookies of somebody who has logged in, or of nobody."""
    with httpx.Client(base_url=governor.url, trust_env=False) as client:
        if who is not None:
            form = client.get("login").text
            xsrf = re.search(r'name="_xsrf" value="([^"]*)"', form)
            assert xsrf is not None
            answer = client.post("login", data={"token": governor.token(who), "_xsrf": xsrf[1]})
            assert answer.status_code == 302, answer.text
        yield client


def test_a_stranger_is_sent_to_log_in_and_back(governor: Alone) -> None:
    with browser(governor) as client:
        for path in ("", "new", "spawn?server=x", "waiting/r-1", "ended/r-1.1", "console"):
            answer = client.get(path)
            assert answer.status_code == 302
            where = httpx.URL(answer.headers["location"])
            assert where.path == f"{PREFIX}login"
            assert where.params["next"] == f"{PREFIX}{path}"


def test_a_wrong_token_is_said_on_the_page(governor: Alone) -> None:
    with browser(governor) as client:
        form = client.get("login?next=//evil.example/").text
        assert 'name="next" value="/services/allotment/"' in form
        xsrf = re.search(r'name="_xsrf" value="([^"]*)"', form)
        assert xsrf is not None
        answer = client.post("login", data={"token": "nobody-has-this-one", "_xsrf": xsrf[1]})
        assert answer.status_code == 403
        assert "not known here" in answer.text
        assert client.post("login", data={"token": governor.token("ann")}).status_code == 403


def test_every_page_has_the_strict_policy_and_is_never_cached(governor: Alone) -> None:
    with browser(governor, "root") as client:
        for path in ("", "new", "waiting/r-1", "ended/r-1.1", "console"):
            answer = client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
            assert not re.search(r"\s(on\w+|style)=", answer.text)


def test_the_console_is_for_admins(governor: Alone) -> None:
    with browser(governor, "ann") as client:
        answer = client.get("console")
        assert answer.status_code == 403
        assert "This page is for administrators." in answer.text


def test_names_and_parameters_are_escaped(governor: Alone) -> None:
    with browser(governor, NASTY) as client:
        attack = "\"><script>alert(1)</script>'"
        text = client.get("new", params={"server": attack, "next": attack}).text
        assert "<script>alert" not in text
        assert "<img" not in text.replace('<img src="/services', "")
        found = re.search(r'data-user="([^"]*)"', text)
        assert found is not None
        assert unescape(found[1]) == NASTY


@pytest.mark.parametrize("wrong", ["a b", "%0d%0aSet-Cookie:x", "%3Cscript%3E", "x" * 300])
def test_an_id_that_cannot_be_is_not_found(governor: Alone, wrong: str) -> None:
    with browser(governor, "ann") as client:
        answer = client.get(f"waiting/{wrong}")
        assert answer.status_code == 404
        assert "<script>" not in answer.text


def test_pages_change_nothing(governor: Alone) -> None:
    with browser(governor, "root") as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.request(method, "new").status_code in (403, 405)


def test_assets_are_named_by_their_content_and_kept_for_ever(governor: Alone) -> None:
    with browser(governor) as client:
        current = f"assets/{assets_hash()}"
        for path, kind in (
            ("js/waiting.js", "text/javascript"),
            ("css/allotment.css", "text/css"),
            ("img/allotment.svg", "image/svg+xml"),
            ("locale/zh.json", "application/json"),
        ):
            answer = client.get(f"{current}/{path}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            old = client.get(f"assets/000000000000/{path}")
            assert old.headers["cache-control"] == "no-store"
        for path in (
            "js/../../handlers.py",
            "js/%2e%2e/%2e%2e/handlers.py",
            "js/none.js",
            "x/y.js",
        ):
            assert client.get(f"{current}/{path}").status_code == 404


@pytest.mark.parametrize(
    ("accept", "cookie", "lang"),
    [
        ("zh-CN,zh;q=0.9", None, "zh-Hans"),
        ("de", None, "en"),
        ("en", "zh", "zh-Hans"),
        ("zh", "en", "en"),
        ("zh", "'><script>", "zh-Hans"),
    ],
)
def test_the_language_is_the_chosen_one_else_the_browsers(
    governor: Alone, accept: str, cookie: str | None, lang: str
) -> None:
    with browser(governor, "ann") as client:
        if cookie is not None:
            client.cookies.set("allotment-lang", cookie, domain="127.0.0.1", path=PREFIX)
        text = client.get("", headers={"Accept-Language": accept}).text
        assert f'<html lang="{lang}">' in text


def test_every_shell_has_its_template_and_script() -> None:
    shells = [options["shell"] for *_, options in page_handlers() if "shell" in options]
    for shell in shells:
        assert (PAGES / "templates" / f"{shell.name}.html").is_file()
        assert (PAGES / "static" / "js" / f"{shell.name}.js").is_file()
