"""The short gate in front of every start, and the watch over what comes up behind it."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.utils import maybe_future
from sqlalchemy import inspect
from tornado import web

from allotment_hub import gateapi
from allotment_hub.gateapi import (
    LEASE_OPTION,
    OPTION,
    GateError,
    HeldLease,
    LeaseCall,
    ServerCall,
    StartCall,
)

from .ending import Ending
from .gate import GateRefused, GovernorDown, Reply
from .options import WantsError, check_wants
from .parting import tell
from .refusal import HAS_SPAWN_EXCEPTION, StartRefused
from .traits import detach

DOWN = (
    "GPU sessions cannot be started just now: the service that shares the GPUs does not answer. "
    "Sessions without GPUs start as usual, and running sessions are not affected."
)
ANSWER_EVERY_S = 0.5
PREPARING_TRIES = 4


class Starting(Ending):
    """Start of a governed spawner."""

    _looked_ready: asyncio.Task[Any] | None = None

    # -- what is asked for -------------------------------------------------------------------

    async def _run_apply_user_options(self, user_options: dict[str, Any]) -> None:
        """Check our part of the options before anything is done; hand the rest on.

        The hub has stored the options by now, as they came from a form or straight from REST.
        """
        self._disown_mark()
        self._wants()
        rest = {k: v for k, v in user_options.items() if k not in (OPTION, LEASE_OPTION)}
        await super()._run_apply_user_options(rest)  # type: ignore[misc]  # of JupyterHub's own class

    def _wants(self) -> dict[str, Any] | None:
        try:
            return check_wants((self.user_options or {}).get(OPTION))
        except WantsError as error:
            self._forget_wants()
            raise self._refused(
                f"What was asked for cannot be read: {error}", "bad-options", 400
            ) from None

    def _forget_wants(self) -> None:
        """Keep the hub from asking the same again whenever a later start names no options."""
        self._store_options({k: v for k, v in self.user_options.items() if k != OPTION})

    def _disown_mark(self) -> None:
        """Drop a mark that somebody wrote into the options; put back one that still holds."""
        options = dict(self.user_options or {})
        held = self.unconfirmed
        options.pop(LEASE_OPTION, None)
        if held is not None:
            options[LEASE_OPTION] = held.lease.id
        if options != self.user_options:
            self._store_options(options)

    def _store_options(self, options: dict[str, Any]) -> None:
        self.user_options = options
        if self.orm_spawner is not None:
            self.orm_spawner.user_options = options
            self._commit()

    def _commit(self) -> None:
        session = inspect(self.orm_spawner).session
        if session is not None:
            session.commit()

    # -- the gate ----------------------------------------------------------------------------

    async def start(self) -> Any:
        """Ask the governor, apply the lease, and let the wrapped class start the server."""
        if self._is_within:
            return await self._begin()
        self._disown_mark()
        wants = self._wants()
        if self.unconfirmed is not None:
            raise self._refused(
                "The previous session of this server has not ended yet; its GPUs are held until "
                "it has. Try again in a minute.",
                "still-ending", 409, retry_after=30,
            )  # fmt: skip
        self._reset()
        if wants is None:
            return await self._begin()
        lease = await self._ask(wants)
        await self._hold(lease)
        return await self._bring_up(lease)

    def _reset(self) -> None:
        self._lease = None
        self._parting = None
        self._negative_since = None
        self._ever_polled = False

    async def _ask(self, wants: dict[str, Any]) -> HeldLease:
        call = StartCall(
            user=self.user.name,
            server=self.name,
            groups=tuple(group.name for group in self.user.groups),
            wants=wants,
            options={k: v for k, v in self.user_options.items() if _is_json(v)},
            admin=bool(self.user.admin),
            actor=self._actor(),
        )
        try:
            reply = await self.gate.post(gateapi.START, call.to_json(), wait=self.gate_wait)
        except asyncio.CancelledError:
            detach(self._withdraw())
            raise
        except GateRefused as error:
            if error.status in (404, 405):  # no gate there, or not for this token
                self.log.error("allotment: %s: gate: is gate_token right? %s", self.key, error)
                raise self._refused(DOWN, "governor-down", 503) from None
            if error.status != 409:  # which is over soon, unlike other refusals
                self._forget_wants()
            raise self._refused(error.detail, _label(error.code), error.status) from None
        except GovernorDown as error:
            self.log.error("allotment: %s: gate: %s", self.key, error)
            raise self._refused(DOWN, "governor-down", 503, retry_after=15) from None
        if reply.status == 202:
            raise self._queued(reply)
        return self._granted(reply, wants)

    def _actor(self) -> str | None:
        current = getattr(self.handler, "current_user", None)
        name = getattr(current, "name", None)
        return None if name in (None, self.user.name, gateapi.SERVICE) else str(name)

    def _granted(self, reply: Reply, wants: dict[str, Any]) -> HeldLease:
        try:
            lease = HeldLease.from_view(reply.body.get("lease"))
            if not lease.devices or lease.gpus + 1e-9 < float(wants["gpus"]):
                raise GateError(
                    f"lease {lease.id} has less than the {wants['gpus']} GPUs asked for"
                )
        except GateError as error:
            self.log.error("allotment: %s: the governor's answer is no lease: %s", self.key, error)
            raise self._refused(DOWN, "governor-down", 503, retry_after=15) from None
        return lease

    def _queued(self, reply: Reply) -> StartRefused:
        request = reply.body.get("request") or {}
        position = request.get("position")
        if request.get("state") == "parked":
            text = "Your place in the queue is kept, but was not claimed in time."
        elif isinstance(position, int):
            text = f"Your session waits for GPUs: you are number {position} in the queue."
        else:
            text = "Your session waits for GPUs."
        reasons = request.get("reasons") or ()
        first = reasons[0].get("text") if reasons and isinstance(reasons[0], dict) else None
        if isinstance(first, str) and first:
            text += f" {first}"
        path = self.page(gateapi.WAITING_PAGE.format(request=_path_id(request.get("id"))))
        return self._refused(
            f"{text} It starts by itself when it is its turn.",
            "queued", 409, link=(path, "Waiting room"), forward=True,
        )  # fmt: skip

    def _refused(self, message: str, reason: str, status: int, **more: Any) -> StartRefused:
        if not HAS_SPAWN_EXCEPTION and self.handler is not None:
            # JupyterHub 5 will count this as a fault, and ends itself at a number of them: count
            # one less beforehand, so that refusals leave the number of real faults as it is.
            settings = self.handler.settings
            settings["failure_count"] = settings.get("failure_count", 0) - 1
        return StartRefused(message, reason=reason, status_code=status, **more)

    async def _withdraw(self) -> None:
        call = ServerCall(user=self.user.name, server=self.name)
        try:
            await self.gate.post(gateapi.WITHDRAW, call.to_json())
        except (GateRefused, GovernorDown) as error:
            self.log.warning("allotment: %s: not withdrawn: %s", self.key, error)

    async def _check_nothing_waits(self) -> None:
        wants = (self.user_options or {}).get(OPTION)
        if not wants:
            return
        try:
            reply = await self.gate.get(
                gateapi.REQUESTS, {"user": self.user.name, "server": self.name}
            )
        except (GateRefused, GovernorDown) as error:
            self.log.warning("allotment: %s: %s", self.key, error)
            raise web.HTTPError(503, DOWN) from None
        if reply.body.get("requests"):
            raise web.HTTPError(
                409, "This server waits for GPUs under its name; cancel its request first."
            )

    # -- behind the gate ---------------------------------------------------------------------

    async def _hold(self, lease: HeldLease) -> None:
        """Write the lease down before anything is started for it."""
        self._lease = lease
        self._store_options({**(self.user_options or {}), LEASE_OPTION: lease.id})
        self._save()
        call = LeaseCall(lease=lease.id, fence=lease.fence).to_json()
        pause = 0.25
        for last in [False] * (PREPARING_TRIES - 1) + [True]:
            try:
                await self.gate.post(gateapi.PREPARING, call)
            except asyncio.CancelledError:
                self._part(detail="the start was cancelled", proof="never-started")
                raise
            except GateRefused as error:
                # Meanwhile the lease went to somebody else: nothing of ours may touch it.
                self._part(detail=str(error), proof="never-started")
                raise self._refused(
                    f"The GPUs that were held for this session are no longer: {error.detail}",
                    "lease-lost", 409,
                ) from None  # fmt: skip
            except GovernorDown as error:
                if last:
                    self._part(detail=str(error), proof="never-started")
                    raise self._refused(DOWN, "governor-down", 503, retry_after=15) from None
                await asyncio.sleep(pause)
                pause *= 2
            else:
                return

    def _save(self) -> None:
        """Store the state now: the hub does so only after the start, and may not live so long."""
        if self.orm_spawner is not None:
            self.orm_spawner.state = self.get_state()
            self._commit()

    def _save_address(self, url: Any) -> None:
        """Store where the server answers, so that a hub that restarts now finds it."""
        address = _address(url)
        if address is not None and self.server is not None:
            secure = url.startswith("https:") if isinstance(url, str) else self.internal_ssl
            self.server.proto = "https" if secure else "http"
            self.server.ip, self.server.port = address

    async def _bring_up(self, lease: HeldLease) -> Any:
        begun = asyncio.ensure_future(self._begin())
        try:
            url = await self._watch_start(begun)
            self._save_address(url)
            self._save()
            await self._watch_answer(url)
        except asyncio.CancelledError:
            # Re-raised at once: the hub waits one second and then believes what it likes.
            begun.cancel()
            self._part(detail="the start was cancelled or took too long", after=begun)
            raise
        except Exception as error:
            begun.cancel()
            self._part(detail=f"{type(error).__name__}: {error}", after=begun)
            raise
        self._looked_ready = detach(self._report_ready(lease))
        return url

    async def _begin(self) -> Any:
        with self._within():
            # KubeSpawner's `start` is a property that begins when it is read.
            begin = super().start  # type: ignore[misc]  # of the wrapped class
            begun = begin() if callable(begin) else begin
            return await maybe_future(begun)

    async def _watch_start(self, begun: asyncio.Future[Any]) -> Any:
        """Wait for the wrapped start, and notice when what it waits for has died."""
        seen_running = False
        negatives = 0
        while True:
            await asyncio.wait({begun}, timeout=self.start_watch)
            if begun.done():
                return await begun
            code = await self._bounded_poll()
            if code is None:
                seen_running, negatives = True, 0
            elif isinstance(code, int) and seen_running:
                negatives += 1
                if negatives >= 2:
                    raise self._died(code)

    async def _watch_answer(self, url: Any) -> None:
        """Wait until the server accepts connections, or is seen to have died.

        The hub waits for it too, but asks whether it still lives only once, after ten seconds.
        """
        address = None if self.internal_ssl else _address(url)
        if address is None:
            return
        loop = asyncio.get_running_loop()
        ends = loop.time() + max(0, min(self.http_timeout, self.start_timeout / 2))
        looked = loop.time()
        while loop.time() < ends and not await _accepts(*address):
            if loop.time() - looked >= self.start_watch:
                looked = loop.time()
                code = await self._bounded_poll()
                if isinstance(code, int):
                    raise self._died(code)
            await asyncio.sleep(ANSWER_EVERY_S)

    def _died(self, code: int) -> Exception:
        return web.HTTPError(
            500, f"The server ended with exit code {code} before it was up; its log says why."
        )

    async def _report_ready(self, lease: HeldLease) -> None:
        """Tell the governor once the hub has the server as ready."""
        while not self.ready:
            await asyncio.sleep(ANSWER_EVERY_S)
            if self._lease is not lease or self._parting is not None or not self.active:
                return
        call = LeaseCall(lease=lease.id, fence=lease.fence)
        await tell(
            self, gateapi.READY, call, lambda: self._lease is lease and self._parting is None
        )

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore, and tell the governor again that the server is up, as it may not know."""
        super().load_state(state)
        if self._lease is not None and self._parting is None:
            self._looked_ready = detach(self._report_ready_again(self._lease))

    async def _report_ready_again(self, lease: HeldLease) -> None:
        await asyncio.sleep(ANSWER_EVERY_S)  # the hub sets its pending flags after loading
        if self.active:
            await self._report_ready(lease)


def _label(code: str) -> str:
    """A code of the public list as a label: ``CeilingReached`` → ``ceiling-reached``."""
    dashed = "".join(f"-{c.lower()}" if c.isupper() else c for c in code if c.isalnum())
    return dashed.strip("-")[:40] or "refused"


def _path_id(value: Any) -> str:
    """An id as part of a path; anything that is not plainly one is left out."""
    text = value if isinstance(value, str) else ""
    return text if text and all(c.isalnum() or c in "-_." for c in text) else ""


def _is_json(value: Any) -> bool:
    """Whether a value can be sent; uploaded files cannot, and need not be."""
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _address(url: Any) -> tuple[str, int] | None:
    """Host and port of what a start returned: a URL, or (ip, port) from older classes."""
    if isinstance(url, str):
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return (parts.hostname, port) if parts.hostname else None
    if isinstance(url, tuple) and len(url) == 2:
        return str(url[0]).strip("[]"), int(url[1])
    return None


async def _accepts(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 2)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True
