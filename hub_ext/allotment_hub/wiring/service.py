"""The governor as a service of the hub: its files, address, ledger, secret and command."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config

from allotment_hub.gateapi import SERVICE, TOKEN_ENV

from .lists import ConfigureError, append, listed

TOKEN_FILE = "allotment_gate_token"  # noqa: S105 (a file's name, not a secret)


def existing_file(path: str | os.PathLike[str], what: str) -> Path:
    """Return an absolute path to a file that is there."""
    try:
        found = Path(path).expanduser().absolute()
    except TypeError:
        raise ConfigureError(f"{what}: give the path of a file, not {path!r}") from None
    if not found.is_file():
        raise ConfigureError(f"{what}: there is no file {found}")
    return found


def check_files(policy: Path | None, inventory: Path | None) -> None:
    """Read policy and inventory, and refuse either with what is wrong in it."""
    from allotment_hub.policyfile import PolicyError, load_inventory, load_policy
    from allotment_hub.policyfile.problems import FileError

    try:
        nodes = None if inventory is None else load_inventory(inventory)
        if policy is not None:
            load_policy(policy, inventory=nodes)
    except PolicyError as error:
        raise ConfigureError(f"policy: {error}") from None
    except FileError as error:
        raise ConfigureError(f"inventory: {error}") from None


def governor_address(url: str | None, port: Any) -> str:
    """Return where the hub reaches the governor."""
    if not isinstance(port, int) or isinstance(port, bool) or not 1024 <= port <= 65535:
        raise ConfigureError(f"port: {port!r} is not a port; give a number from 1024 to 65535")
    if url is None:
        return f"http://127.0.0.1:{port}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ConfigureError(f"url: {url!r} has to be http(s)://HOST:PORT without a path")
    return url.rstrip("/")


def ledger_url(c: Config, database: str | None) -> str:
    """Return the URL of the ledger."""
    if database is None:
        return f"sqlite:///{Path.cwd() / 'allotment.sqlite'}"
    if "://" not in database:
        raise ConfigureError(
            f"database: {database!r} is no database URL; write sqlite:////path/to/file or "
            "postgresql://user@host/name"
        )
    return database


def shared_secret(given: str | None, database: str) -> str:
    """Find the shared secret; it outlives the hub, as a governor may, which still knows it."""
    token = given or os.environ.get(TOKEN_ENV, "")
    if token:
        if len(token) < 16:
            raise ConfigureError("gate_token: use at least 16 characters")
        return token
    folder = Path.cwd()
    if database.startswith("sqlite:///"):
        folder = Path(database.removeprefix("sqlite:///")).absolute().parent
    path = folder / TOKEN_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise ConfigureError(
            f"{path}: the gate's secret cannot be kept there ({error.strerror}); "
            f"give gate_token=… or set {TOKEN_ENV}"
        ) from None
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ConfigureError(f"{path}: others can read the gate's secret; chmod 600 it")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < 16:
        raise ConfigureError(f"{path}: too short for a secret; delete it to have a new one made")
    return token


def serve_command(
    policy: Path | None, inventory: Path | None, database: str, arguments: Sequence[str]
) -> list[str]:
    """Return the command of the managed governor."""
    command = [sys.executable, "-m", "allotment_hub.cli", "serve", "--db", database]
    if policy is not None:
        command += ["--policy", str(policy)]
    if inventory is not None:
        command += ["--inventory", str(inventory)]
    return [*command, *arguments]


def add_service(c: Config, service: dict[str, Any]) -> None:
    """Add the service, once."""
    for other in listed(c.JupyterHub, "services"):
        if other.get("name") == SERVICE:
            raise ConfigureError(
                f"there is a service {SERVICE!r} in c.JupyterHub.services already; "
                "configure() is called once"
            )
    append(c.JupyterHub, "services", service)
