"""The folder of a demonstration: who is in it, and the files that its hub starts from."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from .waiting import DemoError, WrongUse

MARK = "GPU_DEMO_RUN"
"""Variable in the environment of everything that belongs to one run."""

TEAMS: Mapping[str, tuple[str, ...]] = {
    "vision": ("ann", "vera"),
    "nlp": ("bob", "ned"),
    "robotics": ("rita", "rob"),
}
GUEST = "guest"
ADMIN = "admin"
PEOPLE = (*(name for names in TEAMS.values() for name in names), GUEST)

_CELL = """\
# The GPUs of this session as CUDA sees them, and the lease that they are held by
import os
print(os.environ["CUDA_VISIBLE_DEVICES"] or "no GPU", os.environ.get("ALLOTMENT_LEASE"))
!allotment status
"""
_PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": _PYTHON},
    "cells": [
        {
            "id": "devices", "cell_type": "code", "source": _CELL, "metadata": {},
            "execution_count": None, "outputs": [],
        }
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a run is made of: its folder, addresses and secrets."""

    folder: Path
    url: str
    hub_url: str
    proxy_api_url: str
    governor_port: int
    proxy_command: list[str]
    server_command: list[str]
    password: str
    admin_password: str
    demo_token: str
    proxy_token: str
    mark: str


def make_setup(folder: Path, port: int | None) -> Setup:
    """Choose free ports and new secrets.

    Parameters
    ----------
    port : int or None
        Where the hub is to be reached; None takes 8000, or any where that is taken.

    Raises
    ------
    DemoError
        The port is taken, or a program is missing.
    """
    public = _public_port(port)
    proxy, hub, governor = _free_ports(3)
    return Setup(
        folder=folder,
        url=f"http://127.0.0.1:{public}",
        hub_url=f"http://127.0.0.1:{hub}",
        proxy_api_url=f"http://127.0.0.1:{proxy}",
        governor_port=governor,
        proxy_command=[_program("configurable-http-proxy")],
        server_command=[_program("jupyterhub-singleuser"), "--allow-root"],
        password=secrets.token_hex(4),
        admin_password=secrets.token_hex(16),
        demo_token=secrets.token_hex(32),
        proxy_token=secrets.token_hex(32),
        mark=secrets.token_hex(8),
    )


def write_files(setup: Setup) -> None:
    """Write what the hub starts from. Only this user may read the secrets."""
    folder = setup.folder
    for name in ("jupyterhub_config.py", "policy.yaml", "inventory.yaml"):
        source = files("allotment_hub.demo") / "files" / name
        (folder / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    descriptor = os.open(folder / "settings.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(_settings(setup), file, indent=1)
    # JupyterLab asks at each first start whether it may fetch news.
    _write_json(folder / "jupyter" / "labconfig" / "page_config.json", {
        "disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True},
    })  # fmt: skip
    for name in (*PEOPLE, ADMIN):
        _write_json(folder / "homes" / name / "which-gpus.ipynb", NOTEBOOK)


def _settings(setup: Setup) -> dict[str, Any]:
    return {
        "url": setup.url,
        "hub_url": setup.hub_url,
        "proxy_api_url": setup.proxy_api_url,
        "proxy_command": setup.proxy_command,
        "proxy_token": setup.proxy_token,
        "server_command": setup.server_command,
        "password": setup.password,
        "admin_password": setup.admin_password,
        "demo_token": setup.demo_token,
        "governor_port": setup.governor_port,
        "users": PEOPLE,
        "admins": [ADMIN],
        "groups": {team: {"users": list(names)} for team, names in TEAMS.items()},
        "mark": MARK,
        "mark_value": setup.mark,
    }


def _write_json(path: Path, value: Any) -> None:
    if not path.exists():  # a folder that is used again keeps what a visitor has changed
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _program(name: str) -> str:
    """Find a program: beside this Python, in a source tree's node_modules, or by PATH."""
    beside = Path(sys.executable).parent / name
    local = Path(__file__).resolve().parents[3] / "node_modules" / ".bin" / name
    for path in (beside, local):
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(name)
    if found is None:
        wants = (
            "npm install -g configurable-http-proxy"
            if "proxy" in name
            else "pip install jupyterlab"
        )
        raise DemoError(f"{name} is not there; install it: {wants}")
    return found


def _public_port(wanted: int | None) -> int:
    if wanted is None:
        return 8000 if _is_free(8000) else _free_ports(1)[0]
    if not 1 <= wanted <= 65535:
        raise WrongUse(f"--port {wanted}: write a port from 1 to 65535")
    if not _is_free(wanted):
        raise WrongUse(f"port {wanted} of 127.0.0.1 is taken; leave --port out to have a free one")
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
