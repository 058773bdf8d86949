"""The routes of the pages. Each asks who looks, sends strangers to log in, and fills a shell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from tornado.httputil import url_concat
from tornado.web import RequestHandler

from allotment_hub import sentences
from allotment_hub.web.handler import BaseHandler, problem_of
from allotment_hub.web.identity import Identity, viewer
from allotment_hub.web.problems import Problem

from .assets import ASSETS_PATH, Assets, assets_hash

LANGUAGE_COOKIE = "allotment-lang"
_ID = re.compile(r"[A-Za-z0-9_.~-]{1,128}")


@dataclass(frozen=True, slots=True)
class Shell:
    """A page: its template and script, and who may open it."""

    name: str
    title: str
    admin: bool = False


HOME = Shell("home", "GPUs")
NEW = Shell("new", "New session")
WAITING = Shell("waiting", "Waiting room")
ENDED = Shell("ended", "Session ended")
CONSOLE = Shell("console", "Console", admin=True)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("allotment_hub.web.pages"),
        # Everything is escaped; no template marks anything as safe.
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def language_of(handler: RequestHandler) -> str:
    """The language chosen on the page, else the one that the browser prefers."""
    chosen = handler.get_cookie(LANGUAGE_COOKIE)
    if chosen in sentences.LANGUAGES:
        return str(chosen)
    return sentences.choose_language(handler.request.headers.get("Accept-Language"))


def page_html(handler: BaseHandler, template: str, title: str, **more: Any) -> str:
    """A page as text.

    Parameters
    ----------
    handler : BaseHandler
        Its site says where things are; ``site.settings`` may hold ``hub_prefix`` (``/hub/``;
        absent where the governor stands alone), ``hub_host`` (where the hub has a host of its
        own, with subdomains), ``base_url`` and ``logo_url``.
    template : str
        Name of the template without its ending.
    """
    lang = language_of(handler)
    messages: Mapping[str, str] = sentences.catalogue(lang).get("messages", {})
    site = handler.site
    hub = site.settings.get("hub_prefix")
    host = site.settings.get("hub_host") or ""
    base = site.settings.get("base_url", "/")
    if hub and host:
        hub = host + hub
        base = hub  # the hub knows on which host a user's server is
    context = {
        "_": lambda message: messages.get(message, message),
        "lang": "zh-Hans" if lang == "zh" else "en",
        "language": lang,
        "title": messages.get(title, title),
        "page": template,
        "prefix": site.prefix,
        "assets": f"{site.prefix}assets/{assets_hash()}/",
        "hub": hub,
        "hub_look": bool(hub) and not host,  # the content policy lets no other host in
        "base": base,
        "logo": site.settings.get("logo_url") or (f"{hub}logo" if hub else None),
        "user": None,
        "admin": False,
        "xsrf": "",
        "id": None,
        "query": {},
        **more,
    }
    return _environment().get_template(f"{template}.html").render(context)


class PageHandler(BaseHandler):
    """One page."""

    SUPPORTED_METHODS = ("GET",)

    def initialize(self, **more: Any) -> None:
        """Take which page this is."""
        super().initialize(**more)
        self.page: Shell = more["shell"]

    async def get(self, id: str | None = None) -> None:
        """Show the page, or the way to log in."""
        self.check_rate()
        identity = await self.identify(fresh=False)
        if identity is None:
            self._to_login()
            return
        if self.page.admin and not self._is_admin(identity):
            raise Problem(403, "Forbidden", "This page is for administrators.")
        if id is not None and not _ID.fullmatch(id):
            raise Problem(404, "NotFound", "There is nothing at this address.")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self._html(identity, id))

    def _html(self, identity: Identity, id: str | None) -> str:
        query = {
            name: self.get_query_argument(name)[:2000]
            for name in self.request.query_arguments
            if name != "_xsrf"
        }
        return page_html(
            self,
            self.page.name,
            self.page.title,
            user=identity.name,
            admin=self._is_admin(identity),
            xsrf=self.xsrf_token.decode("ascii"),
            id=id,
            query=json.dumps(query, ensure_ascii=False),
        )

    def _is_admin(self, identity: Identity) -> bool:
        """Whether to show what is for admins; the interface itself decides again at each call."""
        governor = self.site.service.governor
        return viewer(identity, governor.state.policy if governor else None).admin

    def _to_login(self) -> None:
        url = self.site.authenticator.login_url(self)
        if url is None:
            raise Problem(401, "NotAuthenticated", "Log in to see this page.")
        if self.site.settings.get("hub_auth") is None:
            # The hub's way to log in remembers by itself where it began.
            url = url_concat(url, {"next": self.request.uri or self.site.prefix})
        self.redirect(url)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A page says what is wrong as a page."""
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        problem = problem_of(error, status_code)
        self.set_status(problem.status)
        for name, value in problem.headers().items():
            self.set_header(name, value)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page_html(self, "error", "Error", problem=problem, query="{}"))


def page_handlers() -> list[tuple[str, type[RequestHandler], dict[str, Any]]]:
    """The routes of all pages and assets, relative to the prefix of the service."""
    pages: list[tuple[str, Shell]] = [
        ("", HOME),
        ("new", NEW),
        ("spawn", NEW),  # what the hub's spawn form calls it
        ("waiting/([^/]+)", WAITING),
        ("ended/([^/]+)", ENDED),
        ("ended", ENDED),  # the last session of ?server=NAME
        ("console", CONSOLE),
    ]
    return [
        (ASSETS_PATH, Assets, {}),
        *((path, PageHandler, {"shell": shell}) for path, shell in pages),
    ]
