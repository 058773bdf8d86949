"""HTTP as a program and as a browser does it, to the demonstration's own hub on loopback."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, OpenerDirector, ProxyHandler, build_opener

from .waiting import DemoError

TIMEOUT_S = 60.0
SERVICE = "services/allotment/"


class NoAnswer(DemoError):
    """Nobody answers at an address, or with nothing usable."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and content of an answer; ``data`` is what its JSON says, None where it is none."""

    status: int
    data: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def said(self) -> str:
        """What a refusal says in words."""
        data = self.data if isinstance(self.data, dict) else {}
        return str(data.get("detail") or data.get("message") or f"HTTP {self.status}")


def call(method: str, url: str, token: str, body: Any = None) -> Answer:
    """Send one request with a token; NoAnswer where none comes back."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=TIMEOUT_S
    )
    headers = {"Accept": "application/json", "Authorization": f"token {token}"}
    content = None
    if body is not None:
        content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        connection.request(method, target, content, headers)
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"no answer from {url}: {error}") from None
    finally:
        connection.close()
    try:
        return Answer(response.status, json.loads(raw) if raw else None)
    except ValueError:
        return Answer(response.status, None)


class Person:
    """One user of the hub, by a token.

    Parameters
    ----------
    name, token : str
    url : str
        Address of the hub, such as ``http://127.0.0.1:8000``.
    """

    def __init__(self, name: str, token: str, url: str) -> None:
        self.name = name
        self._token = token
        self._url = url

    def governor(self, method: str, path: str, body: Any = None) -> Any:
        """Call the governor's REST interface; DemoError with its words when it refuses."""
        return self._sure(method, f"{self._url}/{SERVICE}api/v1/{path}", body)

    def hub(self, method: str, path: str, body: Any = None) -> Any:
        """Call the hub's REST interface; DemoError with its words when it refuses."""
        return self._sure(method, f"{self._url}/hub/api/{path}", body)

    def server(self, server: str = "", path: str = "api") -> Any:
        """Call the person's own single-user server, through the hub's proxy."""
        middle = f"{quote(self.name)}/{quote(server)}/" if server else f"{quote(self.name)}/"
        return self._sure("GET", f"{self._url}/user/{middle}{path}", None)

    def ask(self, gpus: float, flavor: str, server: str = "", start: str = "always") -> Any:
        """Ask for a session; the request as answered."""
        body = {
            "kind": "session", "gpus": gpus, "flavor": flavor, "server": server, "start": start,
        }  # fmt: skip
        return self.governor("POST", "requests", body)

    def _sure(self, method: str, url: str, body: Any) -> Any:
        answer = call(method, url, self._token, body)
        if not answer.ok:
            raise DemoError(f"{self.name}: {method} {url}: {answer.said}")
        return answer.data


class Browser:
    """Keeps cookies, follows redirects and logs in with a password, as a person's browser does."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._cookies = CookieJar()
        self._opener: OpenerDirector = build_opener(
            ProxyHandler({}), HTTPCookieProcessor(self._cookies)
        )

    def log_in(self, name: str, password: str) -> None:
        """Fill in the hub's log-in page; DemoError when it is not accepted."""
        self.get("hub/login")
        xsrf = next((one.value for one in self._cookies if one.name == "_xsrf"), "") or ""
        fields = {"username": name, "password": password, "_xsrf": xsrf}
        # Not to the page behind it: that would start a server.
        path = f"hub/login?{urlencode({'next': '/hub/home'})}"
        landed, _ = self._open(path, urlencode(fields).encode())
        if "/hub/login" in landed:
            raise DemoError(f"the hub does not let {name} log in")

    def get(self, path: str) -> str:
        """The page at a path, as text; DemoError unless it answers 200."""
        return self._open(path, None)[1]

    def _open(self, path: str, content: bytes | None) -> tuple[str, str]:
        address = f"{self._url}/{path}"
        try:
            with self._opener.open(address, content, timeout=TIMEOUT_S) as response:
                return response.url, response.read().decode("utf-8", "replace")
        except HTTPError as error:
            with error:
                raise DemoError(f"page {path}: HTTP {error.code}") from None
        except (URLError, OSError) as error:
            raise NoAnswer(f"page {path}: no answer: {error}") from None
