"""``allotment_hub.configure``: what it sets, what it keeps, and what it says about mistakes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets.config import Config

import allotment_hub
from allotment_hub.gateapi import TOKEN_ENV
from allotment_hub.wiring import ACCESS, ADMIN_SCOPE, TEMPLATES, ConfigureError
from tests.hub.conftest import INVENTORY, POLICY
from tests.support.paths import ROOT

NEW = jupyterhub.version_info[0] >= 6


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return tmp_path


def wired(c: Config | None = None, **more: Any) -> Config:
    c = Config() if c is None else c
    settings = {"spawner": "simple", "policy": "policy.yaml", "admins": ["user:root"], **more}
    allotment_hub.configure(c, **settings)
    return c


def role(c: Config, name: str) -> dict[str, Any]:
    (found,) = [r for r in c.JupyterHub.load_roles if r["name"] == name]
    return dict(found)


def test_one_line_wires_everything(folder: Path) -> None:
    c = wired(inventory="inventory.yaml", port=12345)
    made = c.JupyterHub.spawner_class
    assert made.__name__ == "GovernedSimpleLocalProcessSpawner"
    section = c[made.__name__]
    assert section.governor_url == "http://127.0.0.1:12345"
    (service,) = c.JupyterHub.services
    assert (service["name"], service["url"]) == ("allotment", "http://127.0.0.1:12345")
    assert service["oauth_no_confirm"] is True
    assert service["oauth_client_allowed_scopes"] == [ADMIN_SCOPE]
    assert service["environment"][TOKEN_ENV] == section.gate_token
    assert "admin" not in service
    command = service["command"]
    assert command[command.index("--policy") + 1] == str(folder / "policy.yaml")
    assert command[command.index("--inventory") + 1] == str(folder / "inventory.yaml")
    assert section.gate_token not in " ".join(command)
    assert c.JupyterHub.template_paths == [str(TEMPLATES)]
    assert (TEMPLATES / "spawn_pending.html").is_file()


def test_the_service_has_the_smallest_role() -> None:
    c = wired()
    start = "start:servers" if NEW else "servers"
    assert sorted(role(c, "allotment-service")["scopes"]) == sorted(
        ["list:users", "read:users:groups", "read:servers", start, "delete:servers"]
    )
    assert role(c, "allotment-admin")["users"] == ["root"]
    assert ADMIN_SCOPE in c.JupyterHub.custom_scopes
    if NEW:
        assert c.JupyterHub.extra_user_scopes == {ACCESS}
    else:
        assert {"self", ACCESS} <= set(role(c, "user")["scopes"])


def test_server_tokens_keep_what_they_had() -> None:
    c = wired()
    scopes = c.GovernedSimpleLocalProcessSpawner.server_token_scopes
    assert set(scopes) == {"access:servers!server", "users:activity!user", ACCESS}
    c = Config()
    c.Spawner.server_token_scopes = ["users:activity!user", "list:users"]
    wired(c)
    assert c.Spawner.server_token_scopes == [
        "users:activity!user", "list:users", "access:servers!server", ACCESS,
    ]  # fmt: skip
    c = Config()
    c.Spawner.server_token_scopes = lambda spawner: []
    with pytest.warns(UserWarning, match="has to return access:services"):
        wired(c)


def test_what_is_there_already_stays() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "culler"}]
    c.JupyterHub.load_roles = [
        {"name": "culler", "scopes": []},
        {"name": "user", "scopes": ["self"]},
    ]
    c.JupyterHub.template_paths = ["/own"]
    c.JupyterHub.custom_scopes = {"custom:x:y": {"description": "x"}}
    c.Authenticator.admin_users = {"zoe"}
    c.JupyterHub.extra_user_scopes.update({"list:services"})
    wired(c, admins=None, gate_wait=1.5)
    assert [s["name"] for s in c.JupyterHub.services] == ["culler", "allotment"]
    assert role(c, "user")["scopes"] == ["self", ACCESS]
    assert c.JupyterHub.template_paths == [str(TEMPLATES), "/own"]
    assert set(c.JupyterHub.custom_scopes) == {"custom:x:y", ADMIN_SCOPE}
    assert role(c, "allotment-admin")["users"] == ["zoe"]
    assert c.GovernedSimpleLocalProcessSpawner.gate_wait == 1.5


@pytest.mark.skipif(not NEW, reason="JupyterHub 6 has the setting")
def test_extra_user_scopes_are_added_to() -> None:
    c = Config()
    c.JupyterHub.extra_user_scopes = {"list:services"}
    wired(c)
    assert c.JupyterHub.extra_user_scopes == {"list:services", ACCESS}


def test_the_gates_secret_outlives_the_hub(folder: Path) -> None:
    first = wired()
    path = folder / "allotment_gate_token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = wired()
    name = "GovernedSimpleLocalProcessSpawner"
    assert first[name].gate_token == second[name].gate_token == path.read_text()
    path.chmod(0o644)
    with pytest.raises(ConfigureError, match="chmod 600"):
        wired()


def test_the_gates_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_ENV, "s" * 32)
    assert wired().GovernedSimpleLocalProcessSpawner.gate_token == "s" * 32
    monkeypatch.setenv(TOKEN_ENV, "short")
    with pytest.raises(ConfigureError, match="at least 16"):
        wired()


def test_a_governor_of_its_own() -> None:
    c = wired(managed=False, url="http://governor:10101", service_token="t" * 32)
    (service,) = c.JupyterHub.services
    assert "command" not in service
    assert (service["url"], service["api_token"]) == ("http://governor:10101", "t" * 32)


@pytest.mark.parametrize(
    "spawner",
    [SimpleLocalProcessSpawner, "simple", "jupyterhub.spawner.SimpleLocalProcessSpawner"],
)
def test_ways_to_name_a_spawner(spawner: Any) -> None:
    c = wired(spawner=spawner)
    assert c.JupyterHub.spawner_class.__name__ == "GovernedSimpleLocalProcessSpawner"


def test_kubespawner_by_its_short_name() -> None:
    assert wired(spawner="kube").JupyterHub.spawner_class.__name__ == "GovernedKubeSpawner"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "nowhere.yaml"}, "policy: there is no file"),
        ({"policy": 7}, "policy: give the path"),
        ({"policy": None}, "policy: give the path of the policy file"),
        ({"inventory": "nowhere.yaml"}, "inventory: there is no file"),
        ({"spawner": "nothing"}, "spawner: 'nothing' is not found"),
        ({"spawner": "os.Path"}, "spawner: 'os.Path' is not found"),
        ({"spawner": object}, "takes a spawner class"),
        ({"spawner": "os.path"}, "takes a spawner class"),
        ({"port": 80}, "port: 80 is not a port"),
        ({"port": "10101"}, "is not a port"),
        ({"port": True}, "is not a port"),
        ({"url": "governor:10101"}, "has to be http"),
        ({"url": "http://governor/x"}, "without a path"),
        ({"database": "ledger.sqlite"}, "no database URL"),
        ({"managed": False}, "needs url"),
        ({"admins": "user:root"}, "give a list"),
        ({"admins": ["root"]}, "'user:NAME' or 'group:NAME'"),
        ({"gate_token": "x"}, "at least 16"),
        ({"gate_wiat": 3}, "'gate_wiat' is no setting"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_mistakes_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigureError) as caught:
        wired(**settings)
    assert said in str(caught.value)


def test_a_policy_with_an_error_is_named_with_its_line(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY.replace("guarantee: 2", "guarantee: -2", 1))
    with pytest.raises(ConfigureError, match=r"policy.*guarantee"):
        wired()
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "inventory.yaml").write_text("- {nod: x}")
    with pytest.raises(ConfigureError, match="inventory"):
        wired(inventory="inventory.yaml")


def test_called_twice_and_with_no_config() -> None:
    with pytest.raises(ConfigureError, match="called once"):
        wired(wired())
    with pytest.raises(ConfigureError, match="first argument"):
        allotment_hub.configure({}, policy="policy.yaml")


def test_nobody_administers() -> None:
    with pytest.warns(UserWarning, match="nobody administers"):
        wired(admins=None)


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples" / "hub").glob("*.py")), ids=lambda p: p.name
)
def test_the_examples_are_configurations(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOTMENT_SERVICE_TOKEN", "t" * 32)
    monkeypatch.setenv(TOKEN_ENV, "s" * 32)
    c = Config()
    names = {"get_config": lambda: c, "__file__": str(example)}
    exec(compile(example.read_text(), example, "exec"), names)  # noqa: S102 (a file of ours)
    assert [service["name"] for service in c.JupyterHub.services] == ["allotment"]
