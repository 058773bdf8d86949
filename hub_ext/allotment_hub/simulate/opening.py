"""The policy and the inventory of a scenario, given in place or as a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from allotment_hub.domain.inventory import Node
from allotment_hub.domain.policy import Policy
from allotment_hub.policyfile import FileError, load_inventory, load_policy
from allotment_hub.policyfile.problems import Path, Problem, path_text

from .document import ScenarioError, failed
from .scenario import Scenario


@dataclass(frozen=True)
class Opening:
    """What a timeline begins with. ``remarks`` are warnings, one line each."""

    policy: Policy
    nodes: tuple[Node, ...]
    remarks: tuple[str, ...]


def open_scenario(scenario: Scenario) -> Opening:
    """Read policy and inventory.

    Guarantees above what there is are a warning here, since a scenario may be about them.

    Raises
    ------
    ScenarioError
        With every fault, each with its line.
    """
    nodes = _nodes(scenario)
    loaded = _read(scenario, "policy", lambda source: load_policy(source))
    remarks = [
        f"{scenario.file}: policy: {problem.path}: {problem.message}"
        for problem in loaded.warnings
        if problem.severity == "warning"
    ]
    try:
        load_policy(_source(scenario, scenario.policy), inventory=nodes)
    except FileError as error:
        remarks += [f"{scenario.file}: policy: {p.path}: {p.message}" for p in error.problems]
    policy = loaded.policy
    if scenario.ages:
        policy = replace(policy, ages=replace(policy.ages, **scenario.ages))
    return Opening(policy, nodes, tuple(remarks))


def _nodes(scenario: Scenario) -> tuple[Node, ...]:
    if not scenario.inventory:
        return ()
    return tuple(_read(scenario, "inventory", lambda source: load_inventory(source)))


def _source(scenario: Scenario, raw: Any) -> Any:
    """The value itself, or the file that a text names (from the folder of the scenario)."""
    return scenario.base / raw if isinstance(raw, str) else raw


def _read(scenario: Scenario, key: str, load: Any) -> Any:
    raw = getattr(scenario, key)
    inside = isinstance(raw, (Mapping, list))
    if not inside and not isinstance(raw, str):
        raise failed(
            scenario.file, "has to be written here or be the path of a file", path=key,
            line=scenario.sheet.line((key,)),
        )  # fmt: skip
    try:
        return load(_source(scenario, raw))
    except FileError as error:
        if not inside:
            raise ScenarioError(error.problems, error.source) from None
        raise ScenarioError(
            [_moved(scenario, key, p) for p in error.problems], scenario.file
        ) from None
    except OSError as error:
        raise failed(
            scenario.file, f"{raw}: cannot be read: {error.strerror}", path=key,
            line=scenario.sheet.line((key,)),
        ) from None  # fmt: skip


def _moved(scenario: Scenario, key: str, problem: Problem) -> Problem:
    """A problem of a part, placed in the whole file."""
    path = parse_path(problem.path)
    joined = path_text((key, *path))
    return Problem(joined, problem.message, scenario.sheet.line((key, *path)), problem.severity)


def parse_path(text: str) -> Path:
    """Read ``tenants.vision.quotas[0].guarantee`` as the path that it is.

    >>> parse_path("tenants.vision.quotas[0].guarantee")
    ('tenants', 'vision', 'quotas', 0, 'guarantee')
    """
    parts: list[str | int] = []
    for piece in text.split("."):
        name, *indices = piece.replace("]", "").split("[")
        if name:
            parts.append(name)
        parts += [int(index) if index.isdigit() else index.strip('"') for index in indices]
    return tuple(parts)
