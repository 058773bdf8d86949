"""What another policy would have done: the recorded requests, replayed under both policies.

Every request of a span is asked for again at its time and runs for as long as it really did, once
under the policy in force and once under the other one, by the same decisions. Both are replays, so
that what differs between them comes from the policies alone and not from how well a replay matches
what happened. What was there already when the span began is replayed as well and not counted.

What a replay cannot know stays out and is said so: work that never started has no length of its
own, and people would have asked for other things under other rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from allotment_hub.domain import commands
from allotment_hub.domain.inventory import Node
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import Policy
from allotment_hub.domain.requests import Ask, Request
from allotment_hub.domain.state import State

from .replay import Line, Options, Replay, _Shapes
from .replay_account import Run
from .report import spread
from .traces import Job

if TYPE_CHECKING:
    from allotment_hub.ledger import Ledger

MOST_REQUESTS = 10_000
"""Requests of one dry-run; more take minutes."""

MOST_ROWS = 50
"""Single requests that a report names."""

AS_ASKED = {one.name: one.default for one in fields(Ask)}
REPLAYED = ("priority and age", "quotas, loans and returns", "placement", "approvals given then")
NOT_REPLAYED = (
    "devices that failed or came back meanwhile: the present inventory is taken for the whole span",
    "leases taken back because they were not used",
    "people who would have asked otherwise under other rules",
)


class TooMuch(ValueError):
    """More requests than one dry-run takes; the message says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is recorded of a span: requests and leases by their last record, in any order."""

    requests: tuple[Request, ...]
    leases: tuple[Lease, ...]


def past_of(ledger: Ledger, since: int, until: int) -> Past:
    """Read the requests asked for in a span and what was held in it, in steady milliseconds.

    Raises
    ------
    TooMuch
        Where there are more than :data:`MOST_REQUESTS`.
    """
    from allotment_hub.ledger import LeaseFilter, RequestFilter  # brings SQLAlchemy

    asked = RequestFilter(since=since, until=until)
    requests: dict[str, Request] = {}
    after: int | None = None
    while page := ledger.query_requests(asked, limit=5000, after=after):
        requests.update((row.id, row) for row in page)
        after = page[-1].sequence
        if len(requests) > MOST_REQUESTS:
            raise TooMuch(f"more than {MOST_REQUESTS} requests; take a shorter span")
    held = LeaseFilter(since=since, until=until)
    leases: list[Lease] = []
    fence: int | None = None
    while rows := ledger.query_leases(held, limit=5000, after=fence):
        leases += rows
        fence = rows[-1].fence
    for lease in leases:
        if lease.request not in requests:
            found = ledger.get("Request", lease.request)
            if isinstance(found, Request):
                requests[found.id] = found
    return Past(requests=tuple(requests.values()), leases=tuple(leases))


def dry_run(
    past: Past, nodes: Iterable[Node], old: Policy, new: Policy, since: int, until: int
) -> dict[str, Any]:
    """Replay a past under two policies and tell what differs.

    Parameters
    ----------
    past : Past
        What is recorded.
    nodes : iterable of Node
        The pool, the same for both.
    since, until : int
        The span in steady milliseconds; requests outside it are not counted.

    Returns
    -------
    dict
        Plain data: seconds, and GPU counts as numbers.
    """
    nodes = tuple(nodes)
    jobs = {job.id: job for job in _jobs(past, old, until)}
    before, after = (_replayed(past, jobs, nodes, policy) for policy in (old, new))
    counted = [
        request for request in past.requests
        if since <= request.submitted_at < until and request.id in jobs
    ]  # fmt: skip
    rows = [_Row(request, before.seen(request.id), after.seen(request.id)) for request in counted]
    rows.sort(key=lambda row: row.request.sequence)
    left_out = sum(1 for r in past.requests if since <= r.submitted_at < until and r.id not in jobs)
    return {
        "span_s": (until - since) / 1000,
        "requests": len(rows),
        "left_out": left_out,
        "replayed": list(REPLAYED),
        "not_replayed": list(NOT_REPLAYED),
        **_compared(rows),
        "by_tenant": _grouped(rows, "tenant"),
        "by_class": _grouped(rows, "class_"),
        "refused": [row.named() for row in rows if row.after.refused and not row.before.refused][
            :MOST_ROWS
        ],
        "allowed": [row.named() for row in rows if row.before.refused and not row.after.refused][
            :MOST_ROWS
        ],
        "returned": _returned(rows),
        "most_changed": _most_changed(rows),
    }


# -- replaying -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of one request in a replay. ``wait`` in milliseconds, None: never started."""

    wait: int | None = None
    evictions: int = 0
    refused: str = ""


@dataclass(slots=True)
class _Replayed:
    runs: Mapping[str, Run]
    refused: dict[str, str] = field(default_factory=dict)

    def seen(self, id: str) -> Seen:
        code = self.refused.get(id, "")
        run = self.runs.get(id)
        if run is None or code:
            return Seen(refused=code or "NotReplayed")
        return Seen(wait=run.wait, evictions=run.evictions)


