"""The policy: who owns, lends and may borrow what, and under which terms. Plain data, once.

The field names are those of the policy file (the public surface): the edge reads a YAML file
straight into these classes. Every field that holds a quantity carries a :class:`~.amounts.Unit`
that names its notation; the value in memory is always the integer of :mod:`.amounts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .amounts import DAY, HOUR, MINUTE, SECOND, Duration, Gpus, Memory, Rate

Kind = Literal["interactive", "batch", "service"]
Interruptible = Literal["no", "checkpoint", "stateless"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How one device is cut: ``share`` is the part of a GPU that one slot is worth."""

    mode: Literal["time-slice", "mig", "mps"]
    share: Gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A kind of device: a regular expression over the model name, and the memory it must have."""

    model: str
    memory: Memory | None = None
    sharing: Sharing | None = None
    rate: Rate = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices governed together. ``nodes`` are the labels that a node must carry to belong."""

    classes: tuple[str, ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a tenant owns and may use of one flavor in one pool.

    ``lend`` is how much of an unused guarantee others may borrow; left out, all of it.
    ``ceiling`` left out equals the guarantee: borrowing has to be allowed in words.
    """

    pool: str = "default"
    flavor: str
    guarantee: Gpus = 0
    ceiling: Gpus | None = None
    lend: Gpus | None = None

    @property
    def most(self) -> int:
        return self.guarantee if self.ceiling is None else self.ceiling

    @property
    def lends(self) -> int:
        return self.guarantee if self.lend is None else min(self.lend, self.guarantee)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps inside a tenant; None is no cap."""

    gpus_per_user: Gpus | None = None
    queued_per_user: int | None = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """GPU-hours per calendar period (UTC) and what follows when they are spent."""

    gpu_hours: Gpus
    per: Literal["day", "week", "month"] = "month"
    when_spent: Literal["warn", "no-borrowing", "refuse"] = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrowing:
    """Terms of a borrowed lease. None in an override means: as the level above says."""

    term: Duration | None = None
    renewals: int | None = None
    notice: Duration | None = None
    protected: Duration | None = None

    def over(self, base: Borrowing) -> Borrowing:
        """These terms where given, else those of ``base``."""
        return Borrowing(
            term=base.term if self.term is None else self.term,
            renewals=base.renewals if self.renewals is None else self.renewals,
            notice=base.notice if self.notice is None else self.notice,
            protected=base.protected if self.protected is None else self.protected,
        )


DEFAULT_BORROWING = Borrowing(term=4 * HOUR, renewals=2, notice=15 * MINUTE, protected=30 * MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A team, known by its hub groups. ``owners`` are ``user:NAME`` or ``group:NAME``."""

    groups: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    quotas: tuple[Quota, ...] = ()
    limits: Limits = Limits()
    budget: Budget | None = None
    borrowing: Borrowing = Borrowing()
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationRule:
    """How long work of a class runs unless it says otherwise, and at most."""

    default: Duration = 4 * HOUR
    max: Duration = 12 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A start objective: ``share`` of the requests start within ``start_within``."""

    start_within: Duration
    share: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who may approve the use of a class, for how long, and how many may run at once."""

    by: tuple[str, ...]
    valid_for: Duration = 3 * DAY
    running_at_once: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkClass:
    """A kind of work. ``borrow: surplus`` lets only what is above a service's floor borrow.

    ``prepare_within`` bounds the time from the start of a server to the moment it answers.
    ``max_wait`` ends a request that has waited so long, ``parked_for`` one that nobody fetched.
    ``preempts`` names classes of lower priority whose leases this one may take (with notice).
    """

    kind: Kind = "interactive"
    priority: int = 0
    interruptible: Interruptible = "stateless"
    borrow: bool | Literal["surplus"] = False
    duration: DurationRule = DurationRule()
    claim_window: Duration = 10 * MINUTE
    prepare_within: Duration = 30 * MINUTE
    max_wait: Duration | None = None
    parked_for: Duration = 7 * DAY
    objective: Objective | None = None
    approval: Approval | None = None
    borrowing: Borrowing = Borrowing()
    preempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What pressing *keep* buys: at most ``times`` times, each ``for`` so long."""

    times: int = 3
    for_: Duration = 30 * MINUTE  # `for` in the file: a keyword of the language


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Which leases a reclaim rule is for; None matches all."""

    class_: str | None = None
    flavor: str | None = None
    tenant: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimRule:
    """When a lease counts as left, and how long each step of taking it back lasts.

    ``idle_after`` and ``unused_after`` None (``off`` in the file) switch the trigger off.
    """

    when: When = When()
    idle_after: Duration | None = 30 * MINUTE
    unused_after: Duration | None = 4 * HOUR
    notice: Duration = 15 * MINUTE
    freeze: Duration = 10 * MINUTE
    stop_grace: Duration = 2 * MINUTE
    keep: Keep = Keep()
    confirm: Literal["none", "owner", "admin"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Each ``age_step`` of waiting adds one point of priority; after ``reserve_after`` at the
    head a request that does not fit yet holds a reservation.
    """

    age_step: Duration = 10 * MINUTE
    reserve_after: Duration = 10 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """How old a report or reading may be before it says nothing any more."""

    report: Duration = 180 * SECOND
    reading: Duration = 180 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of all rules, applied whole or not at all."""

    version: Literal[1] = 1
    currency: str = "USD"
    overcommit: bool = False
    admins: tuple[str, ...] = ()
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    pools: Mapping[str, Pool] = field(default_factory=lambda: {"default": Pool()})
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    classes: Mapping[str, WorkClass] = field(
        default_factory=lambda: {"notebook": WorkClass(priority=100, borrow=True)}
    )
    borrowing: Borrowing = DEFAULT_BORROWING
    reclaim: tuple[ReclaimRule, ...] = (ReclaimRule(),)
    ordering: Ordering = Ordering()
    ages: Ages = Ages()

    def quota(self, tenant: str, pool: str, flavor: str) -> Quota | None:
        """The quota line of a tenant, or None where it has none."""
        known = self.tenants.get(tenant)
        if known is None:
            return None
        for quota in known.quotas:
            if quota.pool == pool and quota.flavor == flavor:
                return quota
        return None

    def terms(self, tenant: str, class_: str) -> Borrowing:
        """Terms of borrowing: class over tenant over policy over the built-in ones."""
        base = self.borrowing.over(DEFAULT_BORROWING)
        if tenant in self.tenants:
            base = self.tenants[tenant].borrowing.over(base)
        if class_ in self.classes:
            base = self.classes[class_].borrowing.over(base)
        return base

    def reclaim_rule(self, *, class_: str, flavor: str, tenant: str, user: str) -> ReclaimRule:
        """The first rule whose ``when`` matches; the built-in one where none does."""
        for rule in self.reclaim:
            when = rule.when
            if (
                when.class_ in (None, class_)
                and when.flavor in (None, flavor)
                and when.tenant in (None, tenant)
                and when.user in (None, user)
            ):
                return rule
        return ReclaimRule()

    def pools_for(self, class_: str) -> tuple[str, ...]:
        """Pools that a class may use, in the order of the file; a pool without a list takes all."""
        return tuple(
            name for name, pool in self.pools.items() if not pool.classes or class_ in pool.classes
        )
