"""Real hubs for tests: JupyterHub, its proxy, single-user servers, and the governor beside it.

>>> hub = RealHub(folder, env="hub6", policy=POLICY, inventory=NODES, users={"ann": ["vision"]})
... with hub:
...     hub.start_server("ann", {"allotment": {"gpus": 1}})

Everything runs as processes of its own in a folder of its own, on free loopback ports, and is
ended with the hub object whatever happened in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from tests.support.paths import ROOT, proxy_command

T = TypeVar("T")

ENVIRONMENTS = {"hub6": ROOT / ".venv", "hub5": ROOT / ".venv-hub5"}
MARK = "HUB_TEST_RUN"
START_S = 60.0
TINY = ROOT / "tests" / "support" / "tiny_server.py"

_CONFIG = """
import json, os
settings = json.load(open({settings!r}))
c = get_config()  # noqa: F821 (given by JupyterHub)
c.JupyterHub.bind_url = settings["public"]
c.JupyterHub.hub_bind_url = settings["hub"]
c.JupyterHub.db_url = settings["db"]
c.JupyterHub.cookie_secret_file = settings["cookie_secret"]
c.ConfigurableHTTPProxy.api_url = settings["proxy_api"]
c.ConfigurableHTTPProxy.command = settings["proxy_command"]
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.ConfigurableHTTPProxy.pid_file = settings["proxy_pid"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"admin"}}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
c.JupyterHub.load_groups = settings["groups"]
c.JupyterHub.services = [{{"name": "tester", "api_token": settings["token"]}}]
c.JupyterHub.load_roles = [{{
    "name": "tester", "services": ["tester"],
    "scopes": ["admin:users", "admin:servers", "admin:groups", "tokens", "list:services",
               "admin:server_state", "access:services", "access:servers", "read:metrics",
               "shutdown"],
}}]
c.Spawner.cmd = [settings["singleuser"], "--allow-root"]
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", {mark!r}]
c.Spawner.environment = {{"JUPYTER_CONFIG_DIR": settings["jupyter_config"]}}
c.Spawner.http_timeout = 60
c.Spawner.poll_interval = 2
c.SimpleLocalProcessSpawner.home_dir_template = settings["homes"] + "/{{username}}"
c.LocalProcessSpawner.interrupt_timeout = 5
c.LocalProcessSpawner.term_timeout = 5
{extra}
"""

_WIRED = """
import allotment_hub
allotment_hub.configure(c, **settings["configure"])
"""


class RealHub:
    """One hub with what belongs to it.

    Parameters
    ----------
    folder : Path
        An empty folder for configuration, databases, homes and logs.
    env : {"hub6", "hub5"}
        Which JupyterHub.
    policy : str
        Text of the policy file.
    inventory : str or None
        Text of the declared inventory.
    users : mapping of str to sequence of str
        Users and their groups. ``admin`` is there besides.
    peer : GatePeer or None
        Stands for the governor; None starts the real one as a managed service.
    tiny : bool
        Let servers be small programs that answer, up in no time, where Jupyter is not looked at.
    settings : mapping
        Further arguments of ``allotment_hub.configure``, such as traits.
    extra : str
        Python text at the end of ``jupyterhub_config.py``, after ``configure``.
    before : str
        The same before it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        env: str = "hub6",
        policy: str = "",
        inventory: str | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        peer: Any = None,
        tiny: bool = False,
        settings: Mapping[str, Any] | None = None,
        extra: str = "",
        before: str = "",
    ) -> None:
        self.folder = folder
        self.generation = int(env.removeprefix("hub"))
        self.bin = ENVIRONMENTS[env] / "bin"
        if not (self.bin / "jupyterhub").exists():
            raise FileNotFoundError(f"{self.bin / 'jupyterhub'} is missing: run `make setup`")
        self.users = {name: list(groups) for name, groups in (users or {}).items()}
        self.peer = peer
        self.token = secrets.token_hex(16)
        self.run_id = secrets.token_hex(8)
        self.process: subprocess.Popen[bytes] | None = None
        self._user_tokens: dict[str, str] = {}
        public, proxy_api, hub, governor = free_ports(4)
        self.url = f"http://127.0.0.1:{public}"
        self.api_url = f"http://127.0.0.1:{hub}/hub/api"
        self.service_url = f"{self.url}/services/allotment"
        self.governor_port = governor
        self.client = httpx.Client(timeout=40, trust_env=False)
        self.program = "jupyterhub-singleuser"
        if tiny:
            self.program = str(TINY)
            extra = f"\nc.Spawner.cmd = [{str(self.bin / 'python')!r}, {self.program!r}]\n{extra}"
        self._write(policy, inventory, settings or {}, proxy_api, hub, before, extra)

    # -- set-up ------------------------------------------------------------------------------

    def _write(
        self, policy: str, inventory: str | None, settings: Mapping[str, Any],
        proxy_api: int, hub: int, before: str, extra: str,
    ) -> None:  # fmt: skip
        folder = self.folder
        (folder / "homes").mkdir(parents=True, exist_ok=True)
        (folder / "policy.yaml").write_text(policy or MINIMAL_POLICY)
        wired: dict[str, Any] = {
            "spawner": "simple",
            "policy": str(folder / "policy.yaml"),
            "database": f"sqlite:///{folder / 'allotment.sqlite'}",
            "port": self.governor_port,
            "start_watch": 0.5,
            "environment": {MARK: self.run_id},
        }
        if inventory is not None:
            (folder / "inventory.yaml").write_text(inventory)
            wired["inventory"] = str(folder / "inventory.yaml")
        if self.peer is not None:
            wired |= {
                "managed": False, "url": self.peer.url, "service_token": secrets.token_hex(16),
                "gate_token": "gate-token-of-the-test-suite",
            }  # fmt: skip
        groups: dict[str, Any] = {}
        for user, names in self.users.items():
            for name in names:
                groups.setdefault(name, {"users": []})["users"].append(user)
        # A whole JupyterLab takes seconds to load, and no test here looks at it.
        jupyter_config = folder / "jupyter-config"
        jupyter_config.mkdir(exist_ok=True)
        off = dict.fromkeys(
            ("jupyterlab", "jupyter_lsp", "notebook_shim", "jupyter_server_terminals"), False
        )
        (jupyter_config / "jupyter_server_config.json").write_text(
            json.dumps({"ServerApp": {"jpserver_extensions": off}})
        )
        values = {
            "jupyter_config": str(jupyter_config),
            "public": self.url,
            "hub": f"http://127.0.0.1:{hub}",
            "db": f"sqlite:///{folder / 'hub.sqlite'}",
            "cookie_secret": str(folder / "cookie_secret"),
            "proxy_api": f"http://127.0.0.1:{proxy_api}",
            "proxy_command": proxy_command(),
            "proxy_token": secrets.token_hex(16),
            "proxy_pid": str(folder / "proxy.pid"),
            "groups": groups,
            "token": self.token,
            "singleuser": str(self.bin / "jupyterhub-singleuser"),
            "homes": str(folder / "homes"),
            "configure": {**wired, **settings},
        }
        (folder / "settings.json").write_text(json.dumps(values))
        text = _CONFIG.format(settings=str(folder / "settings.json"), mark=MARK, extra=before)
        (folder / "jupyterhub_config.py").write_text(text + _WIRED + extra)

    def __enter__(self) -> RealHub:
        try:
            self.start()
            for name in self.users:
                self.api("POST", f"users/{quote(name)}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life --------------------------------------------------------------------------------

    @property
    def log_path(self) -> Path:
        return self.folder / "hub.log"

    def log(self) -> str:
        """What the hub, its services and servers have written so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self, wait: bool = True) -> None:
        """Start the hub (again) and wait until it answers."""
        env = {
            key: value for key, value in os.environ.items()
            if not key.startswith(("JUPYTERHUB_", "ALLOTMENT_", "PYTEST_"))
        }  # fmt: skip
        env |= {
            MARK: self.run_id,
            "PATH": f"{self.bin}:{env.get('PATH', '')}",
            "JUPYTER_CONFIG_DIR": str(self.folder / "jupyter-config"),
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.bin / "jupyterhub"), "-f", str(self.folder / "jupyterhub_config.py")],
                cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait_up()

    def wait_up(self) -> None:
        """Wait for the hub, and for the governor where it is a real one."""

        def up() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the hub ended with {self.process.returncode}\n{self.tail()}")
            with contextlib.suppress(httpx.HTTPError):
                if self.client.get(f"{self.url}/hub/health").status_code != 200:
                    return False
                if self.peer is not None:
                    return True
                return self.client.get(f"{self.service_url}/api/v1/ready").status_code == 200
            return False

        self.wait(up, START_S, "the hub did not come up")

    def tail(self, lines: int = 60) -> str:
        """The end of the log without requests that went well."""
        noise = ("[ConfigProxy]", " log:19", "_xsrf_utils:", " ServerApp]", " users:5")
        kept = [x for x in self.log().splitlines() if not any(word in x for word in noise)]
        return "\n".join(kept[-lines:])

    def stop_hub(self) -> None:
        """End the hub in good order; servers stay."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def kill_hub(self) -> None:
        """``kill -9`` the hub process alone; proxy, governor and servers go on without it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def governor_pid(self) -> int | None:
        """The process id of the managed governor."""
        for pid, command in self._processes():
            if "allotment_hub.cli" in command and "serve" in command:
                return pid
        return None

    def kill_governor(self) -> None:
        """``kill -9`` the governor."""
        pid = self.governor_pid()
        assert pid is not None, "no governor runs"
        os.kill(pid, signal.SIGKILL)

    def kill_server(self, user: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a user's single-user server behind everybody's back."""
        for pid in self.server_pids(user):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def server_pids(self, user: str, server: str = "") -> list[int]:
        """Process ids of a user's server."""
        found = []
        for pid, command in self._processes():
            env = _environ(pid)
            here = (env.get("JUPYTERHUB_USER"), env.get("JUPYTERHUB_SERVER_NAME"))
            if self.program in command and here == (user, server):
                found.append(pid)
        return found

    def _processes(self) -> Iterator[tuple[int, str]]:
        needle = f"{MARK}={self.run_id}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    yield int(entry.name), command.decode(errors="replace")

    def close(self) -> None:
        """End everything that was started here."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        for _ in range(5):
            pids = [pid for pid, _ in self._processes()]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                break
            time.sleep(0.1)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        self.client.close()

    # -- asking ------------------------------------------------------------------------------

    def wait(
        self, ask: Callable[[], T], seconds: float = 30.0, what: str = "it did not happen"
    ) -> T:
        """Ask again and again until the answer is true, at most for so long."""
        ends = time.monotonic() + seconds
        while True:
            answer = ask()
            if answer:
                return answer
            if time.monotonic() > ends:
                raise AssertionError(f"{what} within {seconds:g} s\n{self.tail()}")
            time.sleep(0.1)

    def api(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """Call the hub's REST API, as the testers' service unless a token is given."""
        return self.client.request(
            method, f"{self.api_url}/{path}", json=body,
            headers={"Authorization": f"token {token or self.token}"},
        )  # fmt: skip

    def user_token(self, user: str) -> str:
        """A token with all that the user may do."""
        if user not in self._user_tokens:
            self.api("POST", f"users/{quote(user, safe='')}")
            answer = self.api("POST", f"users/{quote(user, safe='')}/tokens", {"note": "test"})
            assert answer.status_code in (200, 201), answer.text
            self._user_tokens[user] = answer.json()["token"]
        return self._user_tokens[user]

    def governor(self, method: str, path: str, user: str, body: Any = None, **more: Any) -> Any:
        """Call the governor's REST API (``/api/v1`` is put in front) as a user."""
        headers = {"Authorization": f"token {self.user_token(user)}", **more.pop("headers", {})}
        return self.client.request(
            method, f"{self.service_url}/api/v1{path}", json=body, headers=headers, **more
        )

    def start_server(
        self, user: str, options: Mapping[str, Any] | None = None, server: str = ""
    ) -> Any:
        """Ask the hub, as the user, for a server; the answer may be a refusal."""
        body = None if options is None else dict(options)
        return self.api("POST", _path(user, server), body, self.user_token(user))

    def stop_server(self, user: str, server: str = "") -> Any:
        """Ask the hub, as the user, to stop a server."""
        return self.api("DELETE", _path(user, server), None, self.user_token(user))

    def server(self, user: str, server: str = "") -> dict[str, Any]:
        """The hub's model of a server; empty where it has none."""
        model = self.api("GET", f"users/{quote(user, safe='')}?include_stopped_servers=1").json()
        found: dict[str, Any] = model.get("servers", {}).get(server, {})
        return found

    def is_ready(self, user: str, server: str = "") -> bool:
        return bool(self.server(user, server).get("ready"))

    def wait_ready(self, user: str, server: str = "", seconds: float = 60) -> dict[str, Any]:
        """Wait until a server is up; returns its model."""
        self.wait(
            lambda: self.is_ready(user, server), seconds, f"the server of {user} is not ready"
        )
        return self.server(user, server)

    def spawn_in_background(
        self, user: str, options: Mapping[str, Any], server: str = ""
    ) -> threading.Thread:
        """Ask for a server without waiting for the answer, which a crash may cut off."""
        token = self.user_token(user)

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                self.api("POST", _path(user, server), dict(options), token)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread

    def stop_in_background(self, user: str, server: str = "") -> threading.Thread:
        """Ask to stop a server without waiting for the answer."""
        token = self.user_token(user)
        thread = threading.Thread(
            target=lambda: self.api("DELETE", _path(user, server), None, token), daemon=True
        )
        thread.start()
        return thread

    def environment_of(self, pid: int) -> dict[str, str]:
        """The environment that a process was started with."""
        return _environ(pid)

    def server_environment(self, user: str, server: str = "") -> dict[str, str]:
        """The environment that a single-user server was started with."""
        pids = self.server_pids(user, server)
        assert pids, f"no server of {user} runs"
        return _environ(pids[0])

    def browser(self, user: str) -> httpx.Client:
        """A client with the cookies of a person who has logged in."""
        client = httpx.Client(timeout=40, trust_env=False, follow_redirects=True)
        client.get(f"{self.url}/hub/login")
        answer = client.post(
            f"{self.url}/hub/login",
            params={
                "_xsrf": client.cookies.get("_xsrf", path="/hub/") or client.cookies.get("_xsrf")
            },
            data={"username": user, "password": "x"},
        )
        assert answer.url.path != "/hub/login", answer.text[:500]
        return client

    def metric(self, name: str) -> dict[str, float]:
        """The hub's own metrics whose line begins with a name."""
        text = self.api("GET", "../metrics").text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name))
        return {key: float(value) for key, value in pairs}


def _path(user: str, server: str) -> str:
    path = f"users/{quote(user, safe='')}"
    return f"{path}/servers/{quote(server, safe='')}" if server else f"{path}/server"


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode(errors="replace").split("\0") if item)
    return {key: value for key, _, value in pairs}


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


MINIMAL_POLICY = """
version: 1
currency: EUR
flavors:
  a100: {model: "A100"}
tenants:
  t: {groups: [t], quotas: [{flavor: a100, guarantee: 2, ceiling: 2, lend: 0}]}
classes:
  notebook: {kind: interactive, priority: 100, interruptible: stateless, borrow: true,
             duration: {default: 4h, max: 12h}, claim_window: 10m}
borrowing: {term: 4h, renewals: 2, notice: 15m, protected: 30m}
reclaim:
  - {idle_after: 30m, unused_after: 4h, notice: 15m, freeze: 10m, stop_grace: 120s,
     keep: {times: 5, for: 1h}}
ordering: {age_step: 10m, reserve_after: 10m}
"""

if sys.platform != "linux":  # pragma: no cover (tests run on Linux)
    raise RuntimeError("these tests look at /proc")
