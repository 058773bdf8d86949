"""What a waiting person is told beside the record: reasons as of now, what helps, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allotment_hub import sentences
from allotment_hub.domain.amounts import show_gpus
from allotment_hub.domain.explain import Explanation, Help, explain
from allotment_hub.domain.forecast import Forecast, latest_start
from allotment_hub.domain.requests import Request

from .frame import Frame
from .requests import Outlook

History = Iterable[tuple[int, str, str]]
"""When, what, why."""


def outlook_of(
    frame: Frame,
    request: Request,
    *,
    history: History = (),
    helps: bool = True,
    known: Forecast | None = None,
) -> Outlook:
    """Explain a request as of now; one that has ended keeps the reasons of its end.

    Parameters
    ----------
    history : iterable
        What has happened to it, from the events: the state does not keep it.
    helps : bool
        Whether to look for changes that would help, which costs a few more decisions.
    known : Forecast or None
        The expected start, found by living the decisions forward. That costs many decisions, so
        that it is the caller's to do it once for all who wait; without it the expected start is
        said only where the terms in front make it plain.
    """
    if not request.live or request.id not in frame.state.requests:
        return Outlook(history=tuple(history))
    found = explain(frame.state, request, frame.now, helps=helps)
    expected, latest, basis = _start(frame, request, found, known)
    return Outlook(
        reasons=found.reasons,
        helps={0: [help_view(frame, one) for one in found.helps]},
        expected_start=expected,
        latest_start=latest,
        basis=basis,
        passed_by=frame.state.passed_by(request.id),
        history=tuple(history),
    )


BASIS = {
    "claim": "the devices asked back return by then",
    "reservation": "devices are kept for it until then",
    "terms": "the terms of the leases in front",
    "observed": "how long leases like those in front really last",
    "places": "the longest terms of all in front",
}
"""What an expected or latest start rests on, in words."""


def _start(
    frame: Frame, request: Request, found: Explanation, known: Forecast | None
) -> tuple[int | None, int | None, str]:
    if request.state != "queued":
        return start_of(found)
    if known is not None:
        basis = known.bound if known.basis == "none" else known.basis
        return known.expected_start, known.latest_start, BASIS.get(basis, "")
    expected, latest, basis_text = start_of(found)
    if latest is None:
        latest, bound = latest_start(frame.state, request, frame.now)
        basis_text = basis_text or BASIS.get(bound, "")
    return expected, latest, basis_text


def start_of(found: Explanation) -> tuple[int | None, int | None, str]:
    """Say when a waiting request starts without looking ahead: (expected, latest, basis).

    None is unknown. It is said only where the terms of the leases in front make it certain, for
    who is next in line.
    """
    if not found.reasons or found.position != 1:
        return None, None, ""
    first = found.reasons[0]
    if first.code == "WaitingForReturn" and first.until is not None:
        return first.until, first.until, "the devices asked back return by then"
    numbers = dict(first.evidence)
    returns_at, returns = numbers.get("returns_at"), numbers.get("returns", 0)
    asked, free = numbers.get("asked", 0), numbers.get("free", 0)
    if first.code != "AllInUse" or not isinstance(returns_at, int):
        return None, None, ""
    known = [number if isinstance(number, int) else 0 for number in (returns, free, asked)]
    if known[0] + known[1] < known[2]:
        return None, None, ""
    return returns_at, None, "the term of the lease that ends next"


def help_view(frame: Frame, one: Help) -> dict[str, Any]:
    """Show a change that would help, with what to send to make it."""
    change = {key: show_gpus(v) if key == "gpus" else v for key, v in one.change.items()}
    return {
        "code": one.code,
        "text": change_in_words(change),
        "change": change,
        "now": one.starts_at is not None and one.starts_at <= frame.now,
        "forecast": {
            "expected_start": frame.time(one.starts_at),
            "latest_start": frame.time(one.starts_at),
            "basis": "the devices are free now" if one.starts_at is not None else None,
        },
    }


def change_in_words(change: Mapping[str, Any]) -> str:
    """Write a change of a request in a few words, quantities as people see them.

    >>> change_in_words({"gpus": 1, "flavor": "a100-80g"})
    '1 GPU, A100 80 GB'
    """
    parts = []
    if "gpus" in change:
        parts.append(f"{change['gpus']} GPU{'' if change['gpus'] == 1 else 's'}")
    if "flavor" in change:
        parts.append(sentences.flavor_name(change["flavor"]))
    if "tenant" in change:
        parts.append(f"for {change['tenant']}")
    if change.get("borrow"):
        parts.append("borrowed, to be given back when asked")
    if change.get("same_node") is False:
        parts.append("spread over several nodes")
    if change.get("nvlink") is False:
        parts.append("without NVLink")
    return ", ".join(parts)
