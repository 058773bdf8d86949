"""Plays the kit on its declared pool, in virtual time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from allotment_hub.ledger import Ledger
from allotment_hub.simulate.opening import open_scenario
from allotment_hub.simulate.player import Outcome
from allotment_hub.simulate.scenario import Scenario, load_scenario
from allotment_hub.simulate.store import LedgerStore, Store

from .catalogue import Item, kit, read_kit
from .eyes import Look, looks
from .observing import Observer, Told
from .records import Records, records_of
from .redlines import Recorded, RedLine, red_lines

Status = Literal["passed", "failed", "not yet", "not needed", "not run"]


@dataclass(slots=True)
class Result:
    """What came of one item. ``failures`` are sentences; ``base`` is the time of 0s."""

    item: Item
    status: Status
    failures: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    records: Records | None = None
    told: Sequence[Told] = ()
    looks: Sequence[Look] = ()
    base: int = 0


@dataclass(slots=True)
class Verdict:
    """The whole kit: what was played, and the red lines over all of it."""

    results: list[Result]
    lines: tuple[RedLine, ...]

    @property
    def ok(self) -> bool:
        """Whether every must that is built holds and no red line is crossed."""
        failed = any(r.status == "failed" and r.item.mark == "must" for r in self.results)
        return not failed and all(line.holds for line in self.lines)

    def count(self, status: Status, mark: str | None = None) -> int:
        """How many items have a status (and a mark)."""
        return sum(1 for r in self.results if r.status == status and mark in (None, r.item.mark))

    @property
    def score(self) -> tuple[int, int]:
        """(weight of what passed, weight of all): what is not there yet counts as missing."""
        passed = sum(r.item.weight for r in self.results if r.status == "passed")
        return passed, sum(r.item.weight for r in self.results)


def run_kit(only: Sequence[str] = ()) -> Verdict:
    """Play every item, or those whose ids are given."""
    with resources.as_file(kit()) as folder:
        results = [run_item(item, folder) for item in read_kit() if not only or item.id in only]
    everything = [
        Recorded(item=r.item.id, records=r.records, told=r.told)
        for r in results
        if r.records is not None
    ]
    return Verdict(results, red_lines(everything))


def run_item(item: Item, folder: Path) -> Result:
    """Play one item; what is not built yet is never passed, even where a part of it is played."""
    if item.scenario is None:
        return Result(item, "not needed" if item.mark == "not needed" else "not yet")
    scenario = load_scenario(folder / f"{item.scenario}.yaml")
    with _store(scenario) as store:
        player = Observer(scenario, open_scenario(scenario), store)
        for step in scenario.steps:
            player.play(step)
        seen = looks(player, item.eyes)
        outcome = player.finish()
    failures = [
        *_failures(outcome),
        *(f"{look.user}: {look.question}: {look.found}" for look in seen if not look.ok),
    ]
    status: Status = "failed" if failures else "not yet" if item.not_yet else "passed"
    return Result(
        item, status, failures, outcome, records_of(player.events, player.base, player.now),
        player.told, seen, player.base,
    )  # fmt: skip


@contextlib.contextmanager
def _store(scenario: Scenario) -> Iterator[Store]:
    """What is committed to: a real ledger where the governor restarts from it."""
    if not any(step.act == "restart" for step in scenario.steps):
        yield Store()
        return
    with Ledger.open("sqlite://") as ledger:
        ledger.lead(since=scenario.start_ms)
        ledger.load()
        yield LedgerStore(ledger)


def _failures(outcome: Outcome) -> list[str]:
    base = outcome.scenario.start_ms
    return [
        f"at {span(f.step.at)}: {f.path or f.step.act}: wanted {f.wanted}, found {f.found}"
        for f in outcome.failures
    ] + [f"at {span(v.at - base)}: {v}" for v in outcome.violations]


def span(ms: int) -> str:
    """Milliseconds as people say them.

    >>> span(3_900_000), span(20_000), span(0), span(90_000_000)
    ('1 h 05', '20 s', '0', '25 h 00')
    """
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02}"
    if minutes:
        return f"{minutes} min" + (f" {seconds:02} s" if seconds else "")
    return f"{seconds} s" if seconds else "0"
