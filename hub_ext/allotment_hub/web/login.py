"""How a browser logs in: by the hub's OAuth, or with a token where the governor stands alone."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuthCallbackHandler

from .handler import BaseHandler
from .pages import page_html
from .tokens import COOKIE, TokenFileAuthenticator


class OAuthCallbackHandler(HubOAuthCallbackHandler):
    """The end of the hub's OAuth: its own handler, with ours to say how it looks."""

    @property
    def hub_auth(self) -> Any:
        """The one of this application."""
        return self.application.settings["site"].settings["hub_auth"]


def local_path(url: str | None, prefix: str) -> str:
    """An address below the prefix, or the prefix itself: never another site.

    >>> local_path("/services/allotment/new?server=x", "/services/allotment/")
    '/services/allotment/new?server=x'
    >>> [local_path(u, "/a/") for u in ("//evil/a/", "/a/../b", "https://evil", "/a//b", None)]
    ['/a/', '/a/', '/a/', '/a/', '/a/']
    """
    if not url or not url.startswith(prefix) or "\\" in url or not url.isprintable():
        return prefix
    parts = urlsplit(url)
    steps = parts.path.split("/")
    if parts.scheme or parts.netloc or "//" in parts.path or ".." in steps or "." in steps:
        return prefix
    return url


class LoginHandler(BaseHandler):
    """Takes a token once and keeps it in a signed cookie that no script reads."""

    def prepare(self) -> None:
        """Hold the rate, and XSRF for the form."""
        self.check_rate()
        if self.request.method == "POST":
            self.check_xsrf_cookie()

    def get(self) -> None:
        """Show the form."""
        self._show(wrong=False)

    def post(self) -> None:
        """Check the token."""
        token = self.get_body_argument("token", "").strip()
        authenticator = self.site.authenticator
        known = isinstance(authenticator, TokenFileAuthenticator) and authenticator.identity(token)
        if not known:
            self.set_status(403)
            self._show(wrong=True)
            return
        secure = self.request.protocol == "https"
        self.set_secure_cookie(
            COOKIE, token, expires_days=1, path=self.site.prefix, httponly=True, samesite="Lax",
            secure=secure,
        )  # fmt: skip
        self.redirect(local_path(self.get_body_argument("next", None), self.site.prefix))

    def _show(self, *, wrong: bool) -> None:
        following = local_path(self.get_argument("next", None), self.site.prefix)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(
            page_html(
                self, "login", "Log in", wrong=wrong, next=following,
                xsrf=self.xsrf_token.decode("ascii"),
            )
        )  # fmt: skip
