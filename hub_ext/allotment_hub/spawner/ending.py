"""Looking at a server, stopping it, and remembering its lease: the second half of the mixin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from tornado import web

from allotment_hub.gateapi import LEASE_OPTION, HeldLease

from .mark import STATE_KEY
from .parting import PARTINGS, Parting
from .sight import Seen, Sight, disown_stranger, second_local
from .traits import GateTraits

STOP_CONFIRM_S = 5.0
STOP_REPORT_S = 1.0
"""How long a stop waits for the confirmation, and then for the governor to have taken it, so that
"stopped" mostly means "given back"."""


class Ending(GateTraits):
    """Poll, stop and state of a governed spawner."""

    _last_code: int | None = None
    _ever_polled = False
    _beginning = False
    """A start is under way: that nothing runs yet does not mean that nothing will."""
    _polling: asyncio.Task[Any] | None = None
    _stopping: asyncio.Task[Any] | None = None
    _negative_since: float | None = None
    _negative_timer: asyncio.TimerHandle | None = None

    # -- looking -----------------------------------------------------------------------------

    async def poll(self) -> int | None:
        """Say whether the server runs; never raises, and never says "gone" on one word only."""
        if self._is_within:
            code: int | None = await super().poll()  # type: ignore[misc]  # of the wrapped class
            return code
        try:
            seen = await self.look()
        except Exception:  # any fault of the wrapped class means: not known
            self.log.exception("allotment: %s: could not be polled", self.key)
            seen = Seen(Sight.UNKNOWN)
        return self._judge(seen)

    def _judge(self, seen: Seen) -> int | None:
        if seen.sight is Sight.UNKNOWN:
            return self._known()
        if seen.sight is Sight.RUNNING:
            self._negative_since = None
            return self._remember(None)
        if self._lease is None:
            return self._remember(seen.code)
        if seen.sight is Sight.NEGATIVE and not self._agrees():
            return self._known()
        if self._parting is None and not self._beginning:
            proof = seen.proof or ("poll" if seen.sight is Sight.NEGATIVE else "")
            self._part(proof=proof)
        return self._remember(seen.code)

    def _remember(self, code: int | None) -> int | None:
        self._ever_polled = True
        self._last_code = code
        return code

    def _known(self) -> int | None:
        """The last known; before any, a server that the hub has on record counts as running."""
        if self._ever_polled:
            return self._last_code
        return None if self.server is not None or self._lease is not None else 0

    def _agrees(self) -> bool:
        """Whether a "does not run" confirms an earlier one; else look again before long."""
        now = asyncio.get_running_loop().time()
        if self._negative_since is not None and now - self._negative_since >= self.absence_interval:
            return True
        if self._negative_since is None:
            self._negative_since = now
        if self._negative_timer is None:
            self._negative_timer = asyncio.get_running_loop().call_later(
                self.absence_interval + 0.05, self._look_again
            )
        return False

    def _look_again(self) -> None:
        self._negative_timer = None
        if self._lease is not None and self._parting is None and self.ready:
            asyncio.ensure_future(self.poll_and_notify())  # type: ignore[attr-defined]  # noqa: RUF006 (kept by the hub's callbacks)

    async def look(self) -> Seen:
        """See whether the server runs, with a second source where there is one."""
        if self._lease is not None and disown_stranger(self, self._lease.id):
            self.log.warning("allotment: %s: stored process id is somebody else's", self.key)
        code = await self._bounded_poll()
        if isinstance(code, Seen):
            return code
        if code is None:
            return Seen(Sight.RUNNING)
        if self._lease is None:
            return Seen(Sight.NEGATIVE, code)
        second = await self.second_source(code)
        if second is None:
            return Seen(Sight.NEGATIVE, code)
        return Seen(second[0], code, second[1])

    async def second_source(self, code: int) -> tuple[Sight, str] | None:
        """Ask somebody else than ``poll()`` whether anything of the lease is left.

        To be overridden for backends that can be asked. None is "there is nobody to ask".
        """
        return None if self._lease is None else await second_local(self, self._lease.id)

    async def _bounded_poll(self) -> int | Seen | None:
        """Poll the wrapped spawner within ``poll_limit``; callers at the same time share one."""
        if self._polling is None or self._polling.done():
            with self._within():
                self._polling = asyncio.ensure_future(super().poll())  # type: ignore[misc]  # of the wrapped class
        task = self._polling
        await asyncio.wait({task}, timeout=self.poll_limit)
        if not task.done():
            task.cancel()
            self._polling = None
            self.log.warning(
                "allotment: %s: no answer to poll() within %g s", self.key, self.poll_limit
            )
            return Seen(Sight.UNKNOWN)
        if task.cancelled():
            return Seen(Sight.UNKNOWN)
        error = task.exception()
        if error is not None:
            self.log.warning("allotment: %s: poll() raised %r", self.key, error)
            return Seen(Sight.UNKNOWN)
        code: int | None = task.result()
        return code

    @property
    def ready(self) -> bool:
        """Whether the server can be used: not while its lease is being given back.

        Between a cancelled start and its stop the hub has a server on record and nothing pending,
        and would tell whoever watches the start that it is ready.
        """
        return bool(super().ready) and self._parting is None  # type: ignore[misc]  # of JupyterHub's own class

    # -- stopping ----------------------------------------------------------------------------

    async def stop(self, now: bool = False) -> None:
        """Stop the server; a second call while one is under way waits for the first."""
        if self._is_within:
            await super().stop(now)  # type: ignore[misc]  # of the wrapped class
            return
        try:
            await self.end_server(now)
        finally:
            # Also after a failure: the parting repeats the stop until nothing is left.
            if self._lease is not None and self._parting is None:
                self._part()
        if self._parting is not None:
            await self._await_parting(self._parting)

    async def _await_parting(self, parting: Parting) -> None:
        if await parting.wait_confirmed(STOP_CONFIRM_S):
            await asyncio.wait({parting.task}, timeout=STOP_REPORT_S)
            return
        self.log.warning(
            "allotment: %s: stopped, but lease %s is held until the backend confirms it",
            self.key,
            parting.lease.id,
        )

    async def end_server(self, now: bool = False) -> None:
        """Run the wrapped class's ``stop()``, once however many ask for it."""
        if self._lease is not None:
            disown_stranger(self, self._lease.id)
        if self._stopping is None or self._stopping.done():
            with self._within():
                self._stopping = asyncio.ensure_future(super().stop(now))  # type: ignore[misc]  # of the wrapped class
        await asyncio.shield(self._stopping)

    def _part(
        self, *, detail: str = "", after: asyncio.Future[Any] | None = None, proof: str = ""
    ) -> Parting | None:
        """Begin to give the lease back. Idempotent; see :class:`~.parting.Parting`."""
        if self._lease is None:
            return None
        self._beginning = False
        known = PARTINGS.get(self._lease.id)
        self._parting = known or Parting(self, self._lease, detail=detail, after=after, proof=proof)
        return self._parting

    @property
    def unconfirmed(self) -> Parting | None:
        """The parting of an earlier session of which something may still run."""
        parting = self._parting
        return parting if parting is not None and not parting.confirmed else None

    def forget(self, lease: HeldLease, proof: str, *, reported: bool) -> None:
        """Take note that nothing of the lease is left; the wrapped state can go now."""
        # The hub may have made another object for this server since.
        current = self.user.spawners.get(self.name)
        for spawner in {id(s): s for s in (self, current) if isinstance(s, Ending)}.values():
            spawner.forget_here(lease, reported=reported)
        self._rewrite(lease, proof, reported=reported)

    def forget_here(self, lease: HeldLease, *, reported: bool) -> None:
        """Take the same note in this object only."""
        shown = dict(self.user_options or {})
        if shown.pop(LEASE_OPTION, None) == lease.id:
            self.user_options = shown
        if self._lease is None or self._lease.id != lease.id:
            return
        if not self.active:
            with self._within():
                super().clear_state()  # type: ignore[misc]  # of the wrapped class
        if reported:
            self._lease = None
            self._parting = None

    def _rewrite(self, lease: HeldLease, proof: str, *, reported: bool) -> None:
        """Bring what the hub has stored up to date, unless it is about a newer session."""
        orm = self.orm_spawner
        if orm is None:
            return
        try:
            session = inspect(orm).session
            if session is None or orm not in session:
                return
            stored = dict(orm.state or {})
            mine = stored.get(STATE_KEY)
            if isinstance(mine, Mapping) and mine.get("lease", {}).get("id") == lease.id:
                if reported:
                    del stored[STATE_KEY]
                    orm.state = stored
                elif not self.active:
                    orm.state = {STATE_KEY: {**mine, "ending": True, "proof": proof}}
                else:
                    # The hub is in the middle of its own stop, and writes the rest after it.
                    orm.state = {**stored, STATE_KEY: {**mine, "ending": True, "proof": proof}}
            orm.user_options = orm.user_options
            session.commit()
        except SQLAlchemyError as error:
            self.log.debug("allotment: %s: nothing stored to bring up to date: %s", self.key, error)

    # -- remembering -------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The wrapped class's state with the lease beside it."""
        state: dict[str, Any] = super().get_state()  # type: ignore[misc]  # of the wrapped class
        if self._lease is not None:
            parting = self._parting
            state[STATE_KEY] = {
                "lease": self._lease.to_state(),
                "ending": parting is not None,
                "proof": parting.proof if parting is not None else "",
            }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore both; a parting that the hub's end interrupted goes on."""
        state = dict(state)
        mine = state.pop(STATE_KEY, None)
        super().load_state(state)  # type: ignore[misc]  # of the wrapped class
        if not isinstance(mine, Mapping):
            return
        try:
            self._lease = HeldLease.from_state(mine["lease"])
        except (KeyError, TypeError) as error:
            self.log.error("allotment: %s: stored lease cannot be read: %r", self.key, error)
            return
        if mine.get("ending"):
            self._part(proof=str(mine.get("proof") or ""))

    def clear_state(self) -> None:
        """Clear the wrapped class's state, once nothing can be left that it is needed for.

        JupyterHub also clears after a stop that failed. Without its state the wrapped class would
        then say "does not run" about a server that does.
        """
        if self._is_within or self._lease is None or self._settled():
            super().clear_state()  # type: ignore[misc]  # of the wrapped class

    def _settled(self) -> bool:
        """Whether the lease can no longer depend on the wrapped state."""
        if self._parting is None:
            # The hub gives the server up without having asked us to stop it.
            self._part()
        return self._parting is None or self._parting.confirmed

    async def delete_forever(self) -> Any:
        """Delete what the wrapped class keeps, but not under a server that may still run."""
        if self.unconfirmed is not None:
            raise web.HTTPError(
                409,
                "This server's last session has not ended yet; its GPUs are still held. "
                "Try again once it has.",
            )
        return await super().delete_forever()  # type: ignore[misc]  # of the wrapped class

    async def rename(self, old_name: str, new_name: str) -> Any:
        """Let a server be renamed (JupyterHub 6) when no lease or request hangs on its name."""
        if self._lease is not None:
            raise web.HTTPError(
                409, "This server still holds a lease under its name; stop it first and try again."
            )
        await self._check_nothing_waits()
        return await super().rename(old_name, new_name)  # type: ignore[misc]  # of the wrapped class

    async def _check_nothing_waits(self) -> None:
        raise NotImplementedError
