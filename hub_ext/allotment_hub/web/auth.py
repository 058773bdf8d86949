"""Who asks: by the hub's OAuth, or by a token file where the governor stands alone."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

from tornado.web import RequestHandler

from ..clock import Clock
from .identity import ADMIN_SCOPE, Identity
from .problems import Problem

STALE_AFTER_MS = 30_000
"""How old the hub's word may be for reading. Changes ask afresh."""

MOST_REMEMBERED = 10_000


def digest(secret: str) -> str:
    """A credential's name: enough to tell two apart, useless to whoever reads it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Authenticator(Protocol):
    """What the handlers need of a way to authenticate."""

    mode: Literal["hub", "standalone"]

    async def identify(self, handler: RequestHandler, *, fresh: bool) -> Identity | None:
        """Who sends this request; None for nobody.

        Raises
        ------
        Problem
            403 when a browser's change lacks its XSRF token, 503 when the hub cannot be asked.
        """

    async def recheck(self, identity: Identity) -> Identity | None:
        """The same identity as of now (at most 30 s old), None when it no longer holds."""

    def login_url(self, handler: RequestHandler) -> str | None:
        """Where a browser logs in."""


class Remembered:
    """Identities by credential, for at most 30 s, asked for once however many want one."""

    def __init__(self, clock: Clock, ask: Callable[[str], Awaitable[Identity | None]]) -> None:
        self._clock = clock
        self._ask = ask
        self._known: OrderedDict[str, tuple[int, Identity | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Identity | None]] = {}

    async def get(self, token: str, *, fresh: bool) -> Identity | None:
        """The identity behind a token; ``fresh`` does not take a remembered one."""
        key = digest(token)
        now = self._clock.now_ms()
        known = self._known.get(key)
        if known is not None and not fresh and now - known[0] < STALE_AFTER_MS:
            return known[1]
        running = self._asking.get(key)
        if running is None or fresh:
            running = asyncio.ensure_future(self._refresh(key, token))
            self._asking[key] = running
        return await asyncio.shield(running)

    async def _refresh(self, key: str, token: str) -> Identity | None:
        asked_at = self._clock.now_ms()
        me = asyncio.current_task()
        try:
            found = await self._ask(token)
            if found is not None:
                found = replace(found, credential=key, checked_at=asked_at)
            self._known[key] = (asked_at, found)
            self._known.move_to_end(key)
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
            return found
        finally:
            if self._asking.get(key) is me:
                del self._asking[key]

    def forget(self, token: str) -> None:
        """Ask again next time."""
        self._known.pop(digest(token), None)


def bound_server(model: dict[str, Any]) -> str | None:
    """The server that a hub token belongs to, None for a person's.

    A server's own token has access to exactly one server, by name, and does not have its
    owner's scopes; a person's token has access to all servers of the person, or to none.
    """
    name = model.get("name", "")
    scopes = model.get("scopes") or ()
    servers = {
        scope.partition("!server=")[2]
        for scope in scopes
        if scope.startswith("access:servers!server=")
    }
    posts = any(
        scope.startswith("users:activity!user=") or scope == "users:activity" for scope in scopes
    )
    wide = {"access:servers", f"access:servers!user={name}", f"read:users!user={name}", "self"}
    if len(servers) != 1 or not posts or wide & set(scopes):
        return None
    owner, _, server = servers.pop().partition("/")
    return server if owner == name else None


def identity_of(model: dict[str, Any]) -> Identity | None:
    """The identity that a hub's model of a user or a service describes; None for anything else.

    A service has no groups, so it has no quota; what it may do comes from its scopes alone. Its
    name is no user's: that has no colon in JupyterHub unless an operator allows it.
    """
    if not isinstance(model.get("name"), str):
        return None
    if model.get("kind") == "service":
        return Identity(
            name=f"service:{model['name']}", admin=ADMIN_SCOPE in (model.get("scopes") or ())
        )
    if model.get("kind", "user") != "user":
        return None
    groups = model.get("groups") or ()
    server = bound_server(model)
    return Identity(
        name=model["name"],
        groups=frozenset(group for group in groups if isinstance(group, str)),
        admin=server is None and ADMIN_SCOPE in (model.get("scopes") or ()),
        server=server,
    )


class HubAuthenticator:
    """Tokens and browser cookies that the hub vouches for.

    Parameters
    ----------
    hub_auth : jupyterhub.services.auth.HubOAuth
        Its own cache is not used: its entries would outlive the 30 s that reads may lag.
    """

    mode: Literal["hub", "standalone"] = "hub"

    def __init__(self, hub_auth: Any, clock: Clock) -> None:
        self._hub_auth = hub_auth
        self._remembered = Remembered(clock, self._ask)
        self._secrets: OrderedDict[str, str] = OrderedDict()

    async def _ask(self, token: str) -> Identity | None:
        try:
            model = await self._hub_auth.user_for_token(token, use_cache=False, sync=False)
        except Exception as error:
            raise Problem(
                503,
                "HubUnreachable",
                "The hub cannot be asked who you are just now; try again in a few seconds.",
                retry_after_ms=3000,
            ) from error
        if model is None:
            return None
        required = self._hub_auth.access_scopes
        if required and not self._hub_auth.check_scopes(required, model):
            raise Problem(
                403,
                "MissingScope",
                f"This token lacks the scope {min(required)}, needed to reach the governor.",
            )
        return identity_of(model)

    async def identify(self, handler: RequestHandler, *, fresh: bool) -> Identity | None:
        """See :class:`Authenticator`."""
        token = self._hub_auth.get_token(handler, in_cookie=False)
        if token:
            # What HubOAuth's XSRF check looks at; it has no public name.
            setattr(handler, "_token_authenticated", True)  # noqa: B010 (mypy does not know it)
            return await self._known(token, fresh, "token")
        token = self._hub_auth._get_token_cookie(handler)  # noqa: SLF001 (HubAuth has no public reader of its cookie)
        if not token:
            return None
        # Also asked for reads that a script sends: pages of users' servers share our origin.
        handler.check_xsrf_cookie()
        return await self._known(token, fresh, "cookie")

    async def _known(
        self, token: str, fresh: bool, via: Literal["token", "cookie"]
    ) -> Identity | None:
        found = await self._remembered.get(token, fresh=fresh)
        if found is None:
            return None
        self._secrets[found.credential] = token
        self._secrets.move_to_end(found.credential)
        while len(self._secrets) > MOST_REMEMBERED:
            self._secrets.popitem(last=False)
        return replace(found, via=via)

    async def recheck(self, identity: Identity) -> Identity | None:
        """See :class:`Authenticator`."""
        token = self._secrets.get(identity.credential)
        if token is None:
            return None
        found = await self._remembered.get(token, fresh=False)
        return None if found is None else replace(found, via=identity.via)

    def login_url(self, handler: RequestHandler) -> str | None:
        """See :class:`Authenticator`."""
        return str(handler.get_login_url())
