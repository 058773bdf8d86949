"""The governor as an application: its settings, and the one place where parts are put together."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from traitlets import Bool, Enum, Float, Integer, TraitError, Unicode, default, validate
from traitlets.config import Application

from . import gateapi
from .clock import Clock, SteadyClock
from .domain.amounts import AmountError, parse_duration
from .domain.inventory import Node
from .governor.actor import Pace
from .governor.life import FirstPolicy, Parts
from .governor.ports import SESSIONS
from .governor.service import Service
from .inventory import DeclaredInventory, Inventory, NvmlInventory
from .ledger import Ledger, RevisionMismatch
from .ledger.upgrading import upgrade
from .policyfile import load_inventory, load_policy, unknown_environment
from .runtime.servers import HubServers
from .runtime.standalone import StandaloneServers
from .web.application import MOST_BODY, make_app
from .web.auth import Authenticator, HubAuthenticator
from .web.early import Early
from .web.limits import Limits, Rate
from .web.pages import page_handlers
from .web.scrub import Scrubber
from .web.site import Site
from .web.tokens import TokenFileAuthenticator

CLOSE_WITHIN_S = 8.0
BIND_FOR_S = 60.0


class StartError(Exception):
    """The governor cannot start as it is set up; the message says what would be right."""


class PortTaken(Exception):
    """Somebody else has the port, and does not let go of it."""


class GovernorApp(Application):
    """All settings of ``allotment-hub serve``; each can stand in a configuration file as
    ``c.GovernorApp.NAME``.
    """

    name = "allotment-hub-serve"
    description = "The governor: decides who gets which GPUs, and sees to it."

    policy = Unicode("", help="Path of the policy file.").tag(config=True)
    database = Unicode(
        "sqlite:///allotment.sqlite", help="Address of the ledger: SQLite or PostgreSQL."
    ).tag(config=True)
    inventory = Unicode(
        "nvml", help="'nvml' for the devices of this machine, or the path of a declared inventory."
    ).tag(config=True)
    ip = Unicode("127.0.0.1", help="Address to listen on.").tag(config=True)
    port = Integer(0, help="Port to listen on; 0 takes that of the hub's service.").tag(config=True)
    prefix = Unicode(help="Where the service is mounted.").tag(config=True)
    standalone = Bool(
        False, help="Without a hub: tokens of a file, servers that are stand-ins."
    ).tag(config=True)
    tokens = Unicode("", help="Standalone: path of the token file.").tag(config=True)
    guest = Unicode(
        "",
        help="Standalone: the name as whom a request without a token counts. For demonstrations.",
    ).tag(config=True)
    start_after = Unicode("2s", help="Standalone: how long a start takes.").tag(config=True)
    stop_after = Unicode("1s", help="Standalone: how long a stop takes.").tag(config=True)
    cookie_secret_file = Unicode(
        help="Path of the file with the secret that signs cookies; made where it is missing."
    ).tag(config=True)
    parallel_starts = Integer(
        32, min=1, help="Servers that may come up at the same time; the others wait their turn."
    ).tag(config=True)
    parallel_stops = Integer(32, min=1, help="Servers that may go down at the same time.").tag(
        config=True
    )
    open_metrics = Bool(False, help="Show metrics to whoever asks.").tag(config=True)
    token_rate = Float(50.0, min=0, help="Requests a second that one token may send; 0: any.").tag(
        config=True
    )
    remote_rate = Float(500.0, min=0, help="Requests a second from one address; 0: any.").tag(
        config=True
    )
    migrate = Bool(
        True, help="Bring an older ledger to this version at the start, after a backup."
    ).tag(config=True)
    allow_network_filesystem = Bool(
        False, help="Put up with a ledger on a network file system, without its write-ahead log."
    ).tag(config=True)
    log_format_style = Enum(
        ["plain", "time"], "time", help="Whether log lines carry the time."
    ).tag(config=True)
    environ: Mapping[str, str] = os.environ
    early: Early | None = None
    """Who holds the port so far; None where it is still to be taken."""

    # -- settings with a reason ----------------------------------------------------------------

    @default("prefix")
    def _default_prefix(self) -> str:
        return self.environ.get("JUPYTERHUB_SERVICE_PREFIX") or "/services/allotment/"

    @validate("prefix")
    def _valid_prefix(self, proposal: Any) -> str:
        value = str(proposal["value"])
        if not value.startswith("/"):
            raise TraitError(f"prefix: {value!r} has to begin with a slash")
        return value if value.endswith("/") else f"{value}/"

    @default("cookie_secret_file")
    def _default_cookie_secret_file(self) -> str:
        if self.database.startswith("sqlite:///"):
            folder = Path(self.database.removeprefix("sqlite:///")).parent
            return str(folder / "allotment_cookie_secret")
        return "allotment_cookie_secret"

    def duration(self, name: str) -> int:
        """A setting that is a duration, in milliseconds."""
        try:
            return parse_duration(getattr(self, name))
        except AmountError as error:
            raise StartError(f"{name}: {error}") from None

    def address(self) -> tuple[str, int]:
        """Where to listen: as set, else where the hub expects its service."""
        if self.port:
            return self.ip, self.port
        url = urlsplit(self.environ.get("JUPYTERHUB_SERVICE_URL", ""))
        if url.hostname and url.port:
            return url.hostname, url.port
        if self.standalone:
            return self.ip, 8765
        raise StartError("port: say where to listen, as --port 8765")

    # -- parts ---------------------------------------------------------------------------------

    def open_ledger(self) -> Ledger:
        """Open the ledger; an older one is migrated first where that is allowed."""
        try:
            return self._open_ledger()
        except RevisionMismatch:
            if not self.migrate:
                raise
        now = SteadyClock()
        done = upgrade(self.database, now_ms=now.now_ms() + now.offset_ms())
        self.log.warning(
            "ledger migrated from %s to %s, backup %s", done.found, done.now, done.backup
        )
        return self._open_ledger()

    def _open_ledger(self) -> Ledger:
        return Ledger.open(self.database, allow_network=self.allow_network_filesystem)

    def read_policy(self) -> FirstPolicy | None:
        """The policy file; ValueError with all that is wrong with it."""
        if not self.policy:
            return None
        path = Path(self.policy)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
        loaded = load_policy(content, name=str(path))
        for remark in loaded.warnings:
            self.log.warning("%s", remark.text(str(path)))
        return FirstPolicy(
            policy=loaded.policy, digest=hashlib.sha256(content).hexdigest(), source=path.name
        )

    def make_inventory(self, clock: Clock, known: tuple[Node, ...]) -> Inventory:
        """The inventory that is set: of this machine, or as declared."""
        if self.inventory == "nvml":
            return NvmlInventory(clock.now_ms, remembered=known)
        return DeclaredInventory(load_inventory(Path(self.inventory)), clock.now_ms)

    def make_authenticator(self, uptime: Clock) -> tuple[Authenticator, HubOAuth | None]:
        """Who vouches for people: the hub, or the token file."""
        if self.standalone:
            if not self.tokens:
                raise StartError("tokens: a governor that stands alone needs --tokens FILE")
            try:
                return TokenFileAuthenticator(Path(self.tokens), self.guest or None), None
            except ValueError as error:
                raise StartError(str(error)) from None
        for name in ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL", "JUPYTERHUB_CLIENT_ID"):
            if not self.environ.get(name):
                raise StartError(
                    f"{name} is not set: the hub starts the governor with it; without a hub use "
                    "--standalone"
                )
        hub_auth = HubOAuth(parent=self, cache_max_age=1)
        return HubAuthenticator(hub_auth, uptime), hub_auth

    def make_service(self, authenticator: Authenticator) -> Service:
        """The governor's life with everything it acts through."""
        runtime: HubServers | StandaloneServers
        kinds = SESSIONS
        if isinstance(authenticator, TokenFileAuthenticator):
            runtime = StandaloneServers(
                start_after_ms=self.duration("start_after"),
                stop_after_ms=self.duration("stop_after"),
                groups_of=authenticator.groups,
            )
            kinds = frozenset({"session", "job", "service"})
        else:
            runtime = HubServers(
                self.environ["JUPYTERHUB_API_URL"], self.environ["JUPYTERHUB_API_TOKEN"]
            )
        service = Service(
            Parts(
                open_ledger=self.open_ledger,
                runtime=runtime,
                kinds=kinds,
                make_inventory=self.make_inventory,
                read_policy=self.read_policy,
                pace=Pace(starts=self.parallel_starts, stops=self.parallel_stops),
            )
        )
        if isinstance(runtime, StandaloneServers):
            runtime.lease_of = service.lease_of
        return service

    def check_files(self) -> None:
        """Look at the files at once where somebody waits at a terminal to hear of them.

        A hub's service starts all the same, says what is wrong and tries again: a service that
        ends would take the hub with it.
        """
        try:
            self.read_policy()
            if self.inventory != "nvml":
                load_inventory(Path(self.inventory))
        except ValueError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(f"{error.filename}: cannot be read: {error.strerror}") from None

    def make_site(self) -> Site:
        """All parts, put together."""
        if self.standalone:
            self.check_files()
        uptime = SteadyClock()
        authenticator, hub_auth = self.make_authenticator(uptime)
        settings: dict[str, Any] = {}
        if hub_auth is not None:
            hub_prefix = self.environ.get("JUPYTERHUB_BASE_URL", "/") + "hub/"
            settings = {
                "hub_auth": hub_auth,
                "hub_prefix": hub_prefix,
                "base_url": self.environ.get("JUPYTERHUB_BASE_URL", "/"),
                "hub_host": self.environ.get("JUPYTERHUB_HOST", ""),
            }
        return Site(
            service=self.make_service(authenticator),
            authenticator=authenticator,
            uptime=uptime,
            prefix=self.prefix,
            gate_token=self.environ.get(gateapi.TOKEN_ENV, ""),
            limits=Limits(
                Rate(self.token_rate, max(1, int(self.token_rate * 6))),
                Rate(self.remote_rate, max(1, int(self.remote_rate * 6))),
            ),
            open_metrics=self.open_metrics,
            settings=settings,
        )

    def cookie_secret(self) -> bytes:
        """The secret that signs cookies, of a file that only we can read."""
        path = Path(self.cookie_secret_file)
        try:
            found = path.read_bytes().strip()
            if len(found) >= 32:
                return found
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StartError(f"{path}: cannot be read: {error.strerror}") from None
        made = secrets.token_hex(32).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(made)
        except OSError as error:
            self.log.warning(
                "%s: cannot be written, log-ins end with this process: %s", path, error
            )
        return made

    # -- running -------------------------------------------------------------------------------

    def set_up_logging(self) -> None:
        """One handler for everything, without secrets."""
        handler = logging.StreamHandler()
        line = "[%(levelname)1.1s %(asctime)s %(name)s] %(message)s"
        if self.log_format_style == "plain":
            line = "[%(levelname)1.1s %(name)s] %(message)s"
        handler.setFormatter(logging.Formatter(line))
        own = [self.environ.get(name, "") for name in ("JUPYTERHUB_API_TOKEN", gateapi.TOKEN_ENV)]
        handler.addFilter(Scrubber(own))
        root = logging.getLogger()
        root.handlers[:] = [handler]
        level = self.log_level  # a number once the application has read it
        root.setLevel(level if isinstance(level, int) else str(level))
        self.log.handlers.clear()
        self.log.propagate = True
        for name in ("tornado.access", "tornado.general", "tornado.application"):
            logging.getLogger(name).setLevel(logging.WARNING)

    def report_environment(self) -> None:
        """Name variables that look like ours and are not."""
        for line in unknown_environment(self.environ):
            self.log.warning("%s", line)

    async def serve(self) -> int:
        """Run until told to end; the exit code."""
        site = self.make_site()
        app = make_app(site, self.cookie_secret(), page_handlers())
        server = HTTPServer(
            app, xheaders=True, max_body_size=MOST_BODY, idle_connection_timeout=120,
            body_timeout=30, decompress_request=False,
        )  # fmt: skip
        host, port = self.address()
        if self.early is not None:
            server.add_sockets([self.early.hand_over()])
        else:
            server.add_sockets(await self._bind(host, port))
        self.log.info("listening on http://%s:%d%s", host, port, self.prefix)
        self.report_environment()
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
        work = [asyncio.ensure_future(site.service.run()), asyncio.ensure_future(told.wait())]
        if not self.standalone and "JUPYTERHUB_SERVICE_NAME" in self.environ:
            work.append(asyncio.ensure_future(self._until_orphaned()))
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        self.log.info("closing")
        site.service.begin_closing()
        server.stop()
        await asyncio.wait(work[:1], timeout=CLOSE_WITHIN_S)
        ended = work[0].done()
        for task in work:
            task.cancel()
        await asyncio.wait(work, timeout=1)
        await asyncio.wait_for(server.close_all_connections(), 1)
        site.service.close_runtime()
        return 0 if ended else 1

    async def _bind(self, host: str, port: int) -> list[socket.socket]:
        """Take the port; one that another process still holds is waited for and said so."""
        loop = asyncio.get_running_loop()
        ends, told = loop.time() + BIND_FOR_S, False
        while True:
            try:
                return bind_sockets(port, host)
            except OSError as error:
                if loop.time() >= ends:
                    raise PortTaken(f"port {port} of {host}: {error.strerror}") from None
                if not told:
                    self.log.warning(
                        "port %d of %s is taken; waiting for it: %s", port, host, error
                    )
                    told = True
            await asyncio.sleep(0.25)

    async def _until_orphaned(self) -> None:
        """Return when the hub that started us has died: the next one starts its own governor."""
        parent = os.getppid()
        # No event tells of the death of a parent on every system.
        while os.getppid() == parent:  # noqa: ASYNC110 (see above)
            await asyncio.sleep(1)
        self.log.warning("the hub that started this governor has ended")

    def start(self) -> int:  # type: ignore[override]  # the base class returns nothing
        """Run, and give back the exit code."""
        self.set_up_logging()
        return asyncio.run(self.serve())
