"""A start behind its gate: the lease written down first, and a watch over what comes up."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.utils import maybe_future
from tornado import web

from allotment_hub import gateapi
from allotment_hub.gateapi import HeldLease, LeaseCall

from .asking import DOWN, Asking
from .gate import GateRefused, GovernorDown
from .parting import tell
from .traits import detach

ANSWER_EVERY_S = 0.5
PREPARING_TRIES = 4
REPORT_LAST_S = 3.0


class Starting(Asking):
    """Start of a governed spawner."""

    _looked_ready: asyncio.Task[Any] | None = None

    async def start(self) -> Any:
        """Ask the governor, apply the lease, and let the wrapped class start the server."""
        if self._is_within:
            return await self._begin()
        self._store_options(self.user_options)
        wants = self._wants()
        if self.unconfirmed is not None:
            raise self._refused(
                "The previous session of this server has not ended yet; its GPUs are held until "
                "it has. Try again in a minute.",
                "still-ending", 409, retry_after=30,
            )  # fmt: skip
        if wants is None:
            self._reset()
            return await self._begin()
        await self._report_last()
        self._reset()
        lease = await self._ask(wants)
        await self._hold(lease)
        return await self._bring_up(lease)

    async def _report_last(self) -> None:
        """Have the governor know the end of the last session before it is asked for the next.

        Else it would answer with the lease that it believes to be in use, which the report still
        on its way would then release under the new server.
        """
        parting = self._parting
        if parting is None or await parting.wait_reported(REPORT_LAST_S):
            return
        raise self._refused(
            "The end of this server's previous session could not be reported yet. Try again in a "
            "moment.",
            "still-ending",
            409,
            retry_after=5,
        )

    def _reset(self) -> None:
        self._lease = None
        self._parting = None
        self._negative_since = None
        self._ever_polled = False
        self._beginning = True

    async def _hold(self, lease: HeldLease) -> None:
        """Write the lease down before anything is started for it."""
        self._lease = lease
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
            self._store_options(self.user_options)

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
        self._beginning = False
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
