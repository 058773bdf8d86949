"""The hub's side of the gate: one HTTP client, no decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

MOST_AT_ONCE = 256
"""Long polls and reports under way at a time; further ones wait for a place."""

CONNECT_S = 3.0


class GovernorDown(Exception):
    """The governor does not answer, or answers that it cannot just now. Nothing was decided."""


class GateRefused(Exception):
    """The governor says no.

    Parameters
    ----------
    status : int
        4xx.
    code, detail : str
        As in its problem document.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of 2xx."""

    status: int
    body: Mapping[str, Any]


class Gate:
    """Calls of :mod:`allotment_hub.gateapi`.

    Parameters
    ----------
    url : str
        The service with its prefix, such as ``http://127.0.0.1:10101/services/allotment``.
    token : str
        The shared secret.
    timeout : float
        Seconds after which a call counts as not answered.
    """

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._client: SimpleAsyncHTTPClient | None = None

    async def post(self, path: str, body: Mapping[str, Any], *, wait: float = 0) -> Reply:
        """Send a call; ``wait`` is how many seconds the governor may take to have an answer.

        Raises
        ------
        GovernorDown, GateRefused
        """
        query = f"?{urlencode({'wait': f'{wait:g}'})}" if wait > 0 else ""
        return await self._send("POST", path + query, json.dumps(body), wait)

    async def get(
        self, path: str, query: Mapping[str, Any], *, timeout: float | None = None
    ) -> Reply:
        """Ask; raises as :meth:`post` does."""
        return await self._send("GET", f"{path}?{urlencode(query, doseq=True)}", None, 0, timeout)

    async def _send(
        self, method: str, path: str, body: str | None, wait: float, timeout: float | None = None
    ) -> Reply:
        request = HTTPRequest(
            f"{self._url}/{path}",
            method=method,
            body=body,
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            connect_timeout=CONNECT_S,
            request_timeout=(timeout or self._timeout) + wait,
            # A redirect would carry the secret to wherever it points.
            follow_redirects=False,
        )
        if self._client is None:
            # The hub may have configured another client with limits of its own for its proxy.
            self._client = SimpleAsyncHTTPClient(force_instance=True, max_clients=MOST_AT_ONCE)
        try:
            response = await self._client.fetch(request, raise_error=False)
        except (OSError, ValueError) as error:
            raise GovernorDown(f"{type(error).__name__}: {error}") from error
        return _judge(response)


def _judge(response: Any) -> Reply:
    if response.code == 599 or (response.error and response.code >= 500):
        raise GovernorDown(str(response.error or response.code))
    try:
        body = json.loads(response.body or b"{}")
    except ValueError:
        raise GovernorDown(f"status {response.code} with something that is not JSON") from None
    if not isinstance(body, dict):
        raise GovernorDown(f"status {response.code} with something that is not a JSON object")
    if 200 <= response.code < 300:
        return Reply(response.code, body)
    if 400 <= response.code < 500 and response.code not in (401, 408, 429):
        detail = str(body.get("detail") or body.get("title") or "refused")
        raise GateRefused(response.code, str(body.get("code") or "Refused"), detail)
    raise GovernorDown(f"status {response.code}: {body.get('detail') or body.get('code') or ''}")
