"""Looking closer: what is wrong with the pool, why people waited, what another policy would do.

Each reads and none changes anything. What takes long runs in a thread, one at a time, on records
and immutable values only: the live state is never handed to it.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import Field

from ...clock import parse_time
from ...domain.amounts import DAY, AmountError, parse_duration
from ...domain.events import Event
from ...domain.findings import findings, taken_in_turns
from ...ledger import Ledger
from ...ledger.past import history_of, returns_of
from ...simulate.dryrun import TooMuch, dry_run, past_of
from ...views.findings import finding_view
from ...views.waits import waits_report
from ..answers import View
from ..problems import Fault, Problem, bad_input
from ..routes import Answer, Call, route
from ..schema import Strict
from .policy import read_policy

USUAL_SPAN = 7 * DAY
MOST_EVENTS = 100_000
"""The longest history that is read into the memory of a running governor."""

RECENT = DAY
"""How far back turns taken are looked for."""


class WaitsQuery(Strict):
    """The period of a report on waits, and whether samples are told step by step."""

    since: Annotated[str, Field(max_length=40)] | None = None
    until: Annotated[str, Field(max_length=40)] | None = None
    samples: Literal["true", "false"] = "false"


class PolicyTrial(Strict):
    """A policy to be tried on the past: ``since`` is a length such as 7d, or a time."""

    text: Annotated[str, Field(min_length=1, max_length=60_000)]
    since: Annotated[str, Field(max_length=40)] | None = None
    until: Annotated[str, Field(max_length=40)] | None = None


class FindingsView(View):
    """What an operator should look at."""

    findings: list[dict[str, Any]]


class WaitsReportView(View):
    """Distributions of waits in seconds, surges, findings and, where asked for, samples."""

    since: str
    until: str
    all: dict[str, Any]
    by_tenant: dict[str, Any]
    by_class: dict[str, Any]
    by_shape: dict[str, Any]
    surges: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    samples: dict[str, Any] | None = None


class DryRunView(View):
    """The recorded requests under both policies; ``old`` is the one in force."""

    span_s: float
    requests: int
    left_out: int
    replayed: list[str]
    not_replayed: list[str]
    wait_s: dict[str, Any]
    longer: int
    shorter: int
    started: dict[str, int]
    rejected: dict[str, int]
    returns: dict[str, int]
    by_tenant: dict[str, Any]
    by_class: dict[str, Any]
    refused: list[dict[str, Any]]
    allowed: list[dict[str, Any]]
    returned: list[dict[str, Any]]
    most_changed: list[dict[str, Any]]


@route("GET", "/findings", who="admin", answer=FindingsView, servers=False)
async def found(call: Call) -> Answer:
    """Inversions, starvation, fragmentation, guarantees above capacity, and turns taken."""
    now = call.now
    begins = now - RECENT + call.site.clock.offset_ms()
    recent = await call.site.service.query(lambda ledger: returns_of(ledger, since=begins))
    all_found = [*findings(call.governor.state, now), *taken_in_turns(recent)]
    return Answer({"findings": [finding_view(one, call.site.wall) for one in all_found]})


@route("GET", "/waits/report", who="admin", query=WaitsQuery, answer=WaitsReportView, servers=False)
async def waits(call: Call) -> Answer:
    """Wait distributions, surges and findings of a period; samples told step by step."""
    query: WaitsQuery = call.query
    now, wall = call.now, call.site.wall
    offset = call.site.clock.offset_ms()
    since, until = _at("since", query.since, offset), _at("until", query.until, offset)
    last = now if until is None else min(now, until)
    _in_order(since, last)
    present = findings(call.governor.state, now) if until is None else ()

    def history(ledger: Ledger) -> list[Event]:
        rows, _ = ledger.head()
        if rows > MOST_EVENTS:
            right = "read the ledger itself: allotment-hub waits --database URL"
            raise Problem(422, "TooMuch", f"the history has {rows} events; {right}")
        return history_of(ledger)[0]

    async with call.site.service.one_at_a_time(("", "waits/report")):
        events = await call.site.service.query(history)
        first = since if since is not None else events[0].at if events else last
        report = await asyncio.to_thread(
            waits_report, events, first, last, wall, samples=query.samples == "true",
            present=present,
        )  # fmt: skip
        return Answer(report)


@route("POST", "/policy/dry-run", who="admin", body=PolicyTrial, answer=DryRunView, servers=False)
async def try_policy(call: Call) -> Answer:
    """What a policy would have done to the recent past: who would have waited more or less."""
    body: PolicyTrial = call.body
    loaded = read_policy(body.text)
    offset, now = call.site.clock.offset_ms(), call.now
    until = _at("until", body.until, offset)
    last = now if until is None else min(now, until)
    since = _begin(body.since, last, offset)
    _in_order(since, last)
    state = call.governor.state
    nodes, old = tuple(state.nodes.values()), state.policy
    async with call.site.service.one_at_a_time(("", "policy/dry-run")):
        try:
            past = await call.site.service.query(lambda ledger: past_of(ledger, since, last))
        except TooMuch as error:
            raise Problem(422, "TooMuch", str(error)) from None
        report = await asyncio.to_thread(dry_run, past, nodes, old, loaded.policy, since, last)
    return Answer(report)


def _at(name: str, text: str | None, offset: int) -> int | None:
    try:
        return None if text is None else parse_time(text) - offset
    except ValueError as error:
        raise bad_input([Fault(name, str(error))]) from None


def _begin(text: str | None, last: int, offset: int) -> int:
    if text is None:
        return last - USUAL_SPAN
    try:
        return last - parse_duration(text)
    except AmountError:
        pass  # then it has to be a time
    try:
        return parse_time(text) - offset
    except ValueError:
        right = "write a length such as 7d, or a time such as 2026-03-29T02:30:00Z"
        raise bad_input([Fault("since", f"{text!r} is neither; {right}")]) from None


def _in_order(since: int | None, until: int) -> None:
    if since is not None and since >= until:
        raise bad_input([Fault("since", "is not before the end of the span")])
