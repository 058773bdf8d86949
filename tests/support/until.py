"""Waiting for something to be so, without a fixed time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until(true: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Return the answer once it is true; fails after so many seconds."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while not (answer := true()):
        assert loop.time() < ends, "it did not happen"
        await asyncio.sleep(0.01)
    return answer
