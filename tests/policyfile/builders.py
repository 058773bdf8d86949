"""Policies for tests: a small good one, and ways to spoil a part of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from allotment_hub.policyfile import Loaded, PolicyError, Problem, load_policy

GOOD: dict[str, Any] = {
    "version": 1,
    "flavors": {"a100": {"model": "A100.*80GB", "memory": "80GiB"}, "l40s": {"model": "L40S"}},
    "pools": {"interactive": {"classes": ["notebook"]}, "training": {"classes": ["training"]}},
    "tenants": {
        "vision": {
            "groups": ["vision"],
            "quotas": [
                {"pool": "interactive", "flavor": "a100", "guarantee": 4, "ceiling": 6, "lend": 2}
            ],
        },
        "nlp": {
            "groups": ["nlp"],
            "quotas": [{"pool": "interactive", "flavor": "a100", "guarantee": 2}],
        },
    },
    "classes": {
        "notebook": {"kind": "interactive", "priority": 100, "borrow": True},
        "training": {"kind": "batch", "priority": 50, "interruptible": "checkpoint"},
    },
    "reclaim": [{"when": {"class": "notebook"}, "idle_after": "15m"}, {"idle_after": "30m"}],
}


def spoiled(*parts: str | int, value: Any) -> dict[str, Any]:
    """The good policy with one value put in place of another, at the path of ``parts``."""
    policy = copy.deepcopy(GOOD)
    here: Any = policy
    for part in parts[:-1]:
        here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
    here[parts[-1]] = value
    return policy


def errors_of(source: Any, **options: Any) -> dict[str, str]:
    """Path → message of every error that a policy is refused for."""
    with pytest.raises(PolicyError) as caught:
        load_policy(source, **options)
    return {str(error["path"]): str(error["message"]) for error in caught.value.errors}


def remarks_of(loaded: Loaded, severity: str = "warning") -> dict[str, str]:
    """Path → message of the warnings (or notes) that came with a policy."""
    found: tuple[Problem, ...] = loaded.warnings
    return {one.path: one.message for one in found if one.severity == severity}
