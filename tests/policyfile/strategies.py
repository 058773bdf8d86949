"""Random policies that are fit for use, for properties."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from allotment_hub.domain.amounts import MAX_DURATION, MAX_MEMORY, MILLI, SECOND, UNLIMITED
from allotment_hub.domain.policy import (
    DEFAULT_BORROWING,
    Ages,
    Approval,
    Borrowing,
    Budget,
    DurationRule,
    Flavor,
    Keep,
    Limits,
    Objective,
    Ordering,
    Policy,
    Pool,
    Quota,
    ReclaimRule,
    Sharing,
    Tenant,
    When,
    WorkClass,
)

AWKWARD = st.sampled_from(
    ["no", "off", "yes", "null", "1", "1e3", "0x1f", "017", "2026-01-01", "12.5", "true", "4h", "n"]
)
_LETTERS = st.characters(categories=("L", "N"))
_INNER = st.characters(categories=("L", "N"), include_characters="-_.+")
NAMES = AWKWARD | st.builds("{}{}".format, _LETTERS, st.text(_INNER, max_size=10)).map(
    lambda text: unicodedata.normalize("NFC", text)
)
_PRINTABLE = st.characters(categories=("L", "N", "P", "S", "M"))
TEXTS = (
    AWKWARD
    | st.sampled_from(["<<", "a: b", "# x", "*x", "a #b", "- a", "[x", "'", '"', "a, b", "%", "@"])
    | st.text(_PRINTABLE, min_size=1, max_size=10)
)
PRINCIPALS = st.builds("{}:{}".format, st.sampled_from(["user", "group"]), TEXTS)
GPUS = st.integers(0, 64 * MILLI)
LONG = st.integers(0, MAX_DURATION // SECOND).map(lambda seconds: seconds * SECOND)
TIMES = st.integers(1, MAX_DURATION // SECOND).map(lambda seconds: seconds * SECOND)
COUNTS = st.integers(0, 1000)


def _tuples(values: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=most, unique=True).map(tuple)


SHARING = st.builds(
    Sharing, mode=st.sampled_from(["time-slice", "mig", "mps"]), share=st.integers(1, MILLI)
)
FLAVORS = st.builds(
    Flavor,
    model=st.sampled_from(["A100.*80GB", "L40S", ".", "^NVIDIA (H100|H200)"]),
    memory=st.none() | st.integers(1, MAX_MEMORY),
    sharing=st.none() | SHARING,
    rate=st.integers(0, 10**12),
)
BORROWING = st.builds(
    Borrowing,
    term=st.none() | TIMES,
    renewals=st.none() | COUNTS,
    notice=st.none() | LONG,
    protected=st.none() | LONG,
)


@st.composite
def _quotas(draw: st.DrawFn, pools: list[str], flavors: list[str]) -> tuple[Quota, ...]:
    places = st.tuples(st.sampled_from(pools), st.sampled_from(flavors))
    result = []
    for pool, flavor in draw(st.lists(places, max_size=3, unique=True)):
        guarantee = draw(GPUS)
        ceiling = st.none() | st.just(UNLIMITED) | st.integers(guarantee, 128 * MILLI)
        lend = st.none() | st.integers(0, guarantee)
        result.append(
            Quota(
                pool=pool,
                flavor=flavor,
                guarantee=guarantee,
                ceiling=draw(ceiling),
                lend=draw(lend),
            )
        )
    return tuple(result)


@st.composite
def _tenants(draw: st.DrawFn, pools: list[str], flavors: list[str]) -> Tenant:
    limits = st.builds(Limits, gpus_per_user=st.none() | GPUS, queued_per_user=st.none() | COUNTS)
    budget = st.builds(
        Budget,
        gpu_hours=GPUS,
        per=st.sampled_from(["day", "week", "month"]),
        when_spent=st.sampled_from(["warn", "no-borrowing", "refuse"]),
    )
    return Tenant(
        groups=draw(_tuples(TEXTS)),
        owners=draw(_tuples(PRINCIPALS)),
        quotas=draw(_quotas(pools, flavors)) if flavors else (),
        limits=draw(limits),
        budget=draw(st.none() | budget),
        borrowing=draw(BORROWING),
        disabled=draw(st.booleans()),
    )


@st.composite
def _durations(draw: st.DrawFn) -> DurationRule:
    one, two = sorted((draw(TIMES), draw(TIMES)))
    return DurationRule(default=one, max=two)


CLASSES = st.builds(
    WorkClass,
    kind=st.sampled_from(["interactive", "batch", "service"]),
    priority=st.integers(-1_000_000, 1_000_000),
    interruptible=st.sampled_from(["no", "checkpoint", "stateless"]),
    borrow=st.sampled_from([True, False, "surplus"]),
    duration=_durations(),
    claim_window=TIMES,
    prepare_within=TIMES,
    max_wait=st.none() | TIMES,
    parked_for=TIMES,
    objective=st.none()
    | st.builds(Objective, start_within=TIMES, share=st.floats(0.001, 1, allow_subnormal=False)),
    approval=st.none()
    | st.builds(
        Approval,
        by=st.lists(PRINCIPALS, min_size=1, max_size=2, unique=True).map(tuple),
        valid_for=TIMES,
        running_at_once=st.none() | st.integers(1, 9),
    ),
    borrowing=BORROWING,
)


def _rules(when: st.SearchStrategy[When]) -> st.SearchStrategy[ReclaimRule]:
    return st.builds(
        ReclaimRule,
        when=when,
        idle_after=st.none() | TIMES,
        unused_after=st.none() | TIMES,
        notice=LONG,
        freeze=LONG,
        stop_grace=LONG,
        keep=st.builds(Keep, times=COUNTS, for_=TIMES),
        confirm=st.sampled_from(["none", "owner", "admin"]),
    )


def _one_of(named: Mapping[str, Any]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(list(named)) if named else st.none()


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy that the loader accepts."""
    flavors = draw(st.dictionaries(NAMES, FLAVORS, max_size=3))
    classes = draw(st.dictionaries(NAMES, CLASSES, min_size=1, max_size=3))
    pool = st.builds(
        Pool,
        classes=_tuples(st.sampled_from(list(classes))),
        nodes=st.dictionaries(TEXTS, TEXTS, max_size=2),
    )
    pools = draw(st.dictionaries(NAMES, pool, min_size=1, max_size=3))
    tenants = draw(st.dictionaries(NAMES, _tenants(list(pools), list(flavors)), max_size=3))
    when = st.builds(
        When,
        class_=_one_of(classes),
        flavor=_one_of(flavors),
        tenant=_one_of(tenants),
        user=st.none() | TEXTS,
    )
    return Policy(
        currency=draw(TEXTS),
        overcommit=draw(st.booleans()),
        admins=draw(_tuples(PRINCIPALS)),
        flavors=flavors,
        pools=pools,
        tenants=tenants,
        classes=classes,
        borrowing=draw(BORROWING).over(DEFAULT_BORROWING),
        reclaim=(*draw(st.lists(_rules(when), max_size=2)), draw(_rules(st.just(When())))),
        ordering=draw(st.builds(Ordering, age_step=TIMES, reserve_after=LONG)),
        ages=draw(st.builds(Ages, report=TIMES, reading=TIMES)),
    )
