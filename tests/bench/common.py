"""What the benchmarks share: where traces lie, and how a figure is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import traces_dir


class NoTraces(Exception):
    """The folder of public traces is not there."""


def traces() -> Path:
    """The folder of public traces.

    Raises
    ------
    NoTraces
        When it is neither named nor beside the checkout.
    """
    folder = traces_dir()
    if folder is None:
        raise NoTraces("no public traces: name their folder in ALLOTMENT_TRACES")
    return folder


def figure(
    name: str,
    value: float | None,
    reference: float | None = None,
    *,
    most: float | None = None,
    least: float | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
    **more: Any,
) -> Mapping[str, Any]:
    """One figure with what it is held against.

    Parameters
    ----------
    reference : float or None
        A published or measured value beside it.
    most, least : float or None
        Bounds of the ratio to the reference.
    at_most, at_least : float or None
        Bounds of the value itself.
    more
        Anything else that belongs to the line.
    """
    line: dict[str, Any] = {"figure": name, "value": value}
    if reference is not None:
        line["reference"] = reference
        line["ratio"] = round(value / reference, 4) if value is not None and reference else None
    ratio = line.get("ratio")
    bounds = (
        ("<=", at_most, value),
        (">=", at_least, value),
        ("<= ratio", most, ratio),
        (">= ratio", least, ratio),
    )
    for sign, bound, measured in bounds:
        if bound is not None:
            line["target"] = f"{sign} {bound:g}"
            below = sign.startswith("<=")
            line["met"] = measured is not None and (
                measured <= bound if below else measured >= bound
            )
    return {**line, **more}


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank of some values.

    >>> percentile([1, 2, 3, 4], 50)
    2
    """
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]
