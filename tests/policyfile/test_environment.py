"""POLICY-03: a setting under a wrong name is told about, and the ones in force can be seen."""

from __future__ import annotations

import re
from pathlib import Path

import allotment_hub
from allotment_hub.policyfile import unknown_environment
from allotment_hub.policyfile.environment import GIVEN, KNOWN


def test_policy_03_an_unknown_variable_is_named_with_what_was_probably_meant() -> None:
    environ = {"ALLOTMENT_IDLE_AFTER": "5", "ALLOTMENT_TOKENS": "x", "IDLE_AFTER_MINUTES": "5"}
    idle, tokens = unknown_environment(environ)
    assert idle.startswith("ALLOTMENT_IDLE_AFTER is not a known variable and has no effect")
    assert "ALLOTMENT_URL" in idle
    assert "did you mean ALLOTMENT_TOKEN?" in tokens


def test_the_value_of_a_variable_is_never_shown() -> None:
    assert "hunter2" not in "".join(unknown_environment({"ALLOTMENT_PASSWORD": "hunter2"}))


def test_known_variables_are_silent() -> None:
    assert unknown_environment(dict.fromkeys([*KNOWN, *GIVEN], "x")) == []


def test_every_variable_that_the_program_names_is_known() -> None:
    """A variable that is added to the code but not to the list would be called unknown."""
    package = Path(allotment_hub.__file__).parent
    named: set[str] = set()
    for file in package.rglob("*.py"):
        if file.name != "environment.py":
            named |= set(re.findall(r"[\"'`](ALLOTMENT_[A-Z_]+)[\"'`]", file.read_text("utf-8")))
    assert named <= {*KNOWN, *GIVEN}
