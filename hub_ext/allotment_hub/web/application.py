"""The tornado application: all calls of the table, the pages, and nothing else."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from jupyterhub.services.auth import HubOAuthenticated
from tornado.web import Application, RequestHandler

from . import api
from .handler import ApiHandler, BaseHandler, Unknown
from .login import LoginHandler, OAuthCallbackHandler
from .routes import by_path
from .site import Site
from .stream import StreamHandler

log = logging.getLogger("allotment.web")

MOST_BODY = 1024 * 1024
"""What tornado reads at all; each call has its own, smaller cap."""

SECRET = re.compile(r"(?i)\b(_xsrf|token|code|state|access_token)=[^&\s]*")


def scrub(uri: str) -> str:
    """An address without what must not reach a log.

    >>> scrub("/events?_xsrf=abc&x=1"), scrub("/a?token=s3cret")
    ('/events?_xsrf=[…]&x=1', '/a?token=[…]')
    """
    return SECRET.sub(lambda match: f"{match[1]}=[…]", uri)


def log_request(handler: RequestHandler) -> None:
    """One line a request: no headers, no bodies, no secrets of the query."""
    status = handler.get_status()
    # A 503 is a phase, which is logged when it begins; other faults are worth a warning.
    fault = status >= 500 and status != 503
    level = logging.WARNING if fault else logging.DEBUG if status < 400 else logging.INFO
    uri = "".join(c if c.isprintable() else "?" for c in scrub(handler.request.uri or ""))
    log.log(
        level, "%d %s %s %.1f ms", status, handler.request.method, uri[:500],
        1000 * handler.request.request_time(),
    )  # fmt: skip


def with_hub(kind: type[RequestHandler], hub_auth: Any) -> type[RequestHandler]:
    """A handler with the hub's XSRF protection and log-in in the place of tornado's own."""
    if hub_auth is None or not issubclass(kind, BaseHandler):
        return kind
    members = {
        "_hub_auth": hub_auth,
        # The mixin's own asks the hub and blocks the loop until it answers.
        "get_current_user": lambda _handler: None,
    }
    return type(kind.__name__, (HubOAuthenticated, kind), members)


def placed(site: Site, pages: Sequence[Any]) -> list[Any]:
    """Pages, given relative to the prefix, where they belong."""
    hub_auth = site.settings.get("hub_auth")
    return [
        (re.escape(site.prefix) + path, with_hub(kind, hub_auth), *rest)
        for path, kind, *rest in pages
    ]


def handlers(site: Site) -> list[Any]:
    """All calls below the prefix."""
    hub_auth = site.settings.get("hub_auth")
    call = with_hub(ApiHandler, hub_auth)
    stream = with_hub(StreamHandler, hub_auth)
    prefix = re.escape(site.prefix)
    found: list[Any] = []
    for methods in by_path().values():
        routes = list(methods.values())
        root = prefix if routes[0].gate else f"{prefix}api/v1/"
        kind = stream if any(route.stream for route in routes) else call
        pattern = f"{root}{routes[0].pattern.lstrip('/')}"
        found.append((pattern, kind, {"routes": methods}))
    # Where probes and monitoring look without knowing the version.
    for name in ("health", "ready", "metrics"):
        found.append((f"{prefix}{name}", call, {"routes": by_path()[f"/{name}"]}))
    if hub_auth is not None:
        found.append((f"{prefix}oauth_callback", OAuthCallbackHandler))
    else:
        found.append((f"{prefix}login", LoginHandler))
    return found


def make_app(
    site: Site, cookie_secret: bytes, pages: Sequence[Any] = (), **settings: Any
) -> Application:
    """Build the application.

    Parameters
    ----------
    site : Site
    cookie_secret : bytes
        Signs cookies; kept over restarts, or everybody is logged out by one.
    pages : sequence
        Handlers of the pages, as tornado takes them, with addresses relative to the prefix.
    """
    return Application(
        [*handlers(site), *placed(site, pages), (r".*", Unknown)],
        site=site,
        prefix=site.prefix,
        hub_prefix=site.settings.get("hub_prefix", "/hub/"),
        cookie_secret=cookie_secret,
        xsrf_cookie_kwargs={"path": site.prefix, "samesite": "Strict"},
        log_function=log_request,
        websocket_ping_interval=None,
        autoreload=False,
        compress_response=False,
        **settings,
    )


__all__ = ["MOST_BODY", "api", "handlers", "log_request", "make_app", "scrub"]
