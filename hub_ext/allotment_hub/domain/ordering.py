"""Who is next: numbered rules with a total order.

1. class priority, where the right to use the class holds, plus one point per ``age_step`` waited;
2. the tenant's use relative to its guarantee in the cells asked for: who uses less of its own
   comes first;
3. the time of the request;
4. the order in which the governor accepted it, which no two requests share.
"""

from __future__ import annotations

from .requests import Request
from .state import Bucket, State

RULES = (
    "1 class priority and age",
    "2 use relative to the guarantee",
    "3 time of the request",
    "4 order of acceptance",
)

OrderKey = tuple[int, int, int, int]


def decisive(first: OrderKey, second: OrderKey) -> str:
    """The numbered rule that puts one request before another.

    >>> decisive((-100, 0, 5, 1), (-100, 0, 7, 2))
    '3 time of the request'
    """
    for rule, mine, other in zip(RULES, first, second, strict=True):
        if mine != other:
            return rule
    return RULES[-1]


def priority(state: State, request: Request, now: int) -> int:
    """Points of rule 1: higher goes first."""
    class_ = state.policy.classes.get(request.class_)
    base = class_.priority if class_ is not None else 0
    return base + max(0, now - request.submitted_at) // state.policy.ordering.age_step


def relative_use(state: State, bucket: Bucket) -> int:
    """Parts per million of its guarantee that the tenant uses in the cells asked for."""
    tenant = bucket.sample.tenant
    used = guarantee = 0
    for pool, flavor in bucket.cells:
        used += state.cell(pool, flavor).used.get(tenant, 0)
        quota = state.quotas.get((tenant, pool, flavor))
        guarantee += quota.guarantee if quota else 0
    # A tenant without a guarantee ranks behind all that have one as soon as it uses anything.
    return used * 1_000_000 // guarantee if guarantee else used * 1_000_000


def entry_order(state: State, bucket: Bucket, entry: tuple[int, int, str], now: int) -> OrderKey:
    """The order key of one request of a bucket: smallest goes first."""
    class_ = state.policy.classes.get(bucket.sample.class_)
    base = class_.priority if class_ is not None else 0
    age = max(0, now - entry[0]) // state.policy.ordering.age_step
    return (-(base + age), relative_use(state, bucket), entry[0], entry[1])


def bucket_order(state: State, bucket: Bucket, now: int) -> OrderKey:
    """The order key of the first request of a bucket."""
    return entry_order(state, bucket, bucket.entries[0], now)


def position(state: State, request: Request, bucket: Bucket, now: int) -> tuple[int, int]:
    """(place, length of the line) among the requests that want any of the same devices.

    The place is 1 for the next. Each other line is sorted by age already, so that one bisection
    tells how many of it are in front.
    """
    entry = (request.submitted_at, request.sequence, request.id)
    mine = entry_order(state, bucket, entry, now)
    wanted = set(bucket.stocks)
    before = total = 0
    for other in state.queue.values():
        if other is not bucket and wanted.isdisjoint(other.stocks):
            continue
        total += len(other.entries)
        before += _in_front(state, other, mine, now)
    return before + 1, total


def _in_front(state: State, bucket: Bucket, mine: OrderKey, now: int) -> int:
    low, high = 0, len(bucket.entries)
    while low < high:
        middle = (low + high) // 2
        if entry_order(state, bucket, bucket.entries[middle], now) < mine:
            low = middle + 1
        else:
            high = middle
    return low
