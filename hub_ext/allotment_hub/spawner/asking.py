"""What a start asks of the governor, and what each of its answers means."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import inspect
from tornado import web

from allotment_hub import gateapi
from allotment_hub.gateapi import (
    LEASE_OPTION,
    OPTION,
    GateError,
    HeldLease,
    ServerCall,
    StartCall,
)

from .ending import Ending
from .gate import GateRefused, GovernorDown, Reply
from .mark import marked
from .options import WantsError, check_wants
from .parting import PARTINGS
from .refusal import HAS_SPAWN_EXCEPTION, StartRefused
from .traits import detach

DOWN = (
    "GPU sessions cannot be started just now: the service that shares the GPUs does not answer. "
    "Sessions without GPUs start as usual, and running sessions are not affected."
)


class Asking(Ending):
    """The way to a lease."""

    # -- what is asked for -------------------------------------------------------------------

    async def _run_apply_user_options(self, user_options: dict[str, Any]) -> None:
        """Check our part of the options before anything is done; hand the rest on.

        The hub has stored the options by now, as they came from a form or straight from REST.
        """
        self._store_options(self.user_options)
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

    def _store_options(self, options: dict[str, Any]) -> None:
        """Write options, with the mark that the state calls for; see :mod:`.mark`."""
        self.user_options = marked(options, self.get_state())
        if self.orm_spawner is not None:
            self.orm_spawner.user_options = options
            self._commit()

    def _commit(self) -> None:
        session = inspect(self.orm_spawner).session
        if session is not None:
            session.commit()

    # -- the gate ----------------------------------------------------------------------------

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
            if lease.id in PARTINGS:
                raise GateError(f"lease {lease.id} is being given back")
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
