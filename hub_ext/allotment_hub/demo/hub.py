"""The demonstration's hub as processes: started, killed, started again, and wholly ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from .calls import SERVICE, NoAnswer, Person, call
from .folder import ADMIN, MARK, PEOPLE, Setup
from .waiting import DemoError, Patience

UP_WITHIN_S = 120.0
CLOSE_WITHIN_S = 20.0
TOKEN_S = 24 * 3600


class DemoHub:
    """A hub with its proxy, governor and single-user servers.

    Parameters
    ----------
    setup : Setup
        Written out already.
    patience : Patience
        Whose waits are used.
    """

    def __init__(self, setup: Setup, patience: Patience) -> None:
        self.setup = setup
        self.patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._people: dict[str, Person] = {}

    # -- life --------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        """What the hub and all that it starts have written."""
        return self.setup.folder / "hub.log"

    def start(self) -> None:
        """Start the hub, and return when it and its governor answer."""
        keep = {
            key: value for key, value in os.environ.items()
            if not key.startswith(("JUPYTERHUB_", "ALLOTMENT_", "JUPYTER_CONFIG"))
        }  # fmt: skip
        path = f"{Path(sys.executable).parent}{os.pathsep}{keep.get('PATH', '')}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
                cwd=self.setup.folder, env={**keep, "PATH": path, MARK: self.setup.mark},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # An interrupt at the terminal is for us alone, who then end the hub in good order.
                start_new_session=True,
            )  # fmt: skip
        try:
            self.patience.until(self._answers, UP_WITHIN_S, "the hub and its governor answer")
        except DemoError as error:
            raise DemoError(f"{error}; {self.log} ends with:\n{self._tail()}") from None

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise DemoError("the hub has ended by itself")
        with contextlib.suppress(NoAnswer):
            ready = call("GET", f"{self.setup.url}/{SERVICE}api/v1/ready", "")
            return ready.ok and call("GET", f"{self.setup.url}/hub/api/", "").ok
        return False

    def _tail(self, lines: int = 15) -> str:
        with contextlib.suppress(OSError):
            text = self.log.read_text(encoding="utf-8", errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return ""

    def kill(self) -> None:
        """End hub and governor at once, as a crash does; the users' servers stay."""
        for process in self._governors():
            process.kill()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        gone = self._governors
        self.patience.until(lambda: not list(gone()), 15, "the killed governor is gone")

    def close(self) -> None:
        """End all that belongs to this run; a second interrupt shortens the good order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                self._process.wait(CLOSE_WITHIN_S)
        for _ in range(5):
            left = list(self._processes())
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if not left:
                break
            psutil.wait_procs(left, timeout=3)
        if self._process is not None:
            self._process.wait()

    # -- processes ---------------------------------------------------------------------------

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(MARK) == self.setup.mark:
                    yield process

    def _governors(self) -> Iterator[psutil.Process]:
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if "allotment_hub.cli" in process.cmdline():
                    yield process

    def server_process(self, user: str, server: str = "") -> psutil.Process:
        """The process of a user's single-user server; DemoError where none runs."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                env = process.environ()
                ours = any("jupyterhub-singleuser" in part for part in process.cmdline())
                mine = env.get("JUPYTERHUB_USER") == user
                if ours and mine and env.get("JUPYTERHUB_SERVER_NAME", "") == server:
                    return process
        raise DemoError(f"no server of {user} runs")

    # -- people ------------------------------------------------------------------------------

    def make_people(self) -> None:
        """See that everybody is known to the hub."""
        known = call("GET", f"{self.setup.url}/hub/api/users", self.setup.demo_token)
        names = {one["name"] for one in known.data} if known.ok else set()
        for name in (*PEOPLE, ADMIN):
            if name not in names:
                url = f"{self.setup.url}/hub/api/users/{name}"
                call("POST", url, self.setup.demo_token)

    def person(self, name: str) -> Person:
        """A user, with a token of a day."""
        if name not in self._people:
            url = f"{self.setup.url}/hub/api/users/{name}/tokens"
            body = {"note": "demonstration", "expires_in": TOKEN_S}
            made = call("POST", url, self.setup.demo_token, body)
            if not made.ok:
                raise DemoError(f"no token for {name}: {made.said}")
            self._people[name] = Person(name, made.data["token"], self.setup.url)
        return self._people[name]
