"""What one leadership of the ledger consists of, and what it is made from."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from ..clock import Clock
from ..domain.inventory import Node
from ..domain.policy import Policy
from ..domain.state import State
from ..inventory.ports import Inventory
from ..ledger import Committer, Ledger
from .actor import Actor, Pace, pause
from .backend import Backend
from .feed import Feed
from .foresight import Foresight
from .governor import Governor
from .ports import SESSIONS, Pause, Runtime
from .publish import Publisher
from .reconcile import Reconciler


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPolicy:
    """The policy of the file that the governor was started with. ``digest`` names its content:
    it is applied when the content is another than the last time.
    """

    policy: Policy
    digest: str
    source: str


@dataclass(kw_only=True)
class Parts:
    """What a life is made of. The callables may block; they are called outside the event loop.

    Parameters
    ----------
    open_ledger : callable
        Opens the ledger without leading it.
    make_inventory : callable
        Takes the clock and the nodes as the ledger last knew them.
    read_policy : callable
        Reads the policy file; raises ValueError with what is wrong with it. None where there is
        none: then the ledger's policy holds.
    clock : Clock or None
        None takes the machine's, tied to the ledger's timeline.
    kinds : frozenset of str
        The work that the runtime runs; other work is refused.
    """

    open_ledger: Callable[[], Ledger]
    runtime: Runtime
    make_inventory: Callable[[Clock, tuple[Node, ...]], Inventory]
    read_policy: Callable[[], FirstPolicy | None] = lambda: None
    clock: Clock | None = None
    kinds: frozenset[str] = SESSIONS
    pace: Pace = field(default_factory=Pace)
    pause: Pause = pause


class Life:
    """One leadership of the ledger and everything that lives with it."""

    def __init__(self, ledger: Ledger, parts: Parts, clock: Clock, state: State) -> None:
        self.ledger = ledger
        self.clock = clock
        self.committer = Committer(ledger, clock.offset_ms)
        self.governor = Governor(state, clock, self.committer)
        self.feed = Feed(f"{ledger.epoch}-{secrets.token_hex(3)}")
        self.publisher = Publisher(state, clock, self.feed)
        self.foresight = Foresight(self.governor)
        self.backend = Backend(self.governor)
        self.inventory = parts.make_inventory(clock, tuple(state.nodes.values()))
        self.reconciler = Reconciler(
            self.governor, parts.runtime, self.backend,
            kinds=parts.kinds, pace=parts.pace, pause=parts.pause,
        )  # fmt: skip
        self.actor = Actor(
            self.governor, parts.runtime, self.backend,
            kinds=parts.kinds, pace=parts.pace, pause=parts.pause,
        )  # fmt: skip
        self.governor.watch(self.publisher.committed)
        self.tasks: list[asyncio.Task[None]] = []

    async def close(self) -> None:
        """End everything in the order in which nothing is left half done."""
        self.feed.close("the governor closes")
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        await self.actor.close()
        await self.reconciler.close()
        await self.governor.close()
        self.publisher.close()
        await self.foresight.close()
        with contextlib.suppress(Exception):
            await self.inventory.close()
        await self.committer.close()
