"""Plays a scenario: the real decisions on a clock that moves from event to event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from allotment_hub.clock import ManualClock, show_time
from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide, next_due
from allotment_hub.domain.events import Event, PolicyVersion
from allotment_hub.domain.forecast import forecast
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request
from allotment_hub.domain.shapes import Refusal
from allotment_hub.domain.state import State
from allotment_hub.views import Frame, Outlook, outlook_of

from . import authority, document, looks
from .actions import ASK_KEYS
from .invariants import Violation, Watch
from .match import MISSING, Mismatch, Moment
from .opening import Opening, open_scenario
from .scenario import Scenario, Step
from .servers import Servers
from .store import Store

MAX_ROUNDS = 1000
"""Rounds of decisions and acts at one moment before the scenario is given up as endless."""


RECOUNTED = 50
"""Live records up to which the whole state is recounted after every step."""


class CannotPlay(ValueError):
    """A step that makes no sense where it stands: an unknown name, a value of the wrong kind."""


@dataclass(frozen=True)
class Failure:
    """An ``expect`` (or ``refused``) that does not hold."""

    step: Step
    path: str
    wanted: Any
    found: Any


@dataclass(frozen=True)
class Refused:
    """An action that the rules refused, for the record."""

    step: Step
    code: str
    detail: str


@dataclass
class Outcome:
    """What came of a scenario."""

    scenario: Scenario
    checks: int = 0
    failures: list[Failure] = field(default_factory=list)
    refusals: list[Refused] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    events: int = 0
    ended_at: int = 0

    @property
    def ok(self) -> bool:
        """Whether every expect held and no invariant was broken."""
        return not self.failures and not self.violations


def play(scenario: Scenario, store: Store | None = None) -> Outcome:
    """Play a scenario to its last step.

    Parameters
    ----------
    store : Store or None
        What is committed to; None keeps it in memory.

    Raises
    ------
    ScenarioError
        When the policy or inventory cannot be read, or a step makes no sense.
    """
    player = Player(scenario, open_scenario(scenario), store)
    for step in scenario.steps:
        player.play(step)
    return player.finish()


class Player:
    """A governor's shell in virtual time: what it commits, acts on and answers from."""

    def __init__(self, scenario: Scenario, opening: Opening, store: Store | None = None) -> None:
        self.scenario = scenario
        self.outcome = Outcome(scenario, remarks=list(opening.remarks))
        self.base = scenario.start_ms
        self.clock = ManualClock(self.base, wall=self.base)
        self.state = State()
        self.store = store if store is not None else Store()
        self.watch = Watch()
        self.servers = Servers(scenario.runtime)
        self.names: dict[str, str] = {}
        self.rejected: dict[str, dict[str, Any]] = {}
        self.past_requests: dict[str, Request] = {}
        self.past_leases: dict[str, Lease] = {}
        self.past_policies: dict[int, PolicyVersion] = {}
        self.watching: set[str] = set()
        self.watching_users: set[str] = set()
        self.reports: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self.readings: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self.stages: dict[str, tuple[int, Mapping[str, Any]]] = {}
        commands.set_policy(self.state, self.now, opening.policy, "scenario", scenario.name)
        commands.set_nodes(self.state, self.now, opening.nodes)
        self.settle()

    @property
    def now(self) -> int:
        """Steady milliseconds; the timeline begins at its wall-clock start."""
        return self.clock.now_ms()

    # -- playing -----------------------------------------------------------------------------

    def play(self, step: Step) -> None:
        """Let time pass up to a step, then take it."""
        self.advance(self.base + step.at)
        try:
            if step.expect is not None:
                self._expect(step)
            else:
                self._act(step)
        except (CannotPlay, looks.CannotLook) as error:
            raise document.failed(
                self.scenario.file, str(error), step.line, f"{step.path}.{step.act}"
            ) from None

    def finish(self) -> Outcome:
        """Close the books: compare the state with its history and count."""
        self._note(self.watch.compare(self.state, self.now))
        self.outcome.events = len(self.store.rows)
        self.outcome.ended_at = self.now - self.base
        return self.outcome

    def advance(self, to: int) -> None:
        """Let everything happen that falls due up to ``to``, in the order of time."""
        stuck = 0
        while (due := self._next_due()) is not None and due <= to:
            before, rows = self.now, len(self.store.rows)
            self.clock.move_to(max(due, before))
            self.settle()
            stuck = stuck + 1 if self.now == before and len(self.store.rows) == rows else 0
            if stuck > 2:
                self._note([Violation(0, self.now, "a timer is due that changes nothing")])
                break
        self.clock.move_to(max(to, self.now))

    def _next_due(self) -> int | None:
        times = [next_due(self.state, self.now), self.servers.next_due()]
        return min((time for time in times if time is not None), default=None)

    def settle(self) -> None:
        """Observe, decide, commit, act, until nothing changes any more at this moment."""
        for _ in range(MAX_ROUNDS):
            self._observe()
            self._look()
            decide(self.state, self.now)
            committed = self.commit()
            if not self._enact() and not committed and not self.state.journal:
                self._compare()
                return
        self._note([Violation(0, self.now, f"no rest after {MAX_ROUNDS} rounds of decisions")])

    def _compare(self) -> None:
        """Recount the whole state: after every step of a small one, ever more seldom of a large
        one, so that a long scenario stays quick. Single events are always looked at.
        """
        self._since_recount += 1
        if self._since_recount * RECOUNTED >= len(self.state.requests) + len(self.state.leases):
            self._since_recount = 0
            self._note(self.watch.compare(self.state, self.now))

    def commit(self) -> int:
        """Keep what has happened; return how much it was."""
        events = self.state.take_journal()
        self._keep(events)
        self.store.commit(events, self.clock.offset_ms())
        self._note(self.watch.follow(events))
        return len(events)

    def _keep(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event.record, Request):
                self.past_requests[event.record.id] = event.record
            elif isinstance(event.record, Lease):
                self.past_leases[event.record.id] = event.record
            elif isinstance(event.record, PolicyVersion):
                self.past_policies[event.record.number] = event.record

    def _observe(self) -> None:
        """Tell the rules what servers have done by now."""
        for done in self.servers.take_due(self.now):
            if done.phase == "up":
                if done.lease in self.state.leases and not self._stopping(done.lease):
                    commands.started(self.state, self.now, done.lease)
            else:
                commands.gone(self.state, self.now, done.lease)

    def _stopping(self, lease_id: str) -> bool:
        return self.state.leases[lease_id].state == "stopping"

    def _look(self) -> None:
        """Whoever looks at a waiting room is still looking."""
        for request in list(self.state.requests.values()):
            if request.id in self.watching or request.user in self.watching_users:
                commands.presence(self.state, self.now, request.user, request.id)

    def _enact(self) -> bool:
        """Ask the runtime for what the committed state wants; whether anything was asked."""
        wanted = [lease.id for lease in commands.to_start(self.state, self.now)]
        asked = self.servers.start(wanted, self.now)
        if not self.servers.rules.manual:
            for lease_id in asked:
                commands.preparing(self.state, self.now, lease_id)
        self.servers.stop([lease.id for lease in commands.to_stop(self.state)], self.now)
        due = self.servers.next_due()
        return bool(asked) or (due is not None and due <= self.now)

    def _note(self, violations: list[Violation]) -> None:
        known = {(v.number, v.text) for v in self.outcome.violations}
        self.outcome.violations += [v for v in violations if (v.number, v.text) not in known]

    # -- steps -------------------------------------------------------------------------------

    def _act(self, step: Step) -> None:
        from .handlers import HANDLERS  # the handlers are written in terms of this class

        try:
            authority.check(self, step.act, step.args)
            HANDLERS[step.act](self, step.args)
        except Refusal as refusal:
            self._refused(step, refusal.code, refusal.detail)
        else:
            if step.act == "request" and (view := self.rejected.get(self._name_of(step))):
                self._refused(step, view["reasons"][0]["code"], view["reasons"][0]["text"])
            elif step.refused not in (None, False):
                self._fail(step, "refused", step.refused, "it was not refused")
        self.settle()

    def _name_of(self, step: Step) -> str:
        return str(step.args.get("as", self.last_name))

    last_name = ""
    _since_recount = 0

    def _refused(self, step: Step, code: str, detail: str) -> None:
        self.outcome.refusals.append(Refused(step, code, detail))
        if step.refused is None:
            return
        self.outcome.checks += 1
        if step.refused is False or (step.refused is not True and step.refused != code):
            self._fail(step, "refused", step.refused, f"{code}: {detail}")

    def _fail(self, step: Step, path: str, wanted: Any, found: Any) -> None:
        shown = repr(found) if found is MISSING else found
        self.outcome.failures.append(Failure(step, path, wanted, shown))

    def _expect(self, step: Step) -> None:
        assert step.expect is not None  # noqa: S101 - the caller has looked; for the type checker
        self.outcome.checks += 1
        found = looks.look(self, step.expect)
        parted: list[Mismatch] = looks.compare(step.expect, found)
        for part in parted:
            self._fail(step, part.path, part.wanted, part.found)

    # -- answers -----------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The present state, seen by somebody who may see all."""
        return Frame(state=self.state, now=self.now, wall=self.wall)

    def wall(self, at: int) -> str:
        """A moment as people read it, which knows its offset from the start of the timeline."""
        return Moment(show_time(at + self.clock.offset_ms()), at - self.base)

    def known_name(self, which: Any) -> str:
        """Return the name of a request that was made in this scenario.

        Raises
        ------
        CannotPlay
            When there is none of that name.
        """
        name = str(which)
        known = {*self.names, *self.rejected}
        if name not in known:
            raise CannotPlay(f"no request {name!r} was made before{self.nearest(name, known)}")
        return name

    @staticmethod
    def nearest(word: str, known: Collection[str]) -> str:
        """Return the end of a message about an unknown word."""
        return document.nearest(word, known)

    def request(self, name: str) -> Request:
        """Return a request by its name, whether it lives or has ended."""
        if name in self.rejected and name not in self.names:
            raise CannotPlay(f"request {name!r} was refused: {self.rejected[name]['reasons'][0]}")
        return self.past_requests[self.names[name]]

    def lease_of(self, name: str) -> Lease | None:
        """Return the last lease of a request, None where it never had one."""
        if name not in self.names:
            return None
        leases = self.leases_of_request(self.names[name])
        return self.past_leases[leases[-1]] if leases else None

    def leases_of_request(self, request_id: str) -> list[str]:
        """Return the ids of all leases of a request, oldest first."""
        return [lease.id for lease in self.past_leases.values() if lease.request == request_id]

    def outlook(self, request: Request) -> Outlook:
        """Return what is known about a request beside its record."""
        ids = {request.id, *self.leases_of_request(request.id)}
        history = tuple(
            (row["at"], row["what"], row["why"]) for row in self.store.rows if row["subject"] in ids
        )
        known = forecast(self.state, self.now, [request.id]).get(request.id)
        return outlook_of(self.frame(), request, history=history, known=known)

    def audit(self) -> list[dict[str, Any]]:
        """Return all that has happened, in the shape that REST answers."""
        return [
            {key: self.wall(row["at"]) if key == "at" else value for key, value in row.items()}
            for row in self.store.rows
        ]

    def decisions(self) -> list[dict[str, Any]]:
        """Return what the rules have decided: the rows of the governor."""
        return [_decision(row) for row in self.audit() if row["actor"] == "governor"]


def _decision(row: Mapping[str, Any]) -> dict[str, Any]:
    record = row["record"]
    return {
        **{
            key: row[key]
            for key in ("seq", "at", "what", "subject", "tenant", "user", "actor", "why")
        },
        "request": record.get("request", row["subject"]),
        "lease": row["subject"] if row["kind"] == "Lease" else record.get("lease"),
        "rule": record.get("rule") or next((r["rule"] for r in record.get("reasons", ())), None),
        "policy_version": record.get("policy_version"),
    }


Handler = Callable[[Player, Mapping[str, Any]], None]

__all__ = ["ASK_KEYS", "CannotPlay", "Failure", "Handler", "Outcome", "Player", "play"]
