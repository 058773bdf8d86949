"""The example policies load without a warning, and the reference one has every key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from allotment_hub.domain.policy import Policy
from allotment_hub.policyfile import load_inventory, load_policy, policy_data
from allotment_hub.policyfile.document import read_document
from allotment_hub.policyfile.notation import fields_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
POLICIES = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != "inventory.yaml")


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_an_example_is_fit_for_use_without_a_warning(path: Path) -> None:
    loaded = load_policy(path)
    assert [one.text(path.name) for one in loaded.warnings if one.severity == "warning"] == []


@pytest.mark.parametrize("name", ["reference.yaml", "teaching.yaml"])
def test_an_example_fits_the_example_inventory(name: str) -> None:
    nodes = load_inventory(EXAMPLES / "inventory.yaml")
    loaded = load_policy(EXAMPLES / name, inventory=nodes)
    assert [one.text(name) for one in loaded.warnings if one.severity == "warning"] == []


def _keys(cls: Any, path: str = "") -> Iterator[str]:
    """Every key that a policy can have, with * for a name or a place in a list."""
    for spec in fields_of(cls).values():
        at = f"{path}.{spec.key}" if path else spec.key
        yield at
        inner = spec.hint
        parts = [part for part in get_args(inner) if dataclasses.is_dataclass(part)]
        if dataclasses.is_dataclass(inner):
            yield from _keys(inner, at)
        elif parts:
            yield from _keys(parts[0], f"{at}.*")


def _written(data: Any, path: str = "", named: bool = False) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            at = f"{path}.{'*' if named else key}".lstrip(".")
            yield at
            yield from _written(value, at, at in ("flavors", "pools", "tenants", "classes"))
    elif isinstance(data, list):
        for value in data:
            yield from _written(value, f"{path}.*")


# One set of terms is the same on every level; the file shows each key where it belongs first.
_REPEATED = ("tenants.*.borrowing.", "classes.*.borrowing")


def test_the_reference_has_every_key() -> None:
    written = set(_written(read_document((EXAMPLES / "reference.yaml").read_bytes()).data))
    missing = {key for key in _keys(Policy) if not key.startswith(_REPEATED)} - written
    assert missing == set()


def test_the_defaults_that_the_reference_names_are_those_in_force() -> None:
    text = (EXAMPLES / "reference.yaml").read_text(encoding="utf-8")
    data = policy_data(load_policy("version: 1\nclasses: {c: {}}").policy, full=True)
    for key, value in data["classes"]["c"].items():
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            line = next(one for one in text.splitlines() if one.strip().startswith(f"{key}:"))
            assert f"[{value}]" in line, line
    for key, value in {**data["reclaim"][0], **data["borrowing"], **data["ordering"]}.items():
        if isinstance(value, str):
            lines = [one for one in text.splitlines() if one.strip().startswith(f"{key}:")]
            assert any(f"{value}]" in one for one in lines), (key, value)
