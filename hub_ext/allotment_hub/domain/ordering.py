"""Who is next: numbered rules with a total order.

1. class priority, where the right to use the class holds, plus one point per ``age_step`` waited;
2. the tenant's use relative to its guarantee in the cells asked for: who uses the smaller part of
   its own comes first; behind all those come borrowers, who borrows least first (so that what is
   free is shared out evenly, and not in proportion to what somebody owns besides);
3. the time of the request;
4. the order in which the governor accepted it, which no two requests share.
"""

from __future__ import annotations

from bisect import bisect_right

from .lines import Bucket
from .requests import Request
from .state import State

RULES = (
    "1 class priority and age",
    "2 use relative to the guarantee",
    "3 time of the request",
    "4 order of acceptance",
)

OrderKey = tuple[int, int, int, int]

WHOLE = 1_000_000
MAX = 1 << 62


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
    """Parts per million of its guarantee that the tenant uses in the cells asked for; above a
    million, by how many milli-GPUs, where it borrows.
    """
    tenant = bucket.sample.tenant
    used = borrowed = guarantee = 0
    for key in bucket.cells:
        cell = state.cells.get(key)
        if cell is not None:
            used += cell.used.get(tenant, 0)
            borrowed += cell.borrowed.get(tenant, 0)
        quota = state.quotas.get((tenant, *key))
        guarantee += quota.guarantee if quota else 0
    if borrowed or not guarantee:
        return WHOLE + borrowed
    return min(WHOLE, used * WHOLE // guarantee)


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
    wanted = {bucket.key: None}
    for stock in bucket.stocks:
        wanted.update(state.lines.get(stock, {}))
    before = total = 0
    for key in wanted:
        other = state.queue[key]
        total += len(other.entries)
        before += _in_front(state, other, mine, now)
    return before + 1, total


def lines_in_front(state: State, stock: tuple[str, str], order: OrderKey, now: int) -> list[Bucket]:
    """The lines for a stock whose first request comes before an order key."""
    step, classes = state.policy.ordering.age_step, state.policy.classes
    uses: dict[tuple[object, ...], int] = {}
    found = []
    for key in state.lines.get(stock, ()):
        line = state.queue[key]
        class_ = classes.get(line.sample.class_)
        entry = line.entries[0]
        points = (class_.priority if class_ else 0) + max(0, now - entry[0]) // step
        if -points > order[0]:
            continue
        if -points == order[0]:
            whose = (line.sample.tenant, line.cells)
            if whose not in uses:
                uses[whose] = relative_use(state, line)
            if (uses[whose], *entry[:2]) >= order[1:]:
                continue
        found.append(line)
    return found


def _in_front(state: State, bucket: Bucket, mine: OrderKey, now: int) -> int:
    """How many of a line come before an order key. The older, the more points: those with more
    points than ``mine`` are at its beginning, then come those with as many.
    """
    class_ = state.policy.classes.get(bucket.sample.class_)
    step = state.policy.ordering.age_step
    ages = -mine[0] - (class_.priority if class_ is not None else 0)
    if ages < 0:
        return len(bucket.entries)
    more = bisect_right(bucket.entries, (now - (ages + 1) * step, MAX, ""))
    use = relative_use(state, bucket)
    if use > mine[1]:
        return more
    last = (now - ages * step, MAX, "") if ages else (MAX, MAX, "")
    if use == mine[1]:
        last = min(last, (mine[2], mine[3] - 1, "\U0010ffff"))
    return max(more, bisect_right(bucket.entries, last))
