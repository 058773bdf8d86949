"""``allotment-hub serve``: wrong usage ends at once with a clear line; where settings come from."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from allotment_hub.app import GovernorApp, StartError
from allotment_hub.cli.serve import register, settings_of
from tests.support.governed import INVENTORY, POLICY, write_tokens

ALONE = ("--standalone", "--tokens", "t.yaml", "--inventory", "i.yaml")


def serve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "allotment_hub.cli", "serve", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "JUPYTERHUB_API_TOKEN is not set"),
        (("--standalone",), "--tokens FILE"),
        (("--standalone", "--tokens", "none.yaml"), "none.yaml: cannot be read"),
        ((*ALONE, "--policy", "none.yaml"), "none.yaml: cannot be read"),
        ((*ALONE, "--policy", "bad.yaml"), "bad.yaml:1: "),
        ((*ALONE, "--inventory", "none.yaml"), "none.yaml"),
        ((*ALONE, "--guest", "nobody"), "'nobody' has no token"),
        ((*ALONE, "--start-after", "soon"), "start_after: 'soon'"),
        ((*ALONE, "--prefix", "x"), "begin with a slash"),
        (("--config", "none.py"), "none.py: there is no such file"),
        (("--config", "broken.py"), "broken.py: name 'nothing' is not defined"),
        (("--port", "many"), "invalid int value"),
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_two_and_a_clear_line(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    write_tokens(tmp_path / "t.yaml")
    (tmp_path / "bad.yaml").write_text("version: 2\n")
    (tmp_path / "i.yaml").write_text(INVENTORY)
    (tmp_path / "broken.py").write_text("nothing\n")
    done = serve(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    return parser.parse_args(["serve", *arguments])


def test_what_is_typed_wins_over_the_file_and_the_rest_keeps_its_default(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("c.GovernorApp.port = 1\nc.GovernorApp.ip = '127.0.0.9'\n")
    app = GovernorApp()
    app.load_config_file(str(tmp_path / "config.py"))
    for name, value in settings_of(_parsed("--port", "7777", "--db", "x.sqlite")).items():
        setattr(app, name, value)
    assert app.address() == ("127.0.0.9", 7777)
    assert app.database == "sqlite:///x.sqlite"
    assert app.parallel_starts == 32


def test_a_hubs_service_listens_where_the_hub_expects_it() -> None:
    app = GovernorApp()
    app.environ = {
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:10101",
        "JUPYTERHUB_SERVICE_PREFIX": "/h/services/a/",
    }  # fmt: skip
    assert app.address() == ("127.0.0.1", 10101)
    assert app.prefix == "/h/services/a/"
    app.environ = {}
    with pytest.raises(StartError, match="--port"):
        app.address()


def test_the_cookie_secret_is_kept_and_for_us_alone(tmp_path: Path) -> None:
    app = GovernorApp(database=f"sqlite:///{tmp_path}/ledger.sqlite")
    first = app.cookie_secret()
    path = tmp_path / "allotment_cookie_secret"
    assert len(first) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert GovernorApp(database=f"sqlite:///{tmp_path}/ledger.sqlite").cookie_secret() == first


def test_a_policy_of_a_hubs_service_may_be_wrong_without_ending_it(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 2\n")
    app = GovernorApp(policy=str(tmp_path / "policy.yaml"))
    with pytest.raises(ValueError, match=r"policy.yaml:1"):
        app.read_policy()
    (tmp_path / "policy.yaml").write_text(POLICY)
    first = app.read_policy()
    assert first is not None
    assert first.source == "policy.yaml"
    assert GovernorApp().read_policy() is None
