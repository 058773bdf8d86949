"""``allotment-hub policy``, run as a command; the governor's part by a server that speaks REST."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.cli import main
from allotment_hub.domain.policy import Policy
from allotment_hub.policyfile import dump_policy, load_policy, to_yaml
from allotment_hub.simulate.dryrun import Past, dry_run

from .builders import GOOD, spoiled


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLOTMENT_URL", raising=False)
    monkeypatch.delenv("ALLOTMENT_TOKEN", raising=False)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(to_yaml(GOOD))
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nreclaim: []\ntenants:\n  a: {groups: x}\n")
    return file


def test_check_of_a_good_file(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", str(good)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{good}: valid: 2 tenants, 2 pools, 2 flavors, 2 classes\n"
    assert err == ""


def test_check_of_a_bad_file_has_one_line_for_each_fault(
    bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", str(bad)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{bad}:2: reclaim: has no rule; write one without 'when', or leave it out",
        f"{bad}:4: tenants.a.groups: is 'x'; write a list, each entry text, such as [x]",
    ]


def test_check_as_json(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "--json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "errors": [], "warnings": []}
    assert main(["policy", "check", "--json", str(bad)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [error["path"] for error in answer["errors"]] == ["reclaim", "tenants.a.groups"]
    assert [error["line"] for error in answer["errors"]] == [2, 4]


def test_check_tells_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nreclaim:\n  - idle_after: 75s\n")
    assert main(["policy", "check", str(file)]) == 0
    assert f"{file}:3: warning: reclaim[0].idle_after: is 75s" in capsys.readouterr().err


def test_check_against_an_inventory(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("- {node: n, devices: [{model: A100 80GB, memory: 80GiB, count: 5}]}\n")
    assert main(["policy", "check", str(good), "--inventory", str(inventory)]) == 1
    assert "add up to 6 (vision 4, nlp 2), but the inventory has 5" in capsys.readouterr().err
    inventory.write_text("- {node: n}\n- {nod: n}\n")
    assert main(["policy", "check", str(good), "--inventory", str(inventory)]) == 2
    assert f"{inventory}:2: [1].nod: is not a known key" in capsys.readouterr().err


def test_check_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"version: 2")))
    assert main(["policy", "check", "-"]) == 1
    assert "<stdin>:1: version: is 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["policy"], "required: COMMAND"),
        (["policy", "chek", "x"], "invalid choice: 'chek'"),
        (["policy", "check"], "required: FILE"),
        (["policy", "check", "missing.yaml"], "missing.yaml: cannot be read: No such file"),
        (["policy", "check", "/"], "/: cannot be read: Is a directory"),
        (["policy", "show"], "no address of a governor; set ALLOTMENT_URL or give --url"),
        (["policy", "history", "--url", "ftp://x"], "'ftp://x' is not the address of a service"),
        (["policy", "history", "--url", "http://x"], "no usable token; set ALLOTMENT_TOKEN"),
        (["policy", "rollback", "0", "--url", "http://x", "--token", "t"], "0 is not a version"),
        (["policy", "rollback", "x"], "invalid int value: 'x'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


def test_show_has_every_value(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", str(good)]) == 0
    out = capsys.readouterr().out
    assert load_policy(out).policy == load_policy(good).policy
    assert "prepare_within: 30m" in out
    assert main(["policy", "show", "--brief", str(good)]) == 0
    assert "prepare_within" not in capsys.readouterr().out


def test_show_with_origins(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "--origins", "--json", str(good)]) == 0
    settings = {one["path"]: one for one in json.loads(capsys.readouterr().out)}
    assert settings["borrowing.term"]["origin"] == "default"
    assert settings["flavors.a100.memory"]["origin"] == f"{good}:3"
    assert main(["policy", "show", "--origins", str(good)]) == 0
    assert "borrowing.term" in capsys.readouterr().out


def test_diff_of_two_files(
    good: Path, bad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(to_yaml(spoiled("tenants", "vision", "quotas", 0, "ceiling", value=8)))
    assert main(["policy", "diff", str(good), str(other)]) == 0
    assert capsys.readouterr().out == "tenants.vision.quotas[0].ceiling: 6 → 8\n"
    assert main(["policy", "diff", "--json", str(good), str(good)]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["policy", "diff", str(good), str(bad)]) == 2
    assert f"{bad}:2: reclaim" in capsys.readouterr().err


@dataclass
class Peer:
    """A server that answers with what it was told to, and keeps what it was asked."""

    url: str
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any, str]] = field(default_factory=list)


@pytest.fixture
def peer() -> Iterator[Peer]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            authorization = self.headers["Authorization"]
            found.asked.append((self.command, self.path, body, authorization))
            status, content = found.answers.get((self.command, self.path), (404, None))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Peer(f"http://127.0.0.1:{server.server_port}/services/allotment")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


API = "/services/allotment/api/v1"


def at(peer: Peer, *arguments: str) -> int:
    return main(["policy", *arguments, "--url", peer.url, "--token", "secret-token"])


def test_apply_sends_the_text_of_the_file(
    peer: Peer, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer.answers["PUT", f"{API}/policy"] = 200, {"version": 7}
    changes = [{"path": "currency", "before": "USD", "after": "EUR"}]
    never = [{"request": "r1", "code": "NoQuota"}]
    peer.answers["POST", f"{API}/policy/check"] = 200, {"changes": changes, "never": never}
    assert at(peer, "apply", str(good), "--note", "more for vision") == 0
    out, err = capsys.readouterr()
    assert out == "currency: USD → EUR\napplied; version 7 is in force\n"
    assert err == "request r1 can never start under it: NoQuota\n"
    sent = {"text": good.read_text(), "note": "more for vision"}
    assert peer.asked[-1] == ("PUT", f"{API}/policy", sent, "token secret-token")


def test_apply_of_a_bad_file_asks_nobody(
    peer: Peer, bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert at(peer, "apply", str(bad)) == 2
    assert f"{bad}:2: reclaim: has no rule" in capsys.readouterr().err
    assert peer.asked == []


def test_a_long_file_is_sent_without_its_comments(peer: Peer, good: Path) -> None:
    good.write_text(good.read_text() + "# and so on\n" * 6000)
    peer.answers["PUT", f"{API}/policy"] = 200, {"version": 7}
    peer.answers["POST", f"{API}/policy/check"] = 200, {}
    assert at(peer, "apply", str(good)) == 0
    text = peer.asked[0][2]["text"]
    assert "#" not in text
    assert load_policy(text).policy == load_policy(good).policy


@pytest.mark.parametrize(("status", "code"), [(422, 2), (403, 2), (409, 1), (503, 1), (500, 1)])
def test_a_refusal_is_told_line_by_line(
    status: int, code: int, peer: Peer, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = [{"path": "a.b", "line": 3, "message": "is\x1b[31m wrong"}]
    problem = {"code": "Bad", "title": "Bad input", "detail": "not applied", "errors": errors}
    peer.answers["POST", f"{API}/policy/check"] = 200, {}
    peer.answers["PUT", f"{API}/policy"] = status, problem
    assert at(peer, "apply", str(good)) == code
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(f"answers with HTTP {status}: not applied")
    assert second == "line 3: a.b: is?[31m wrong"


def test_history_rollback_and_dry_run(
    peer: Peer, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = {"version": 1, "at": "2026-11-30T10:00:00Z", "by": "root", "note": ""}
    peer.answers["GET", f"{API}/policy/history"] = 200, {"versions": [version]}
    assert at(peer, "history") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", version["at"], "root", "-"]

    peer.answers["POST", f"{API}/policy/rollback"] = 200, {"version": 3}
    assert at(peer, "rollback", "1", "--note", "too much") == 0
    assert capsys.readouterr().out == "rolled back to version 1; version 3 is in force\n"
    assert peer.asked[-1][2] == {"to": 1, "note": "too much"}

    report = dry_run(Past(requests=(), leases=()), (), Policy(), Policy(), 0, 3_600_000)
    peer.answers["POST", f"{API}/policy/dry-run"] = 200, report
    assert at(peer, "dry-run", str(good), "--since", "7d") == 0
    assert capsys.readouterr().out.startswith("0 requests of 1.0 hours, replayed under both")
    assert peer.asked[-1][2] == {"text": good.read_text(), "since": "7d"}


def test_show_and_diff_of_the_governors_policy(
    peer: Peer, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = dump_policy(load_policy(good).policy)
    peer.answers["GET", f"{API}/policy"] = 200, {"version": 2, "text": text}
    assert at(peer, "show", "--brief") == 0
    assert load_policy(capsys.readouterr().out).policy == load_policy(good).policy
    other = tmp_path / "other.yaml"
    other.write_text(text.replace("ceiling: 6", "ceiling: 7"))
    assert at(peer, "diff", str(other)) == 0
    assert capsys.readouterr().out == "tenants.vision.quotas[0].ceiling: 6 → 7\n"


def test_an_answer_that_is_no_policy_or_no_json(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    peer.answers["GET", f"{API}/policy"] = 200, {"version": 2}
    assert at(peer, "show") == 1
    assert "answers with no policy" in capsys.readouterr().err
    peer.answers["GET", f"{API}/policy"] = 200, {"text": "version: 2"}
    assert at(peer, "show") == 1
    assert "not a policy this release reads" in capsys.readouterr().err
    peer.answers["GET", f"{API}/policy"] = 200, b"<html>"
    assert at(peer, "show") == 1
    assert "something else than JSON" in capsys.readouterr().err
    peer.answers["GET", f"{API}/policy"] = 302, b"<html>"
    assert at(peer, "show") == 1
    assert "a login page: the token is not accepted" in capsys.readouterr().err


def test_no_governor_is_code_1_and_the_token_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["policy", "history", "--url", "http://127.0.0.1:9", "--token", "secret-token"]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "no answer from http://127.0.0.1:9/api/v1" in err
    assert "secret-token" not in err


def test_the_environment_says_where_and_who(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALLOTMENT_URL", peer.url + API.removeprefix("/services/allotment") + "/")
    monkeypatch.setenv("ALLOTMENT_TOKEN", "from-environment")
    peer.answers["GET", f"{API}/policy/history"] = 200, []
    assert main(["policy", "history", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert peer.asked[0][3] == "token from-environment"


def test_a_terminal_that_cannot_show_a_character_gets_it_spelt_out(good: Path) -> None:
    other = good.with_name("other.yaml")
    other.write_text(to_yaml(spoiled("currency", value="€")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "allotment_hub.cli", "policy", "diff", str(good), str(other)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.strip() == b"currency: USD \\u2192 \\u20ac"


def test_a_pipe_that_closes_early_is_no_traceback(good: Path) -> None:
    shown = subprocess.Popen(
        [sys.executable, "-m", "allotment_hub.cli", "policy", "show", str(good)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shown.stdout is not None
    assert shown.stderr is not None
    shown.stdout.close()
    assert shown.stderr.read() == b""
    shown.stderr.close()
    assert shown.wait() in (0, 1)
