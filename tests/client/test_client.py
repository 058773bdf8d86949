"""The user's client and command against a real governor, and against peers that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from allotment import Client, NotConfigured, Refused, Unreachable
from allotment.cli import main
from allotment.client import governor_url
from allotment.words import plain
from tests.support.alone import Alone

A100 = "a100-80g"


@pytest.fixture(scope="module")
def governor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    alone = Alone(tmp_path_factory.mktemp("governor"), start_after="0s").start()
    yield alone
    alone.stop()


@pytest.fixture(autouse=True)
def _empty(governor: Alone) -> Iterator[None]:
    """Each test begins with nothing held and nobody waiting."""
    yield
    for row in governor.call("root", "GET", "requests?state=queued,parked")["requests"]:
        governor.call("root", "DELETE", f"requests/{row['id']}")
    held = [
        row["id"]
        for row in governor.call("root", "GET", "leases")["leases"]
        if row["state"] != "released"
    ]
    for lease in held:
        governor.call("root", "POST", f"leases/{lease}/release", {})
    for lease in held:
        governor.wait_for("root", lease, "released")


def as_user(governor: Alone, name: str) -> Client:
    return Client(governor.url, governor.token(name))


class Shell:
    """Runs the command as somebody."""

    def __init__(
        self, governor: Alone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.governor, self.monkeypatch, self.capsys = governor, monkeypatch, capsys
        monkeypatch.setenv("ALLOTMENT_URL", governor.url)
        monkeypatch.setenv("TZ", "UTC")

    def __call__(self, who: str, *words: str) -> tuple[int, str, str]:
        self.monkeypatch.setenv("ALLOTMENT_TOKEN", self.governor.token(who))
        code = main(words)
        told = self.capsys.readouterr()
        return code, told.out, told.err


@pytest.fixture
def shell(
    governor: Alone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(governor, monkeypatch, capsys)


# --- the client


def test_a_session_is_asked_for_followed_and_given_back(governor: Alone) -> None:
    client = as_user(governor, "ann")
    asked = client.submit({"gpus": 2, "flavor": A100})
    assert asked["state"] == "granted"
    lease = governor.wait_for("ann", asked["id"], "active")
    assert [row["id"] for row in client.leases()] == [lease["id"]]
    assert client.renew(lease["id"])["renewed"] == 1
    assert client.release(lease["id"])["state"] in ("stopping", "released")
    assert client.release(lease["id"])["id"] == lease["id"], "twice is once"


def test_one_key_is_one_request(governor: Alone) -> None:
    client = as_user(governor, "ann")
    first = client.submit({"gpus": 1}, key="k1")
    assert client.submit({"gpus": 1}, key="k1")["id"] == first["id"]
    assert len(client.requests()) == 1


def test_waiting_is_followed_to_the_grant(governor: Alone) -> None:
    holder = governor.ask("bob", gpus=4, flavor=A100, server="big")
    governor.wait_for("bob", holder["id"], "active")
    client = as_user(governor, "ann")
    asked = client.submit({"gpus": 2, "flavor": A100})
    assert asked["state"] == "queued"
    seen: list[str] = []
    for row in client.wait(asked["id"], retry_seconds=0.1):
        seen.append(row["state"])
        if len(seen) == 1:
            governor.call("bob", "POST", f"leases/{holder['id']}/release", {})
    assert seen[0] == "queued"
    assert seen[-1] == "granted"


def test_a_request_is_amended_previewed_and_cancelled(governor: Alone) -> None:
    governor.wait_for("bob", governor.ask("bob", gpus=4, flavor=A100)["id"], "active")
    client = as_user(governor, "ann")
    assert client.preview({"gpus": 2, "flavor": A100})["decision"] == "queued"
    asked = client.submit({"gpus": 2, "flavor": A100})
    assert client.amend(asked["id"], {"gpus": 1})["asked"]["gpus"] == 1
    assert client.request(asked["id"])["position"] == 1
    assert client.cancel(asked["id"])["state"] == "cancelled"


def test_a_refusal_carries_code_and_path(governor: Alone) -> None:
    with pytest.raises(Refused) as caught:
        as_user(governor, "ann").submit({"gpus": True})
    assert caught.value.status == 400
    assert caught.value.errors[0]["path"] == "gpus"
    with pytest.raises(Refused) as caught:
        as_user(governor, "ann").request("r-0000000000000000")
    assert caught.value.status == 404
    with pytest.raises(Refused) as caught:
        Client(governor.url, "not-a-token-of-anybody").me()
    assert caught.value.status == 401


def test_ids_cannot_leave_their_place_in_the_path(governor: Alone) -> None:
    client = as_user(governor, "ann")
    for wrong in ("../policy", "a/b", "?x", "#", "%2e%2e/policy"):
        with pytest.raises(Refused) as caught:
            client.request(wrong)
        assert caught.value.status == 404
    for wrong in ("", ".", ".."):
        with pytest.raises(ValueError, match="is not an id"):
            client.request(wrong)


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({"ALLOTMENT_URL": "http://h:1/services/allotment"}, "http://h:1/services/allotment/"),
        ({"ALLOTMENT_URL": "http://h/services/allotment/api/v1/"}, "http://h/services/allotment/"),
        (
            {"JUPYTERHUB_PUBLIC_HUB_URL": "https://h/base/hub/"},
            "https://h/base/services/allotment/",
        ),
    ],
)
def test_where_the_governor_is(environ: dict[str, str], url: str) -> None:
    assert governor_url(environ) == url


@pytest.mark.parametrize("url", ["", "ftp://h/", "file:///etc/passwd", "localhost:80", "//h/"])
def test_addresses_that_cannot_be_are_refused_with_what_would_be_right(url: str) -> None:
    with pytest.raises(NotConfigured, match="ALLOTMENT_URL"):
        governor_url({"ALLOTMENT_URL": url})


def test_a_token_is_needed_and_never_shown() -> None:
    with pytest.raises(NotConfigured, match="ALLOTMENT_TOKEN"):
        Client("http://h/", environ={})
    client = Client("http://h/", "s3cret-token")
    assert "s3cret" not in repr(client)


# --- peers that misbehave


class Peer(BaseHTTPRequestHandler):
    """Answers every request as it is told to."""

    answer: tuple[int, str, bytes] = (200, "application/json", b"{}")
    headers_seen: list[str]

    def do_GET(self) -> None:
        status, kind, body = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:9/hub/login?token-should-not-follow")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # the name that http.server looks for

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((200, "text/html", b"<html>"), Unreachable, "is the address right"),
        ((200, "application/json", b"[1"), Unreachable, "something else than JSON"),
        ((200, "application/json", b"[]"), Unreachable, "an object was expected"),
        ((302, "text/html", b""), Refused, "login page"),
        ((502, "text/html", b"<html>nginx"), Unreachable, "not up"),
        ((403, "text/html", b"<html>"), Refused, "access:services!service=allotment"),
        ((404, "text/html", b""), Refused, "/api/v1/me"),
        ((500, "application/json", b'{"detail": "a fault"}'), Refused, "a fault"),
        (
            (
                400,
                "application/json",
                b'{"detail": "x", "errors": [{"path": "a", "message": "b"}, 7]}',
            ),
            Refused,
            "a: b",
        ),
    ],
)  # fmt: skip
def test_every_strange_answer_is_one_clear_error(
    peer: ThreadingHTTPServer, answer: tuple[int, str, bytes], error: type[Exception], text: str
) -> None:
    Peer.answer = answer
    client = Client(f"http://127.0.0.1:{peer.server_port}/services/allotment/", "t0ken-of-somebody")
    with pytest.raises(error, match=text):
        client.me()


def test_nobody_there_is_said_in_a_sentence() -> None:
    with pytest.raises(Unreachable, match=r"does not answer at http://127\.0\.0\.1:9/"):
        Client("http://127.0.0.1:9/", "t0ken-of-somebody").me()


# --- the command


def test_status_shows_sessions_waiting_and_teams(shell: Shell, governor: Alone) -> None:
    assert shell("ann", "status")[1].startswith("You hold no GPUs.")
    code, out, _ = shell("ann", "request", "--gpus", "3", "--flavor", A100, "--for", "2h")
    assert code == 0
    assert "3 × a100-80g" in out
    governor.wait_for("ann", governor.call("ann", "GET", "me")["requests"][0]["id"], "active")
    _, out, _ = shell("ann", "status")
    assert "borrowed (1 of nlp)" in out
    assert "n1: 0, 1, 2" in out
    assert "running" in out
    assert "vision" in out
    code, out, _ = shell("bob", "request", "--gpus", "2", "--flavor", A100, "--server", "second")
    assert code == 0
    assert "Place       1" in out
    assert "asked back" in out
    assert "UTC" not in out, "times are local"
    code, out, _ = shell("bob", "queue")
    assert "PLACE" in out
    assert "asked back" in out
    code, out, _ = shell("bob", "cancel")
    assert (code, out) == (0, "Left the line: 2 × a100-80g.\n")


def test_a_held_grant_is_told_with_what_to_do(tmp_path: Path, shell: Shell) -> None:
    alone = Alone(tmp_path, start_after="0s").start()
    try:
        held = alone.ask("bob", gpus=4, flavor=A100)
        alone.wait_for("bob", held["id"], "active")
        asked = alone.ask("ann", gpus=2, flavor=A100)
        # Nobody is known to look after a restart, and the stand-in servers are gone with it.
        alone.kill()
        alone.start()
        alone.wait_for("ann", asked["id"], "granted")
        shell.monkeypatch.setenv("ALLOTMENT_URL", alone.url)
        _, out, _ = shell("ann", "status")
        assert out.startswith("! It is your turn until ")
        assert f"allotment claim {asked['id']}" in out
        assert shell("ann", "claim")[0] == 0
        alone.wait_for("ann", asked["id"], "active")
    finally:
        alone.stop()


def test_everything_speaks_json(shell: Shell, governor: Alone) -> None:
    for words in (
        ["status"],
        ["usage"],
        ["capacity"],
        ["queue"],
        ["request", "--gpus", "1", "--preview"],
    ):
        code, out, _ = shell("ann", *words, "--json")
        assert code == 0
        json.loads(out)
    code, out, _ = shell("ann", "request", "--gpus", "1", "--json")
    lease = json.loads(out)["lease"]
    governor.wait_for("ann", lease, "active")
    for words in (["renew"], ["release", lease]):
        code, out, _ = shell("ann", *words, "--json")
        assert code == 0
        assert json.loads(out)["id"] == lease


def test_usage_in_words(shell: Shell) -> None:
    code, out, _ = shell("ann", "usage")
    assert code == 0
    assert "GPU" in out


def test_capacity_in_words(shell: Shell) -> None:
    code, out, _ = shell("ann", "capacity")
    assert code == 0
    head, first, *_ = out.splitlines()
    assert head.split()[:4] == ["POOL", "FLAVOR", "IN", "SERVICE"]
    assert first.split()[:5] == ["interactive", "a100-80g", "4", "0", "4"]


def test_preview_tells_what_would_happen(shell: Shell, governor: Alone) -> None:
    code, out, _ = shell("ann", "request", "--gpus", "2", "--flavor", A100, "--preview")
    assert (code, out.splitlines()[0]) == (0, "2 × a100-80g would start now.")
    governor.wait_for("bob", governor.ask("bob", gpus=4, flavor=A100)["id"], "active")
    code, out, _ = shell("ann", "request", "--gpus", "2", "--flavor", A100, "--preview")
    assert code == 0
    assert "would wait in line" in out
    assert "Sooner" in out
    code, out, _ = shell("ann", "request", "--gpus", "9", "--flavor", A100, "--preview")
    assert code == 1
    assert "would be refused" in out


def test_what_can_never_start_is_refused_with_the_reason(shell: Shell) -> None:
    code, out, _ = shell("ann", "request", "--gpus", "9", "--flavor", A100)
    assert code == 1
    assert "refused" in out
    assert "vision may use at most 4 GPUs" in out


def test_another_team_s_name_is_refused(shell: Shell) -> None:
    code, out, _ = shell("ann", "request", "--gpus", "1", "--tenant", "nlp")
    assert code == 1
    assert "You belong to no team that has a quota for this." in out


def test_waiting_on_the_line_ends_with_the_grant(shell: Shell, governor: Alone) -> None:
    held = governor.ask("bob", gpus=4, flavor=A100)
    governor.wait_for("bob", held["id"], "active")
    timer = threading.Timer(
        0.5, lambda: governor.call("bob", "POST", f"leases/{held['id']}/release", {})
    )
    timer.start()
    code, out, _ = shell("ann", "request", "--gpus", "2", "--flavor", A100, "--wait")
    timer.join()
    assert code == 0
    assert "place 1" in out
    assert "your turn" in out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "COMMAND"),
        (["dance"], 2, "invalid choice"),
        (["request"], 2, "--gpus"),
        (["request", "--gpus", "two"], 2, "write a number above 0"),
        (["request", "--gpus", "nan"], 2, "write a number above 0"),
        (["request", "--gpus", "1e30"], 2, "write a number above 0"),
        (["request", "--gpus", "0.0001"], 2, "gpus"),
        (["request", "--gpus", "1", "--for", "soon"], 2, "duration"),
        (["cancel"], 1, "you have no request"),
        (["cancel", "r-nothing"], 1, "no request of that name"),
        (["renew"], 1, "you have no session"),
        (["status", "--url", "nowhere"], 2, "ALLOTMENT_URL"),
        (["status", "--url", "http://127.0.0.1:9/"], 1, "does not answer"),
    ],
)
def test_every_wrong_use_is_one_line_on_stderr(
    shell: Shell, words: list[str], code: int, text: str
) -> None:
    found, out, err = shell("ann", *words)
    assert (found, out) == (code, "")
    assert len(err.splitlines()) == 1
    assert text in err


def test_one_of_several_has_to_be_named(shell: Shell, governor: Alone) -> None:
    for server in ("a", "b"):
        asked = governor.ask("ann", gpus=1, flavor=A100, server=server)
        governor.wait_for("ann", asked["id"], "active")
    code, _, err = shell("ann", "release")
    assert code == 2
    assert "which session?" in err
    code, _, err = shell("ann", "release", "r-")
    assert code == 2
    assert "could be" in err
    assert shell("ann", "release", asked["id"])[0] == 0


def test_others_sessions_cannot_be_touched(shell: Shell, governor: Alone) -> None:
    asked = governor.ask("bob", gpus=1)
    lease = governor.wait_for("bob", asked["id"], "active")
    for words in (["cancel", asked["id"]], ["release", lease["id"]], ["renew", lease["id"]]):
        code, _, err = shell("ann", *words)
        assert code == 1
        assert "that you may see" in err


def test_names_from_outside_do_not_steer_the_terminal() -> None:
    assert plain("a\x1b[31mred\n\u202eb") == "a�[31mred��b"


def test_the_user_side_needs_nothing_of_the_hub_side() -> None:
    for source in (Path(__file__).parents[2] / "server_ext" / "allotment").glob("*.py"):
        assert "allotment_hub" not in source.read_text(encoding="utf-8")
