"""A real PostgreSQL for one test run: Debian's binaries, durable, thrown away at the end."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

_UNPRIVILEGED = "postgres"  # PostgreSQL refuses to run as root


def find_binaries() -> Path | None:
    """The folder that holds the newest initdb and pg_ctl; None where there is none."""
    versions = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()]
    if versions:
        return max(versions, key=lambda p: int(p.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Cluster:
    """One PostgreSQL server on a loopback port, with `fsync` and `synchronous_commit` on.

    Parameters
    ----------
    binaries : Path
        The folder that holds initdb and pg_ctl.
    """

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="allotment-postgres-"))
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        self._names = (f"t{n}" for n in itertools.count(1))
        self.port = 0

    def start(self) -> None:
        """Make the cluster and wait until it answers.

        Raises
        ------
        RuntimeError
            With the server's log when it does not come up on any of three free ports.
        """
        if self._user:
            shutil.chown(self._folder, self._user, pwd.getpwnam(self._user).pw_gid)
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        log = self._folder / "log"
        for _ in range(3):  # somebody may take the free port before the server does
            self.port = _free_port()
            if self._launch():
                return
        raise RuntimeError(f"PostgreSQL does not start:\n{log.read_text()}")

    def stop(self) -> None:
        """End the server and remove its files."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "--mode=fast", "--wait", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def crash(self) -> None:
        """End the server as a power cut would, without a checkpoint, and start it again."""
        self._run("pg_ctl", "--mode=immediate", "--wait", "stop")
        if not self._launch():
            raise RuntimeError("PostgreSQL does not come back after a crash")

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Give a new, empty database for as long as the block runs.

        Yields
        ------
        str
            Its URL for SQLAlchemy.
        """
        name = next(self._names)
        self._admin(f"CREATE DATABASE {name}")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{name}"
        finally:
            self._admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _admin(self, statement: str) -> None:
        url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _launch(self) -> bool:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "fsync": "on",
            "synchronous_commit": "on",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        log = f"--log={self._folder / 'log'}"
        try:
            self._run("pg_ctl", "--wait", log, f"--options={options}", "start")
        except subprocess.CalledProcessError:
            return False
        return True

    def _run(self, tool: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / tool), f"--pgdata={self._folder / 'data'}", *arguments],
            check=True,
            # The server inherits these: a pipe would be held open for as long as it runs.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
