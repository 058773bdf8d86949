"""The people of the trial: makes their tokens, and asks in their names for GPUs.

``visitors.py tokens FILE`` writes a token file; ``visitors.py demand FILE URL`` waits until the
governor at URL is ready and sends the requests that a visitor finds there.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

PEOPLE = {
    "ann": "groups: [vision]",
    "lin": "groups: [vision]",
    "bob": "groups: [nlp]",
    "eve": "groups: [nlp]",
    "root": "groups: [gpu-admins], admin: true",
}
# bob borrows two from vision, eve has to wait; when ann asks for four, bob's lease is asked back.
DEMAND: list[tuple[str, dict[str, Any]]] = [
    ("bob", {"flavor": "a100-80g", "gpus": 6, "server": "train"}),
    ("eve", {"flavor": "a100-80g", "gpus": 4, "server": "finetune"}),
    ("lin", {"flavor": "l40s", "gpus": 1, "server": "explore"}),
]
READY_WITHIN_S = 120


def write_tokens(path: Path) -> None:
    """Write new tokens for everybody; only this user can read them."""
    lines = [
        f"  {name}-{secrets.token_hex(16)}: {{name: {name}, {rest}}}"
        for name, rest in PEOPLE.items()
    ]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("tokens:\n" + "\n".join(lines) + "\n")


def read_tokens(path: Path) -> dict[str, str]:
    """Who has which token."""
    return {m[2]: m[1] for m in re.finditer(r"^  (\S+): \{name: (\w+)", path.read_text(), re.M)}


def wait_until_ready(url: str) -> None:
    """Return once the governor decides; TimeoutError when it does not in time."""
    pause = threading.Event()
    for _ in range(READY_WITHIN_S * 2):
        try:
            with urlopen(f"{url}ready", timeout=5):  # noqa: S310 - our own address
                return
        except URLError:
            pause.wait(0.5)
    raise TimeoutError(f"{url}ready: no answer within {READY_WITHIN_S} s")


def ask(url: str, token: str, body: dict[str, Any]) -> str:
    """Send one request and tell what became of it."""
    request = Request(  # noqa: S310 - our own address
        f"{url}api/v1/requests",
        data=json.dumps(
            {"kind": "session", "class": "notebook", "start": "always", **body}
        ).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"trial-{body['server']}",
        },
    )
    with urlopen(request, timeout=10) as answer:  # noqa: S310 - our own address
        return str(json.load(answer)["state"])


def main(what: str, path: str, url: str = "") -> None:
    """Do what the command line says."""
    if what == "tokens":
        write_tokens(Path(path))
        return
    tokens = read_tokens(Path(path))
    wait_until_ready(url)
    for name, body in DEMAND:
        print(f"{name}: {ask(url, tokens[name], body)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
