"""Waiting for what other processes do, until it is so, takes too long, or somebody interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from allotment_hub.clock import stopwatch

T = TypeVar("T")

PAUSE_S = 0.25


class DemoError(Exception):
    """Something did not go as it has to; the text says what was wanted and what was found."""


class WrongUse(DemoError):
    """What was asked for cannot be; the text says what would be right."""


class Interrupted(Exception):
    """Somebody wants the demonstration to end."""


class Patience:
    """Waits, and stops waiting when it is told to end."""

    def __init__(self) -> None:
        self._told = threading.Event()

    def tell(self) -> None:
        """End every wait, now and later."""
        self._told.set()

    def pause(self, seconds: float = PAUSE_S) -> None:
        """Let a moment pass; Interrupted when told to end."""
        if self._told.wait(seconds):
            raise Interrupted

    def until_told(self) -> None:
        """Wait for nothing else than to be told to end."""
        # In pieces: some systems deliver a signal only between two waits.
        while not self._told.wait(1):
            pass

    def until(self, ask: Callable[[], T | None], seconds: float, what: str) -> T:
        """Ask again and again; the first answer that counts as true.

        Raises
        ------
        DemoError
            There was none within so many seconds; ``what`` names it.
        Interrupted
        """
        since = stopwatch()
        while True:
            answer = ask()
            if answer:
                return answer
            if since() > seconds:
                raise DemoError(f"{what}: not within {seconds:g} s")
            self.pause()


@contextmanager
def interruptible(patience: Patience) -> Iterator[None]:
    """Let the first interrupt end the waits in good order, and a second one end at once."""

    def told(number: int, frame: Any) -> None:
        patience.tell()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
