"""A scenario file: read whole, checked whole, before anything is played."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from allotment_hub.clock import parse_time
from allotment_hub.domain.amounts import SECOND, AmountError, parse_duration
from allotment_hub.policyfile.problems import Path

from .actions import ACTIONS, EXPECTS, read_action
from .document import Sheet, failed, nearest, read_sheet
from .match import PatternError, check_pattern

TOP_KEYS = frozenset(
    {
        "name", "case", "about", "start", "policy", "inventory", "runtime", "users", "ages",
        "timeline",
    }
)  # fmt: skip
AGES = frozenset({"report", "reading"})
RUNTIME_KEYS = frozenset({"start_after", "stop_after", "manual"})
DEFAULT_START = "2026-01-05T00:00:00Z"
"""Monday, midnight UTC: where a timeline begins when the file says nothing else."""


@dataclass(frozen=True)
class RuntimeRules:
    """How servers come and go by themselves, in milliseconds; ``manual``: only when told."""

    start_after: int = 5 * SECOND
    stop_after: int = 5 * SECOND
    manual: bool = False


@dataclass(frozen=True)
class Expect:
    """One look: at what, which one, narrowed how, and the pattern it has to match."""

    kind: str
    which: Any
    narrow: Mapping[str, Any]
    pattern: Any


@dataclass(frozen=True)
class Step:
    """One entry of the timeline at ``at`` ms; ``act`` is an action's name or ``expect``.

    ``refused`` is the code with which the action has to be refused, True for any, False when it
    must not be, None when the file does not say.
    """

    at: int
    line: int
    path: str
    act: str
    args: Mapping[str, Any] = field(default_factory=dict)
    expect: Expect | None = None
    refused: str | bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Scenario:
    """A timeline with the world it is played in. ``start_ms`` is its wall-clock beginning.

    ``ages``: how old a report or reading may be, in milliseconds; what is not there is as the
    policy says.
    """

    file: str
    base: FilePath
    name: str
    cases: tuple[str, ...]
    about: str
    start_ms: int
    policy: Any
    inventory: Any
    runtime: RuntimeRules
    users: Mapping[str, tuple[str, ...]]
    ages: Mapping[str, int]
    steps: tuple[Step, ...]
    sheet: Sheet


def load_scenario(path: FilePath) -> Scenario:
    """Read a scenario from a file.

    Raises
    ------
    ScenarioError
        When it cannot be read or has a fault; all faults are named.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise failed(str(path), f"cannot be read: {why}") from None
    return read_scenario(text, str(path), path.parent)


def read_scenario(text: str, file: str = "scenario", base: FilePath | None = None) -> Scenario:
    """Read a scenario from text; ``base`` is where paths in it start from."""
    sheet = read_sheet(text, file)
    raw = sheet.data
    if not isinstance(raw, Mapping):
        raise failed(file, "a scenario is a mapping with a policy, a timeline, …", 1)
    _known(raw, TOP_KEYS, (), sheet)
    for key in ("policy", "timeline"):
        if key not in raw:
            sheet.fault((), f"{key!r} is missing")
    scenario = Scenario(
        file=file,
        base=base if base is not None else FilePath(),
        name=_text(raw, "name", sheet) or FilePath(file).stem,
        cases=_cases(raw.get("case"), sheet),
        about=_text(raw, "about", sheet),
        start_ms=_start(raw.get("start"), sheet),
        policy=raw.get("policy"),
        inventory=raw.get("inventory", []),
        runtime=_runtime(raw.get("runtime"), sheet),
        users=_users(raw.get("users"), sheet),
        ages=_ages(raw.get("ages"), sheet),
        steps=_timeline(raw.get("timeline"), sheet),
        sheet=sheet,
    )
    sheet.check()
    return scenario


def _known(raw: Mapping[str, Any], keys: frozenset[str], path: Path, sheet: Sheet) -> None:
    for key in raw:
        if key not in keys:
            sheet.fault((*path, key), f"unknown key{nearest(key, keys)}")


def _text(raw: Mapping[str, Any], key: str, sheet: Sheet) -> str:
    value = raw.get(key, "")
    if isinstance(value, (str, int, float)):
        return str(value)
    sheet.fault((key,), "has to be text")
    return ""


def _cases(value: Any, sheet: Sheet) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    sheet.fault(("case",), "has to be the id of a case or a list of them")
    return ()


def _start(value: Any, sheet: Sheet) -> int:
    try:
        return parse_time(DEFAULT_START if value is None else str(value))
    except ValueError as error:
        sheet.fault(("start",), str(error))
        return 0


def _runtime(value: Any, sheet: Sheet) -> RuntimeRules:
    if value is None:
        return RuntimeRules()
    if not isinstance(value, Mapping):
        sheet.fault(("runtime",), "has to be a mapping such as {start_after: 5s}")
        return RuntimeRules()
    _known(value, RUNTIME_KEYS, ("runtime",), sheet)
    manual = value.get("manual", False)
    if not isinstance(manual, bool):
        sheet.fault(("runtime", "manual"), "has to be true or false")
    return RuntimeRules(
        start_after=_duration(value, "start_after", ("runtime",), sheet, 5 * SECOND),
        stop_after=_duration(value, "stop_after", ("runtime",), sheet, 5 * SECOND),
        manual=manual is True,
    )


