"""One handler for all calls of the table, and the base of all other handlers.

The order is always the same: size, rate, who, XSRF, may they, phase, query, body, call. An error
at any step is one answer of the same form, and tells nothing that the asker may not know.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any

from tornado.web import HTTPError, RequestHandler

from ..domain.commands import Refusal
from ..governor.governor import NotDeciding
from .identity import Identity, viewer
from .problems import (
    CONTENT_TYPE,
    STATUS_OF_REFUSAL,
    Problem,
    forbidden,
    not_found,
    unauthenticated,
)
from .routes import Answer, Call, Route
from .schema import Nothing, read_body, read_query
from .site import Site, unavailable

log = logging.getLogger("allotment.web")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

CSP = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
        "font-src 'self'", "connect-src 'self'", "form-action 'self'", "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)  # fmt: skip


class BaseHandler(RequestHandler):
    """Headers, limits, identity and errors: what pages and calls have in common."""

    site: Site
    identity: Identity | None = None

    @property
    def _site(self) -> Site:
        site: Site = self.application.settings["site"]
        return site

    def initialize(self, **_more: Any) -> None:
        """Take the shared parts from the application."""
        self.site = self._site

    def set_default_headers(self) -> None:
        """Nothing is cached, framed, sniffed or run that is not ours."""
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", CSP)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def check_rate(self) -> None:
        """Raise the 429 that is due, before anybody is looked up."""
        self.site.limits.check(
            self.request.remote_ip or "",
            self.request.headers.get("Authorization"),
            self.site.uptime.now_ms(),
        )

    async def identify(self, *, fresh: bool) -> Identity | None:
        """Who asks. XSRF is checked on the way, for whoever comes with a cookie."""
        try:
            found = await self.site.authenticator.identify(self, fresh=fresh)
            # Else the hub's mixin would ask the hub a second time, and block the loop meanwhile.
            self.current_user = found
            return found
        except HTTPError as error:
            if error.status_code == 403:
                raise Problem(
                    403, "XsrfMissing",
                    "This browser request lacks its protection token; load the page again.",
                ) from None  # fmt: skip
            raise

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with a problem, whatever went wrong."""
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        problem = problem_of(error, status_code)
        if problem.status in (403, 404) and self.identity is not None and self.identity.bound:
            # What runs in a server tried what is not its business: worth a look by a person.
            log.warning(
                "the server %r of %r was refused %s %s (%d)", self.identity.server,
                self.identity.name, self.request.method, self.request.path[:200], problem.status,
            )  # fmt: skip
        self.show_problem(problem)

    def show_problem(self, problem: Problem) -> None:
        """Write a problem as the whole answer."""
        self.set_status(problem.status)
        self.set_header("Content-Type", CONTENT_TYPE)
        for name, value in problem.headers().items():
            self.set_header(name, value)
        if problem.status == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="allotment"')
        self.finish(json.dumps(problem.body(), ensure_ascii=False, default=str))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A problem is an answer and no fault: only faults are logged, without the request."""
        if isinstance(value, (Problem, HTTPError, Refusal, NotDeciding)):
            return
        log.error("%s %s failed", self.request.method, self.request.path, exc_info=(typ, value, tb))


def problem_of(error: BaseException | None, status: int = 500) -> Problem:
    """The problem that an exception stands for. An unknown one tells nothing of itself."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refusal):
        path = [] if error.field is None else [{"path": error.field, "message": error.detail}]
        return Problem(
            STATUS_OF_REFUSAL.get(error.code, 422), error.code, error.detail,
            extra={"errors": path} if path else {},
        )  # fmt: skip
    if isinstance(error, NotDeciding):
        return unavailable("failed")
    if isinstance(error, HTTPError):
        status = error.status_code
    codes = {
        400: ("BadInput", "This cannot be read as a request."),
        403: ("Forbidden", "This is not allowed."),
        404: ("NotFound", "There is nothing at this address."),
        405: ("MethodNotAllowed", "This address does not take this method."),
        413: ("TooLarge", "The body is too large."),
    }
    code, detail = codes.get(status, ("Fault", "The governor met a fault; it is in its log."))
    return Problem(status if 400 <= status <= 599 else 500, code, detail)


