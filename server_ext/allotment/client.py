"""A client of the governor for notebooks, scripts and the command line. Standard library only.

>>> from allotment import Client
>>> client = Client()                                  # doctest: +SKIP
>>> client.submit({"gpus": 2, "duration": "4h"})       # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

API = "api/v1"
FINAL = frozenset({"done", "cancelled", "rejected", "expired"})
"""States of a request after which nothing changes any more."""

MAX_ANSWER_BYTES = 16 << 20
STREAM_SILENCE_SECONDS = 45.0
"""The stream's heartbeat comes every 20 s at the latest; twice missed means that it is dead."""


class AllotmentError(Exception):
    """Base of everything that can go wrong between here and the governor.

    ::

        AllotmentError
        ├── NotConfigured    where the governor is, or who asks, is not known
        ├── Unreachable      no answer, or none that makes sense
        └── Refused          the governor's own "no", with its code
    """


class NotConfigured(AllotmentError):
    """Neither an argument nor the environment names the governor or a token."""


class Unreachable(AllotmentError):
    """The governor does not answer. What runs goes on; GPUs can be asked for again later."""


class Refused(AllotmentError):
    """The governor's own refusal.

    Attributes
    ----------
    status : int
        HTTP status, 400 to 599.
    code, title, detail : str
        As sent; ``detail`` says what would be right.
    errors : list of dict
        For bad input: ``path`` and ``message`` of each fault.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code") or f"HTTP{status}")
        self.title = str(problem.get("title") or "")
        self.detail = str(problem.get("detail") or "")
        errors = problem.get("errors")
        self.errors: list[dict[str, Any]] = (
            [error for error in errors if isinstance(error, dict)]
            if isinstance(errors, list)
            else []
        )
        super().__init__(self._line())

    def _line(self) -> str:
        line = self.detail or self.title or f"the governor answered {self.status}"
        told = [
            f"{error.get('path')}: {error.get('message')}"
            for error in self.errors
            if str(error.get("message")) not in line
        ]
        return " · ".join([line, *told])


@dataclass(frozen=True)
class Event:
    """One server-sent event: its id to resume from, its name and its data."""

    id: str
    name: str
    data: Any


def governor_url(environ: Mapping[str, str]) -> str:
    """Where the governor is, from ``ALLOTMENT_URL`` or what JupyterHub tells its servers.

    Raises
    ------
    NotConfigured
        If neither says where.

    >>> governor_url({"JUPYTERHUB_PUBLIC_HUB_URL": "https://gpu.example.org/hub/"})
    'https://gpu.example.org/services/allotment/'
    """
    url = environ.get("ALLOTMENT_URL", "").strip()
    if not url:
        hub = environ.get("JUPYTERHUB_PUBLIC_HUB_URL", "").strip().rstrip("/")
        if hub.endswith("/hub"):
            url = f"{hub[: -len('/hub')]}/services/allotment/"
    if not url:
        raise NotConfigured(
            "where Allotment runs is not known: set ALLOTMENT_URL, for example to "
            "https://hub.example.org/services/allotment/"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise NotConfigured(
            f"ALLOTMENT_URL is {url!r}; it has to begin with http:// or https:// and name a host"
        )
    url = url.rstrip("/")
    if url.endswith(f"/{API}"):
        url = url[: -len(f"/{API}")]
    return f"{url}/"


class _NoRedirects(HTTPRedirectHandler):
    """The API never redirects; a redirect is a login page, and the token must not follow it."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class Client:
    """Calls of the governor's REST interface, one method each; all answers are plain dicts.

    Parameters
    ----------
    url : str or None
        Address of the service, up to and with ``/services/allotment/``. None takes
        ``ALLOTMENT_URL``, else what JupyterHub tells its servers.
    token : str or None
        None takes ``ALLOTMENT_TOKEN``, else ``JUPYTERHUB_API_TOKEN``.
    timeout : float
        Seconds until an unanswered call is given up, above 0.

    Raises
    ------
    NotConfigured
        If neither arguments nor environment say where or as whom.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        environ: Mapping[str, str] | None = None,
        opener: OpenerDirector | None = None,
    ) -> None:
        env = os.environ if environ is None else environ
        self.url = governor_url({"ALLOTMENT_URL": url} if url else env)
        found = token or env.get("ALLOTMENT_TOKEN") or env.get("JUPYTERHUB_API_TOKEN") or ""
        self._token = found.strip()
        if not self._token or not self._token.isprintable():
            raise NotConfigured(
                "no token: set ALLOTMENT_TOKEN to one that the hub's Token page gives you"
            )
        self.timeout = timeout
        self.server_time: str | None = None
        self._opener = opener or build_opener(_NoRedirects())

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # --- reading

    def me(self) -> dict[str, Any]:
        """Tenants with quotas, own leases, requests and notices."""
        return _mapping(self.call("GET", "me"))

    def capacity(self) -> dict[str, Any]:
        """Pools, flavors and nodes: what serves, what is free, and what is neither, by cause."""
        return _mapping(self.call("GET", "capacity"))

    def usage(self, **filters: str) -> dict[str, Any]:
        """GPU-hours and what they cost: own; for owners of their tenants, for admins of all."""
        return _mapping(self.call("GET", "usage", query=filters))

    def requests(self, **filters: str) -> list[dict[str, Any]]:
        """Own requests; for owners those of their tenants, for admins all."""
        return _rows(self.call("GET", "requests", query=filters), "requests")

    def request(self, request_id: str) -> dict[str, Any]:
        return _mapping(self.call("GET", f"requests/{_segment(request_id)}"))

    def leases(self, **filters: str) -> list[dict[str, Any]]:
        return _rows(self.call("GET", "leases", query=filters), "leases")

    # --- changing

    def submit(
        self, wants: Mapping[str, Any], *, kind: str = "session", key: str | None = None
    ) -> dict[str, Any]:
        """Ask for GPUs. The same ``key`` twice gives the same request once.

        Parameters
        ----------
        wants : mapping
            ``gpus`` and, optional, ``flavor tenant class pool nodes duration interruptible …``.
        kind : {"session", "job", "service"}
        key : str or None
            Idempotency key; None makes a new one for this call.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return _mapping(self.call("POST", "requests", {"kind": kind, **wants}, headers=headers))

    def preview(self, wants: Mapping[str, Any], *, kind: str = "session") -> dict[str, Any]:
        """What would be decided now, the forecast, and alternatives that start sooner."""
        return _mapping(self.call("POST", "requests/preview", {"kind": kind, **wants}))

    def amend(self, request_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change what a waiting request asks for; asking only for less keeps its age."""
        return _mapping(self.call("PATCH", f"requests/{_segment(request_id)}", dict(changes)))

    def cancel(self, request_id: str) -> dict[str, Any]:
        return _mapping(self.call("DELETE", f"requests/{_segment(request_id)}"))

    def claim(self, request_id: str) -> dict[str, Any]:
        """Take what is held, or bring a parked request back into the line with its age."""
        return _mapping(self.call("POST", f"requests/{_segment(request_id)}/claim", {}))

    def renew(self, lease_id: str) -> dict[str, Any]:
        return _mapping(self.call("POST", f"leases/{_segment(lease_id)}/renew", {}))

    def keep(self, lease_id: str) -> dict[str, Any]:
        """Answer a notice: the session is still wanted."""
        return _mapping(self.call("POST", f"leases/{_segment(lease_id)}/keep", {}))

    def release(self, lease_id: str) -> dict[str, Any]:
        """Give the devices back now; the session is stopped first."""
        return _mapping(self.call("POST", f"leases/{_segment(lease_id)}/release", {}))

    # --- following

    def events(self, last_id: str | None = None) -> Iterator[Event]:
        """The stream of changes from now, or after ``last_id``; ends when the stream does.

        Raises
        ------
        Unreachable
            If the stream cannot be opened or falls silent.
        """
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        request = self._request("GET", "events", None, headers, None)
        answer = self._open(request, STREAM_SILENCE_SECONDS)
        with answer:
            try:
                yield from _parse_events(answer)
            except (OSError, HTTPException) as error:
                raise Unreachable(f"the stream of {self.url} broke off: {error}") from error

    def wait(
        self,
        request_id: str,
        *,
        states: frozenset[str] = FINAL | {"granted"},
        retry_seconds: float = 5.0,
        stop: threading.Event | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The request each time that something about it changes, until it is in ``states``.

        A lost connection is tried again after ``retry_seconds``: the place in the line does not
        depend on it.
        """
        stopped = stop or threading.Event()
        shown: dict[str, Any] | None = None
        last_id: str | None = None
        while not stopped.is_set():
            try:
                shown_now = self.request(request_id)
                if shown_now != shown:
                    shown = shown_now
                    yield shown_now
                if shown_now.get("state") in states:
                    return
                for event in self.events(last_id):
                    last_id = event.id or last_id
                    if event.name in ("request", "lease", "notice", "hello"):
                        shown_now = self.request(request_id)
                        if shown_now != shown:
                            shown = shown_now
                            yield shown_now
                        if shown_now.get("state") in states:
                            return
            except Unreachable:
                pass
            stopped.wait(retry_seconds)

    # --- the call itself

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One call of the interface, for what has no method of its own.

        Raises
        ------
        Refused
            For every answer from 400 on.
        Unreachable
            If there is none, or it is not JSON.
        """
        request = self._request(method, path, body, headers, query)
        with self._open(request, self.timeout) as answer:
            try:
                data = answer.read(MAX_ANSWER_BYTES + 1)
            except (OSError, HTTPException) as error:
                raise Unreachable(f"{self.url} broke off its answer: {error}") from error
        if len(data) > MAX_ANSWER_BYTES:
            raise Unreachable(f"{self.url} sent more than {MAX_ANSWER_BYTES >> 20} MiB")
        if not data:
            return {}
        try:
            return json.loads(data)
        except ValueError:
            raise Unreachable(
                f"{self.url} answered with something else than JSON; is the address right?"
            ) from None

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        query: Mapping[str, str] | None,
    ) -> Request:
        url = f"{self.url}{API}/{path}"
        if query:
            url += "?" + urlencode(query)
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        request = Request(url, data=data, method=method)  # noqa: S310  # scheme checked by governor_url
        request.add_header("Authorization", f"token {self._token}")
        request.add_header("Accept", "application/json")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        return request

    def _open(self, request: Request, timeout: float) -> Any:
        try:
            answer = self._opener.open(request, timeout=timeout)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (URLError, OSError, HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise Unreachable(
                f"Allotment does not answer at {self.url} ({cause}); running sessions go on"
            ) from error
        self._note_time(answer.headers.get("Date"))
        return answer

    def _refusal(self, error: HTTPError) -> AllotmentError:
        self._note_time(error.headers.get("Date"))
        if 300 <= error.code < 400:
            return Refused(
                401,
                {
                    "code": "NotLoggedIn",
                    "detail": f"{self.url} sends this token to a login page: the token is not "
                    "valid (any more), or may not reach the service allotment",
                },
            )
        try:
            problem = json.loads(error.read(1 << 20))
        except (ValueError, OSError, HTTPException):
            problem = None
        if not isinstance(problem, dict):
            problem = {}
            if error.code in (502, 503, 504):
                return Unreachable(f"Allotment is not up at {self.url} (HTTP {error.code})")
            if error.code in (401, 403):
                problem["detail"] = (
                    f"the token is not accepted at {self.url} (HTTP {error.code}); it needs the "
                    "scope access:services!service=allotment"
                )
            elif error.code == 404:
                problem["detail"] = f"there is nothing at {request_path(error.url)}"
        return Refused(error.code, problem)

    def _note_time(self, date: str | None) -> None:
        try:
            self.server_time = parsedate_to_datetime(date).isoformat() if date else None
        except (TypeError, ValueError):
            self.server_time = None


def request_path(url: str | None) -> str:
    """The path of an address: what may be shown, without a query that could hold a secret."""
    return urlsplit(url or "").path


def _segment(name: str) -> str:
    if not name or name in (".", ".."):
        raise ValueError(f"{name!r} is not an id")
    return quote(name, safe="")


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreachable("the governor sent a list where an object was expected")
    return value


def _rows(value: Any, key: str) -> list[dict[str, Any]]:
    """A list, whether sent bare or under its name (with paging beside it)."""
    rows = value.get(key, value.get("items")) if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise Unreachable(f"the governor sent no list of {key}")
    return [row for row in rows if isinstance(row, dict)]


def _parse_events(lines: Any) -> Iterator[Event]:
    """Server-sent events from an open answer, by the rules of the HTML standard (9.2.6)."""
    event_id, name, data = "", "message", list[str]()
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                text = "\n".join(data)
                try:
                    value = json.loads(text)
                except ValueError:
                    value = text
                yield Event(event_id, name, value)
            name, data = "message", []
            continue
        field, _, value_text = line.partition(":")
        value_text = value_text.removeprefix(" ")
        if field == "data":
            data.append(value_text)
        elif field == "event":
            name = value_text
        elif field == "id" and "\0" not in value_text:
            event_id = value_text
