"""A value that others wait for to change."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Changes(Generic[T]):
    """Counts the changes of a value. Waiters that come late miss none; several in a row are one."""

    def __init__(self) -> None:
        self.number = 0
        self._value: T | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def publish(self, value: T) -> None:
        """Take the present value; a change is one that differs from the last."""
        if value == self._value:
            return
        self._value = value
        self.number += 1
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seen: int) -> int:
        """Return the number once it is not ``seen``."""
        while self.number == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return self.number
