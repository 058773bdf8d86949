"""Calls from the command line to a running governor."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .output import CheckFailed, UsageError

API = "/api/v1"
TIMEOUT_SECONDS = 60.0
MAX_ANSWER_BYTES = 64 << 20

_INPUT_FAULTS = frozenset({400, 401, 403, 413, 415, 422})
"""Answers that mean that the input, the token or the right is wrong: exit code 2."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the governor is."""
    parser.add_argument(
        "--url", help="address of the service, such as http://127.0.0.1:8000/services/allotment "
        "(default: ALLOTMENT_URL)"
    )  # fmt: skip
    parser.add_argument(
        "--token", help="token of an admin (default: ALLOTMENT_TOKEN, which no process list shows)"
    )


class Governor:
    """A running governor, reached over its REST interface.

    Parameters
    ----------
    url : str
        Address of the service, with or without ``/api/v1``.
    token : str
        Sent in each call, only to this address: redirects are not followed.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"'{url}' is not the address of a service; write one such as "
                "http://127.0.0.1:8000/services/allotment"
            )
        if not token or not token.isascii() or not token.isprintable():
            raise UsageError("no usable token; set ALLOTMENT_TOKEN or give --token")
        self._parts = parts
        self._base = parts.path.rstrip("/").removesuffix(API) + API
        self._token = token
        self.url = f"{parts.scheme}://{parts.netloc}{self._base}"

    @classmethod
    def from_args(
        cls, args: argparse.Namespace, environ: Mapping[str, str] | None = None
    ) -> Governor:
        """Make one from the options of :func:`add_connection` and the environment."""
        environ = os.environ if environ is None else environ
        url = args.url or environ.get("ALLOTMENT_URL", "")
        if not url:
            raise UsageError("no address of a governor; set ALLOTMENT_URL or give --url")
        return cls(url, args.token or environ.get("ALLOTMENT_TOKEN", ""))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call and give back what its JSON answer says.

        Raises
        ------
        UsageError
            When the governor says that the input, the token or the right is wrong.
        CheckFailed
            When it refuses for another reason, does not answer, or answers with nothing usable.
        """
        status, content = self._exchange(method, path, body)
        answer = self._decoded(status, content)
        if status >= 300:
            failure = UsageError if status in _INPUT_FAULTS else CheckFailed
            raise failure(self._refusal(status, answer))
        return answer

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = self._connection()
        headers = {"Authorization": f"token {self._token}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, self._base + path, content, headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CheckFailed(f"no answer from {self.url}: {reason}") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def _decoded(self, status: int, content: bytes) -> Any:
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            if status >= 300:
                return None
            raise CheckFailed(f"{self.url} answers with something else than JSON") from None

    def _refusal(self, status: int, answer: Any) -> str:
        if not isinstance(answer, dict):
            login = " (a login page: the token is not accepted)" if status < 400 else ""
            return f"{self.url} answers with HTTP {status}{login}"
        text = answer.get("detail") or answer.get("title") or answer.get("code") or "refused"
        lines = [f"{self.url} answers with HTTP {status}: {text}"]
        for error in answer.get("errors") or ():
            if isinstance(error, dict):
                line = f"line {error['line']}" if error.get("line") else ""
                parts = (line, error.get("path"), error.get("message"))
                lines.append(": ".join(str(part) for part in parts if part))
        return "\n".join(_safe(one) for one in lines)


def _safe(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
