"""The life of a governor: standing by, loading, reconciling, deciding, and all of it again.

A life begins with the leadership of the ledger and ends with it, with a failed commit, or when the
process is told to end. What a life knew in memory is dropped with it; the next one is loaded from
the ledger. The phase is what the outside sees meanwhile, so that it gets an answer within the
first moment of the process and never has to guess.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from ..clock import Anchor, Clock, SteadyClock, show_time
from ..domain import commands
from ..domain.forecast import Forecast
from ..domain.requests import Request
from ..domain.state import State
from ..ledger import AlreadyLed, Ledger
from .archive import Archive
from .feed import encode
from .governor import Governor, NotDeciding
from .life import Life, Parts
from .ports import server_of
from .reconcile import Unmanaged

log = logging.getLogger("allotment.governor")

Phase = Literal["starting", "standby", "reconciling", "ready", "failed", "stopping"]
T = TypeVar("T")

STANDBY_LOOK_MS = 1_000
FIRST_RETRY_MS = 500
LAST_RETRY_MS = 30_000
ANCHOR_EVERY_MS = 600_000
KEYS_KEPT_MS = 48 * 3_600_000
HEARTBEAT_S = 15.0
"""Below the 20 s after which a silent stream counts as held back by a proxy."""

CLOCK_ANCHOR = "clock"
POLICY_DIGEST = "policy-file"


class Service(Archive):
    """See the module.

    Parameters
    ----------
    parts : Parts
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.phase: Phase = "starting"
        self.detail = ""
        self.life: Life | None = None
        self._closing = asyncio.Event()
        self._asking: dict[tuple[str, str], asyncio.Future[None]] = {}
        self.outcomes: dict[str, int] = {}
        self.lives = 0

    # -- the life cycle ----------------------------------------------------------------------

    async def run(self) -> None:
        """Live until told to end. A life that fails is followed by the next one, later each time
        in a row.
        """
        retry = FIRST_RETRY_MS
        while not self._closing.is_set():
            began = self.lives
            try:
                await self._live()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.error("the governor cannot work: %s", error)
                log.debug("where it failed", exc_info=True)
                self._say("failed", str(error))
            if self._closing.is_set():
                return
            retry = FIRST_RETRY_MS if self.lives > began else min(retry * 2, LAST_RETRY_MS)
            await self._wait_or_close(retry)
        self._say("stopping")

    async def _live(self) -> None:
        self._say("starting" if self.lives == 0 else "failed", self.detail)
        ledger = await asyncio.to_thread(self._parts.open_ledger)
        try:
            log.info("ledger: %s", ledger)
            if not await self._lead(ledger):
                return
            await self._govern(ledger)
        finally:
            await asyncio.to_thread(ledger.close)

    async def _lead(self, ledger: Ledger) -> bool:
        """Wait until the ledger is ours; False when the process is to end before."""
        told = ""
        while not self._closing.is_set():
            clock = self._parts.clock or SteadyClock()
            since = clock.now_ms() + clock.offset_ms()
            try:
                # The lock belongs to the process, not to the thread that took it.
                await asyncio.to_thread(partial(ledger.lead, since=since))
                return True
            except AlreadyLed as error:
                self._say("standby", str(error))
                if str(error) != told:
                    log.warning("standing by: %s", error)
                    told = str(error)
            await self._wait_or_close(STANDBY_LOOK_MS)
        return False

    async def _govern(self, ledger: Ledger) -> None:
        self._say("starting", "loading the ledger")
        life = Life(ledger, self._parts, *await asyncio.to_thread(self._load, ledger))
        try:
            await self._set_up(life)
            self.life = life
            life.tasks.append(asyncio.ensure_future(self._beat(life)))
            self._say("reconciling")
            await self._until_over(life, life.reconciler.first())
            if life.governor.failure is None and not self._closing.is_set():
                await self._decide(life)
        finally:
            self.life = None
            if self._closing.is_set():
                self._say("stopping")
            await life.close()
        if life.governor.failure is not None:
            self._say("failed", str(life.governor.failure))

    def _load(self, ledger: Ledger) -> tuple[Clock, State]:
        loaded = ledger.load()
        clock = self._parts.clock
        if clock is None:
            text = ledger.meta(CLOCK_ANCHOR)
            anchor = None if text is None else Anchor.load(text)
            clock = SteadyClock(anchor, floor=loaded.last_at)
        state = State()
        state.load(loaded.records)
        state.sequence, state.fence = loaded.sequence, loaded.fence
        return clock, state

    async def _set_up(self, life: Life) -> None:
        """Policy and inventory, before anybody may ask. Grants wait for reconciling throughout."""
        await life.governor.execute(
            lambda state, now: commands.switch(
                state, now, "reconciling", True, "governor", "the governor has just started"
            )
        )
        await self._apply_file(life)
        await life.inventory.start()
        await self._take_inventory(life)
        await self._keep_anchor(life)

    async def _apply_file(self, life: Life) -> None:
        number = life.governor.state.version.number
        try:
            first = await asyncio.to_thread(self._parts.read_policy)
        except ValueError as error:
            if number == 0:
                raise
            # What was in force goes on: an error in a file changes nothing.
            log.error(
                "the policy file is not applied, version %d stays in force: %s", number, error
            )
            return
        if first is None:
            if number == 0:
                raise RuntimeError("there is no policy: name a file, or apply one to the ledger")
            return
        applied = await life.committer.query(lambda ledger: ledger.meta(POLICY_DIGEST))
        if number and applied == first.digest:
            return
        await life.governor.execute(
            lambda state, now: commands.set_policy(state, now, first.policy, "file", first.source),
            meta={POLICY_DIGEST: first.digest},
        )
        log.info("policy version %d from %s", life.governor.state.version.number, first.source)

    async def _take_inventory(self, life: Life) -> None:
        nodes = await life.inventory.nodes()
        await life.governor.execute(lambda state, now: commands.set_nodes(state, now, nodes))

    async def _keep_anchor(self, life: Life) -> None:
        if isinstance(life.clock, SteadyClock):
            await life.committer.commit(
                meta={CLOCK_ANCHOR: life.clock.anchor().dump()},
                forget_keys_before=life.clock.now_ms() - KEYS_KEPT_MS,
            )

    async def _decide(self, life: Life) -> None:
        life.governor.start_timer()
        life.actor.go()
        life.reconciler.after_round = life.actor.resync
        life.reconciler.go_on()
        life.tasks += [
            asyncio.ensure_future(self._follow_inventory(life)),
            asyncio.ensure_future(self._keep_time(life)),
        ]
        self.lives += 1
        self._say("ready")
        log.info("deciding: policy version %d", life.governor.state.version.number)
        await self._until_over(life, asyncio.Event().wait())

    async def _beat(self, life: Life) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            life.feed.beat(encode("heartbeat", {"now": self.wall(life.clock.now_ms())}))

    async def _follow_inventory(self, life: Life) -> None:
        seen = 0
        while True:
            seen = await life.inventory.wait_for_change(seen)
            with contextlib.suppress(NotDeciding):
                await self._take_inventory(life)

    async def _keep_time(self, life: Life) -> None:
        while True:
            await self._parts.pause(ANCHOR_EVERY_MS)
            if isinstance(life.clock, SteadyClock):
                seen = life.clock.observe()
                if seen.wall_jump or seen.suspended:
                    log.warning(
                        "the wall clock moved by %d ms, the machine slept %d ms: terms go on by "
                        "elapsed time", seen.wall_jump, seen.suspended,
                    )  # fmt: skip
                await self._keep_anchor(life)

    async def _until_over(self, life: Life, work: Awaitable[Any]) -> None:
        """Wait for ``work``, for the end of the life, or for the end of the process."""
        tasks = [
            asyncio.ensure_future(work),
            asyncio.ensure_future(life.governor.failed.wait()),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done() and not tasks[0].cancelled():
                error = tasks[0].exception()
                if error is not None and not isinstance(error, NotDeciding):
                    raise error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _wait_or_close(self, milliseconds: int) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closing.wait(), milliseconds / 1000)

    def _say(self, phase: Phase, detail: str = "") -> None:
        if phase != self.phase:
            log.info("phase %s %s", phase, detail)
        self.phase, self.detail = phase, detail

    def begin_closing(self) -> None:
        """Grant nothing more from this moment on; :meth:`run` then ends by itself."""
        self._closing.set()
        if self.life is not None:
            self.life.governor.closing = True
        self._say("stopping")

    def close_runtime(self) -> None:
        """Close the connections to what runs the work, where it has any."""
        close = getattr(self._parts.runtime, "close", None)
        if close is not None:
            close()

    # -- what the web asks -------------------------------------------------------------------

    @property
    def governor(self) -> Governor | None:
        """The governor while there is one."""
        return None if self.life is None else self.life.governor

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of work that can be asked for."""
        return self._parts.kinds

    @property
    def ready(self) -> bool:
        """Whether decisions are made."""
        return self.phase == "ready"

    @property
    def unmanaged(self) -> tuple[Unmanaged, ...]:
        """Servers that run for no live lease."""
        return () if self.life is None else self.life.reconciler.unmanaged

    def start_slot(self, lease_id: str) -> Mapping[str, int] | None:
        """The place of a lease among those that wait for a start slot."""
        return None if self.life is None else self.life.actor.start_slot(lease_id)

    def known_start(self, request_id: str) -> Forecast | None:
        """What is known of the start of a waiting request."""
        return None if self.life is None else self.life.foresight.start_of(request_id)

    def lease_of(self, user: str, server: str) -> str | None:
        """The id of the youngest live lease of a server."""
        if self.life is None:
            return None
        leases = self.life.governor.state.leases.values()
        rows = [row for row in leases if row.user == user and server_of(row) == server]
        return max(rows, key=lambda row: row.fence).id if rows else None

    def may_start(self, lease_id: str) -> bool:
        """Whether a start that the hub has begun may go on now."""
        return self.life is not None and self.life.actor.may_start(lease_id)

    def wall(self, at: int) -> str:
        """Steady milliseconds as RFC 3339 text."""
        if self.life is None:
            raise NotDeciding("there is no timeline before the ledger is loaded")
        return show_time(at + self.life.clock.offset_ms())

    @contextlib.asynccontextmanager
    async def one_at_a_time(self, key: tuple[str, str]) -> Any:
        """Let calls with the same key follow one another: later ones find what the first did."""
        while (running := self._asking.get(key)) is not None:
            await asyncio.wait([running])
        mine = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._asking[key]
            mine.set_result(None)

    def count_request(self, request: Request) -> None:
        """Count how requests begin, for the metrics: refusals are no failures."""
        outcome: str = request.state
        if request.state == "rejected" and request.reasons:
            outcome = f"rejected:{request.reasons[0].code}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
