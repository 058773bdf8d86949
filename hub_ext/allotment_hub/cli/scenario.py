"""``allotment-hub scenario``: play timelines against the real decisions, in virtual time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import UsageError, print_json

if TYPE_CHECKING:
    from allotment_hub.simulate.player import Failure, Outcome
    from allotment_hub.simulate.scenario import Scenario

    from . import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add ``scenario``."""
    text = "play scenario files against the real decisions, in virtual time, and check them"
    parser = subparsers.add_parser("scenario", help=text, description=text)
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="scenario file, or a folder of *.yaml"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="print only what does not hold")
    parser.set_defaults(handler=scenario)


def scenario(args: argparse.Namespace) -> int:
    """Play every file: 0 where every expect holds, 1 where not, 2 where one cannot be played."""
    from allotment_hub.simulate.document import ScenarioError
    from allotment_hub.simulate.scenario import load_scenario

    outcomes: list[Outcome] = []
    faults: list[str] = []
    for path in _files(args.files):
        try:
            outcomes.append(_played(load_scenario(path)))
        except ScenarioError as error:
            faults += str(error).splitlines()
            continue
        if not args.json:
            _print(outcomes[-1], quiet=args.quiet)
    if args.json:
        print_json(_as_json(outcomes, faults))
    if faults:
        raise UsageError("\n".join(faults))
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _played(scenario: Scenario) -> Outcome:
    """Play a scenario; one that restarts the governor is kept in a real ledger in memory."""
    from allotment_hub.simulate.player import play
    from allotment_hub.simulate.store import LedgerStore

    if not any(step.act == "restart" for step in scenario.steps):
        return play(scenario)
    from allotment_hub.ledger import Ledger

    with Ledger.open("sqlite://") as ledger:
        ledger.lead(since=scenario.start_ms)
        ledger.load()
        return play(scenario, LedgerStore(ledger))


def _files(given: list[str]) -> list[Path]:
    found: list[Path] = []
    for name in given:
        path = Path(name)
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(one for one in path.glob("*") if one.suffix in (".yaml", ".yml"))
        if not inside:
            raise UsageError(f"{name}: a folder without a *.yaml file")
        found += inside
    return found


def _print(outcome: Outcome, *, quiet: bool) -> None:
    scenario = outcome.scenario
    if outcome.ok:
        if not quiet:
            span = _offset(outcome.ended_at)
            print(f"ok    {scenario.name} ({outcome.checks} checks, {span} of virtual time)")
            for remark in outcome.remarks:
                print(f"      note: {remark}")
        return
    print(f"FAIL  {scenario.name}")
    for failure in outcome.failures:
        print(f"      {scenario.file}:{failure.step.line}: at {_offset(failure.step.at)}")
        print(f"        {_subject(failure)}{': ' + failure.path if failure.path else ''}")
        print(f"        wanted: {_shown(failure.wanted)}")
        print(f"        found:  {_shown(failure.found)}")
    for violation in outcome.violations:
        print(f"      at {_offset(violation.at - scenario.start_ms)}: {violation}")
    for refused in outcome.refusals:
        act = refused.step.act
        print(f"      note: at {_offset(refused.step.at)} {act} was refused: {refused.detail}")
    for remark in outcome.remarks:
        print(f"      note: {remark}")


def _subject(failure: Failure) -> str:
    expect = failure.step.expect
    if expect is None:
        return failure.step.act
    return f"{expect.kind} {_shown(expect.which)}"


def _offset(ms: int) -> str:
    """Milliseconds since the start as ``1d 2h 3m 4s``."""
    parts = []
    rest = ms // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def _shown(value: Any) -> str:
    """A value on one line, in the notation of the file."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _as_json(outcomes: list[Outcome], faults: list[str]) -> dict[str, Any]:
    return {
        "ok": not faults and all(outcome.ok for outcome in outcomes),
        "scenarios": [_outcome(outcome) for outcome in outcomes],
        "errors": faults,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    scenario = outcome.scenario
    return {
        "name": scenario.name,
        "file": scenario.file,
        "case": list(scenario.cases),
        "ok": outcome.ok,
        "checks": outcome.checks,
        "events": outcome.events,
        "virtual_seconds": outcome.ended_at // 1000,
        "failures": [
            {
                "name": scenario.name,
                "at": _offset(failure.step.at),
                "line": failure.step.line,
                "subject": _subject(failure),
                "path": failure.path,
                "wanted": failure.wanted,
                "found": failure.found,
            }
            for failure in outcome.failures
        ],
        "violations": [
            {"number": one.number, "at": _offset(one.at - scenario.start_ms), "text": one.text}
            for one in outcome.violations
        ],
        "refusals": [
            {
                "at": _offset(one.step.at),
                "line": one.step.line,
                "action": one.step.act,
                "code": one.code,
                "detail": one.detail,
            }
            for one in outcome.refusals
        ],
        "remarks": outcome.remarks,
    }
