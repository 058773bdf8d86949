"""Rate limits that hold before anybody is authenticated: token buckets by remote and by token."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from .problems import Problem

MOST_BUCKETS = 20_000
"""Buckets kept at most; the least recently used go first, which are full again anyway."""


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_second`` requests in the long run, ``burst`` at once. Zero per second is no limit."""

    per_second: float
    burst: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_ms: int


class Buckets:
    """One token bucket a key.

    >>> b = Buckets(Rate(per_second=1, burst=2))
    >>> [b.wait_ms("a", 0), b.wait_ms("a", 0), b.wait_ms("a", 0), b.wait_ms("a", 1000)]
    [0, 0, 1000, 0]
    """

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_ms(self, key: str, now_ms: int) -> int:
        """Take one token: 0 when there was one, else milliseconds until there is."""
        rate = self._rate
        if rate.per_second <= 0:
            return 0
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(float(rate.burst), now_ms)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        gained = max(0, now_ms - bucket.at_ms) * rate.per_second / 1000
        bucket.tokens = min(float(rate.burst), bucket.tokens + gained)
        bucket.at_ms = now_ms
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0
        return max(1, round((1 - bucket.tokens) / rate.per_second * 1000))


class Limits:
    """The two buckets that each request passes.

    A token has its own, so that one runaway script does not lock out its whole institute behind
    one address; the remote has a wider one, so that made-up tokens do not help a flooder.
    """

    def __init__(self, by_token: Rate = Rate(50, 300), by_remote: Rate = Rate(500, 3000)) -> None:
        self._tokens = Buckets(by_token)
        self._remotes = Buckets(by_remote)

    def check(self, remote: str, authorization: str | None, now_ms: int) -> None:
        """Raise the 429 that is due, if any.

        Parameters
        ----------
        remote : str
            The address of the caller.
        authorization : str or None
            The header as sent; only a prefix of its hash is kept.
        now_ms : int
            Steady time.
        """
        key = remote
        if authorization:
            digest = hashlib.sha256(authorization.encode("utf-8", "replace")).hexdigest()
            key = digest[:16]
        wait = self._remotes.wait_ms(remote, now_ms) or self._tokens.wait_ms(key, now_ms)
        if wait:
            raise Problem(
                429,
                "TooManyRequests",
                "Too many requests in a short time; slow down and try again.",
                retry_after_ms=wait,
            )