def _replayed(
    past: Past, jobs: Mapping[str, Job], nodes: Sequence[Node], policy: Policy
) -> _Replayed:
    asked = {request.id: request for request in past.requests}
    known = {
        key: job for key, job in jobs.items()
        if job.tenant in policy.tenants and policy.tenants[job.tenant].groups
    }  # fmt: skip
    refused = {key: "NoQuota" for key in jobs if key not in known}

    def note(line: Line) -> None:
        if line["what"] == "reject":
            refused[line["request"]] = line["code"]

    replay = Recorded(policy, nodes, list(known.values()), asked, note)
    replay.run()
    return _Replayed(replay.account.runs, refused)


def _jobs(past: Past, old: Policy, until: int) -> list[Job]:
    """The recorded work as rows of a trace: each request that ever ran, for as long as it did.

    What runs at the end of the span is taken to run to the end of its term.
    """
    ran: dict[str, int] = {}
    began: dict[str, int] = {}
    for lease in past.leases:
        begins = lease.active_at if lease.active_at is not None else lease.granted_at
        ends = lease.released_at if lease.released_at is not None else max(
            until, lease.term_ends_at
        )  # fmt: skip
        ran[lease.request] = ran.get(lease.request, 0) + max(1, ends - begins)
        began[lease.request] = min(began.get(lease.request, begins), lease.granted_at)
    jobs = []
    for request in past.requests:
        length = ran.get(request.id)
        if length is None and request.live:  # it still waits: it will run as long as it said
            class_ = old.classes.get(request.class_)
            length = request.ask.duration or (class_.duration.default if class_ else None)
        if length is None or request.state == "rejected":
            continue
        jobs.append(Job(
            id=request.id, submit=request.submitted_at, duration=length, gpus=request.ask.gpus,
            tenant=request.tenant, user=request.user, class_=request.class_, kind=request.kind,
        ))  # fmt: skip
    return sorted(jobs, key=lambda job: (job.submit, job.id))


class Recorded(Replay):
    """A replay in which every request is asked for exactly as it was, approvals included."""

    def __init__(
        self, policy: Policy, nodes: Sequence[Node], jobs: Sequence[Job],
        asked: Mapping[str, Request], log: Any,
    ) -> None:  # fmt: skip
        super().__init__(policy, nodes, jobs, Options(), log)
        self._asked = asked
        self._shapes = _AsAsked(self.state, asked)

    def _submit(self, job: Job) -> None:
        super()._submit(job)
        request = self.state.requests.get(job.id)
        if request is None or self._asked[job.id].approved_until is None:
            return
        if self.state.policy.classes[request.class_].approval is not None:
            commands.approve(self.state, self.now, request.id, "replay", "approved then")


class _AsAsked(_Shapes):
    """What was asked for, in the keys in which it is asked."""

    def __init__(self, state: State, asked: Mapping[str, Request]) -> None:
        super().__init__(state, anywhere=False)
        self.asked = asked

    def wants(self, job: Job) -> dict[str, Any]:
        request = self.asked[job.id]
        wants = {
            name: value
            for name, default in AS_ASKED.items()
            if (value := getattr(request.ask, name)) != default and value is not None
        }
        wants |= {"tenant": request.tenant, "class": request.class_, "gpus": request.ask.gpus}
        # The turn of who was not looking then came and went; here nobody looks at all.
        return wants | ({"start": "always"} if request.kind == "session" else {})


# -- telling ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    request: Request
    before: Seen
    after: Seen

    @property
    def change(self) -> int:
        """How much longer it waits under the new policy, in milliseconds."""
        if self.before.wait is None or self.after.wait is None:
            return 0
        return self.after.wait - self.before.wait

    def named(self) -> dict[str, Any]:
        request = self.request
        return {
            "request": request.id, "tenant": request.tenant, "user": request.user,
            "class": request.class_, "gpus": request.ask.gpus / 1000,
            "wait_s": {"old": _seconds(self.before.wait), "new": _seconds(self.after.wait)},
            "returned": {"old": self.before.evictions, "new": self.after.evictions},
            "refused": {"old": self.before.refused or None, "new": self.after.refused or None},
        }  # fmt: skip


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _compared(rows: Sequence[_Row]) -> dict[str, Any]:
    """The figures of some requests under both policies, and who gains and loses."""
    sides = {"old": [row.before for row in rows], "new": [row.after for row in rows]}
    return {
        "wait_s": {
            name: spread(sorted(s.wait for s in seen if s.wait is not None))
            for name, seen in sides.items()
        },
        "longer": sum(1 for row in rows if row.change > 0),
        "shorter": sum(1 for row in rows if row.change < 0),
        "started": {n: sum(1 for s in seen if s.wait is not None) for n, seen in sides.items()},
        "rejected": {n: sum(1 for s in seen if s.refused) for n, seen in sides.items()},
        "returns": {n: sum(s.evictions for s in seen) for n, seen in sides.items()},
    }


def _grouped(rows: Sequence[_Row], by: str) -> dict[str, Any]:
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(getattr(row.request, by), []).append(row)
    return {
        name: {"requests": len(groups[name]), **_compared(groups[name])} for name in sorted(groups)
    }


def _returned(rows: Sequence[_Row]) -> list[dict[str, Any]]:
    """Work that is asked back under one policy more often than under the other."""
    changed = [row for row in rows if row.before.evictions != row.after.evictions]
    return [row.named() for row in changed[:MOST_ROWS]]


def _most_changed(rows: Sequence[_Row]) -> list[dict[str, Any]]:
    changed = sorted((row for row in rows if row.change), key=lambda row: -abs(row.change))
    return [row.named() for row in changed[:MOST_ROWS]]