class ApiHandler(BaseHandler):
    """The calls of one path of the table."""

    SUPPORTED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

    def initialize(self, **more: Any) -> None:
        """Take the calls of this path."""
        super().initialize(**more)
        self.routes: Mapping[str, Route] = more["routes"]

    def check_xsrf_cookie(self) -> None:
        """Tornado's own check, where the hub's does not take its place."""
        super().check_xsrf_cookie()

    async def prepare(self) -> None:
        """Everything that must hold before the call is looked at."""
        route = self.routes.get(self.request.method or "")
        if route is None:
            self.set_header("Allow", ", ".join(sorted(self.routes)))
            raise HTTPError(405)
        self.route = route
        if len(self.request.body or b"") > route.most_bytes:
            raise Problem(413, "TooLarge", f"The body may have {route.most_bytes} bytes at most.")
        self.check_rate()
        await self._admit(route)

    async def _admit(self, route: Route) -> None:
        if route.who == "anyone":
            if route.identify:
                self.identity = await self.identify(fresh=False)
            return
        if route.who == "hub":
            self._check_gate()
            return
        self.identity = await self.identify(fresh=route.change or route.fresh)
        if self.identity is None:
            raise unauthenticated()
        if self.identity.bound and not route.servers:
            raise forbidden("A server's own token may not do this; use a token of your own.")
        if route.who == "server" and not self.identity.bound:
            raise forbidden("Only a server's own token may report for it.")
        if route.who in ("owner", "admin"):
            self._check_role(route)

    def _check_gate(self) -> None:
        """The hub proves itself with the token that only it and the governor hold. What came
        through the public proxy is not from the hub.
        """
        if "X-Forwarded-For" in self.request.headers:
            raise HTTPError(404)
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        expected = self.site.gate_token
        given = token.strip() if scheme.lower() in ("token", "bearer") else ""
        same = hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
        if not expected or not same:
            raise unauthenticated() if not given else not_found("call")

    def _check_role(self, route: Route) -> None:
        assert self.identity is not None  # noqa: S101 (narrowing: _admit has just set it)
        seen = viewer(self.identity, self.site.governor.state.policy)
        if seen.admin or (route.who == "owner" and seen.owns):
            return
        needed = "an admin" if route.who == "admin" else "an owner of a tenant or an admin"
        raise forbidden(f"This takes {needed}.")

    async def _call(self, **path: str) -> None:
        route = self.route
        if route.needs_governor:
            await self._check_phase(route)
        arguments = {
            name: [value.decode("utf-8", "replace") for value in values]
            for name, values in self.request.query_arguments.items()
        }
        arguments.pop("_xsrf", None)
        query = read_query(route.query or Nothing, arguments)
        body = (
            read_body(
                route.body or Nothing,
                self.request.body,
                self.request.headers.get("Content-Type", ""),
            )
            if self.request.method not in SAFE
            else None
        )
        call = Call(
            site=self.site, identity=self.identity, path=path, query=query, body=body,
            headers=self.request.headers,
        )  # fmt: skip
        try:
            answer = await route.handler(call)
        except NotDeciding:
            raise unavailable(self.site.service.phase, self.site.service.detail) from None
        self._answer(answer)

    async def _check_phase(self, route: Route) -> None:
        governor = self.site.governor
        if route.change and self.site.service.phase not in ("ready", "reconciling"):
            raise unavailable(self.site.service.phase, self.site.service.detail)
        try:
            # What is shown is durable: nobody is told what a crash could take back.
            await governor.settled()
        except NotDeciding:
            raise unavailable(self.site.service.phase, self.site.service.detail) from None

    def _answer(self, answer: Answer) -> None:
        self.set_status(answer.status)
        for name, value in answer.headers.items():
            self.set_header(name, value)
        if answer.raw is not None:
            self.set_header("Content-Type", answer.content_type)
            self.finish(answer.raw)
        elif answer.status == 204:
            self.clear_header("Content-Type")
            self.finish()
        else:
            self.set_header("Content-Type", "application/json; charset=utf-8")
            self.finish(json.dumps(answer.body, ensure_ascii=False, separators=(",", ":")))

    async def get(self, **path: str) -> None:
        """Answer a GET of the table."""
        await self._call(**path)

    async def post(self, **path: str) -> None:
        """Answer a POST of the table."""
        await self._call(**path)

    async def put(self, **path: str) -> None:
        """Answer a PUT of the table."""
        await self._call(**path)

    async def patch(self, **path: str) -> None:
        """Answer a PATCH of the table."""
        await self._call(**path)

    async def delete(self, **path: str) -> None:
        """Answer a DELETE of the table."""
        await self._call(**path)


class Unknown(BaseHandler):
    """Every address that is not in the table."""

    def prepare(self) -> None:
        """Say that there is nothing here, within the rate that all have."""
        self.check_rate()
        raise HTTPError(404)