def _duration(raw: Mapping[str, Any], key: str, path: Path, sheet: Sheet, default: int) -> int:
    if key not in raw:
        return default
    try:
        return parse_duration(raw[key])
    except AmountError as error:
        sheet.fault((*path, key), str(error))
        return default


def _users(value: Any, sheet: Sheet) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        sheet.fault(("users",), "has to be a mapping such as {ann: [vision]}")
        return {}
    users: dict[str, tuple[str, ...]] = {}
    for name, groups in value.items():
        listed = [groups] if isinstance(groups, str) else groups or []
        if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
            sheet.fault(("users", name), "has to be a list of groups")
            listed = []
        users[name] = tuple(listed)
    return users


def _ages(value: Any, sheet: Sheet) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        sheet.fault(("ages",), "has to be a mapping such as {report: 3m, reading: 3m}")
        return {}
    _known(value, AGES, ("ages",), sheet)
    return {key: _duration(value, key, ("ages",), sheet, 0) for key in value if key in AGES}


def _timeline(value: Any, sheet: Sheet) -> tuple[Step, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        sheet.fault(("timeline",), "has to be a list of {at: …, ACTION: …}")
        return ()
    steps = [_step(entry, ("timeline", index), sheet) for index, entry in enumerate(value)]
    return tuple(sorted((step for step in steps if step is not None), key=lambda step: step.at))


def _step(entry: Any, path: Path, sheet: Sheet) -> Step | None:
    if not isinstance(entry, Mapping):
        sheet.fault(path, "has to be a mapping {at: …, ACTION: …}")
        return None
    at = _at(entry, path, sheet)
    names = [key for key in entry if key not in ("at", "refused", "note", "is")]
    acts = [name for name in names if name in ACTIONS or name == "expect"]
    for name in names:
        if name not in acts:
            sheet.fault((*path, name), f"unknown action{nearest(name, {*ACTIONS, 'expect'})}")
    if len(acts) != 1:
        if names == acts:
            sheet.fault(path, f"has {len(acts)} actions; each entry has one")
        return None
    return _acted(acts[0], at, entry, path, sheet)


def _acted(act: str, at: int, entry: Mapping[str, Any], path: Path, sheet: Sheet) -> Step | None:
    where = f"timeline[{path[1]}]"
    line = sheet.line((*path, act))
    note = str(entry.get("note") or "")
    if act == "expect":
        raw = entry[act]
        if "is" in entry and isinstance(raw, Mapping) and "is" not in raw:
            raw = {**raw, "is": entry["is"]}  # `{at:, expect: {request: r1}, is: …}` means the same
        expect = _expect(raw, (*path, act), sheet)
        return Step(at, line, where, act, expect=expect, note=note) if expect else None
    if "is" in entry:
        sheet.fault((*path, "is"), "belongs into an 'expect'")
    refused = entry.get("refused")
    if refused is not None and not isinstance(refused, (str, bool)):
        sheet.fault((*path, "refused"), "has to be a code, true or false")
    args = read_action(act, entry[act], (*path, act), sheet)
    return Step(at, line, where, act, args, refused=refused, note=note)


def _at(entry: Mapping[str, Any], path: Path, sheet: Sheet) -> int:
    if "at" not in entry:
        sheet.fault(path, "'at' is missing; write for example at: 40m")
        return 0
    return _duration(entry, "at", path, sheet, 0)


def _expect(raw: Any, path: Path, sheet: Sheet) -> Expect | None:
    if not isinstance(raw, Mapping):
        sheet.fault(path, "has to be a mapping such as {request: r1, is: {state: queued}}")
        return None
    kinds = [key for key in raw if key in EXPECTS]
    # `{device: …, node: n1}`, `{tenant: vision, pool: interactive}`: the first one is looked at.
    kind = kinds[0] if kinds else None
    if kind is None:
        unknown = next((key for key in raw if key != "is"), "")
        sheet.fault(path, f"nothing to look at{nearest(unknown, EXPECTS)}")
        return None
    for key in raw:
        if key not in ("is", kind, *EXPECTS[kind]):
            known = {"is", kind, *EXPECTS[kind]}
            sheet.fault((*path, key), f"unknown key of an expect of {kind!r}{nearest(key, known)}")
    if "is" not in raw:
        sheet.fault(path, "'is' is missing: the pattern that has to match")
        return None
    try:
        check_pattern(raw["is"])
    except PatternError as error:
        sheet.fault((*path, "is"), str(error))
    narrow = {key: raw[key] for key in EXPECTS[kind] if key in raw}
    return Expect(kind, raw[kind], narrow, raw["is"])


_OFFSET = re.compile(r"([+-]?)\s*(\d.*)")


def signed_duration(value: Any) -> int:
    """Read ``+1h``, ``-90s`` or ``20m`` as milliseconds.

    Raises
    ------
    AmountError
        When it is not a duration with or without a sign.

    >>> signed_duration("-1h")
    -3600000
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return -parse_duration(-value) if value < 0 else parse_duration(value)
    match = _OFFSET.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise AmountError(f"{value!r} is not a jump of the clock; write +1h or -20m")
    return (-1 if match[1] == "-" else 1) * parse_duration(match[2])
