"""What a timeline does to the pool itself, in words: failures, maintenance, rules, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allotment_hub.simulate.scenario import Scenario, Step


def pool_acts(scenario: Scenario) -> list[tuple[int, str]]:
    """When (milliseconds from the start) something happened to the pool, and what."""
    acts = [(step.at, _said(step)) for step in scenario.steps]
    return [(at, text) for at, text in acts if text]


def _said(step: Step) -> str:
    args = step.args
    if step.act == "restart":
        return "the governor is killed and starts again from its records"
    if step.act == "device":
        return _device(args)
    if step.act == "drain":
        back = args.get("on") is False
        return f"machine {args['node']} {'is back' if back else 'is taken out for maintenance'}"
    if step.act == "runtime" and "unreachable" in args:
        can = "can no longer" if args["unreachable"] else "can again"
        return f"the system that starts servers {can} be reached"
    if step.act == "policy":
        return f"the rules are changed: {args.get('note', 'no note')}"
    return ""


def _device(args: Mapping[str, Any]) -> str:
    name = f"GPU {args.get('node')}/{args.get('index')}"
    if args.get("restored"):
        return f"{name} works again"
    why = args.get("detail")
    return f"{name} is lost" + (f": {why}" if why else "")
