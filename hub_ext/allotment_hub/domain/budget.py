"""GPU-hours of a tenant by calendar period (UTC), exact in milli-GPU-milliseconds.

A lease is charged from its grant to its release, by what it holds. An interval that crosses the
end of a period is split there.
"""

from __future__ import annotations

from dataclasses import dataclass

from .amounts import DAY, HOUR
from .leases import Lease
from .policy import Budget
from .state import State

EPOCH_MONDAY = 4 * DAY
"""1970-01-05, the first Monday of the calendar, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """``spent`` in milli-GPU-milliseconds within the period; ``rate`` milli-GPUs now held."""

    rule: Budget
    spent: int
    rate: int
    renews_at: int

    @property
    def limit(self) -> int:
        return self.rule.gpu_hours * HOUR

    @property
    def spent_up(self) -> bool:
        return self.spent >= self.limit

    @property
    def spent_gpu_hours(self) -> int:
        """In thousandths of a GPU-hour, as ``gpu_hours`` of the rule."""
        return self.spent // HOUR


def period_of(per: str, at: int) -> tuple[int, int]:
    """Start and end of the calendar period that holds ``at`` (milliseconds since 1970, UTC).

    >>> period_of("day", 90_000_000) == (DAY, 2 * DAY)
    True
    """
    if per == "day":
        start = at // DAY * DAY
        return start, start + DAY
    if per == "week":
        start = (at - EPOCH_MONDAY) // (7 * DAY) * 7 * DAY + EPOCH_MONDAY
        return start, start + 7 * DAY
    year, month, _ = civil_from_days(at // DAY)
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return days_from_civil(year, month, 1) * DAY, days_from_civil(*following, 1) * DAY


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """The date of a number of days since 1970-01-01: the inverse of :func:`days_from_civil`.

    >>> civil_from_days(days_from_civil(2026, 2, 28) + 1)
    (2026, 3, 1)
    """
    days += 719468
    era = days // 146097
    of_era = days - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def charges(lease: Lease, per: str, now: int) -> dict[int, int]:
    """Milli-GPU-milliseconds of a lease up to ``now``, by the start of the period."""
    start = lease.granted_at
    end = lease.released_at if lease.released_at is not None else max(start, now)
    parts: dict[int, int] = {}
    while start < end:
        begins, ends = period_of(per, start)
        upto = min(end, ends)
        parts[begins] = lease.gpus * (upto - start)
        start = upto
    return parts


def budget_state(state: State, tenant: str, now: int) -> BudgetState | None:
    """Where a tenant stands in the current period; None where it has no budget."""
    known = state.policy.tenants.get(tenant)
    if known is None or known.budget is None:
        return None
    start, end = period_of(known.budget.per, now)
    spent = state.spent.get((tenant, start), 0)
    rate = 0
    for lease in state.leases.values():
        if lease.tenant == tenant:
            spent += charges(lease, known.budget.per, now).get(start, 0)
            rate += lease.gpus
    return BudgetState(rule=known.budget, spent=spent, rate=rate, renews_at=end)
