"""A request as its owner sees it: place, reasons in words, forecast, history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from allotment_hub import sentences
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.lines import bucket_key, candidate_cells
from allotment_hub.domain.ordering import position
from allotment_hub.domain.requests import Ask, Pass, Reason, Request

from .frame import Frame, duration, gpus, gpus_by_name, memory

PRIVATE_EVIDENCE = frozenset({"leases", "request", "requests", "who", "user", "users", "lease"})
"""Keys of evidence that name other people's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known about the start of a waiting request, beside its record.

    Parameters
    ----------
    helps : mapping of int to list
        By the position of a reason: ``{text, change, forecast}`` of what would help.
    expected_start, latest_start : int or None
        Steady milliseconds; None is not known.
    basis : str
        What the times rest on.
    reasons : tuple of Reason or None
        As they are now; None shows those that the record holds.
    passed_by : tuple of Pass
        Who was started first.
    history : tuple of (int, str, str)
        What has happened: when, what, why.
    """

    reasons: tuple[Reason, ...] | None = None
    helps: Mapping[int, list[dict[str, Any]]] = field(default_factory=dict)
    expected_start: int | None = None
    latest_start: int | None = None
    basis: str = ""
    passed_by: tuple[Pass, ...] = ()
    history: tuple[tuple[int, str, str], ...] = ()


def request_view(
    frame: Frame,
    request: Request,
    *,
    lease: Lease | None = None,
    outlook: Outlook | None = None,
) -> dict[str, Any]:
    """Show a request in the shape of REST.

    Parameters
    ----------
    lease : Lease or None
        Its last lease, where it ever had one; named by ``lease`` even after its end.
    outlook : Outlook or None
        Helps and forecast; None where none was made.
    """
    place, line = _place(frame, request)
    known = outlook or Outlook()
    reasons = request.reasons if known.reasons is None else known.reasons
    if request.state not in ("queued", "parked", "granted", "rejected"):
        reasons = ()
    return {
        "id": request.id,
        "kind": request.kind,
        "state": request.state,
        "tenant": request.tenant,
        "user": request.user,
        "class": request.class_,
        "pool": _pool(frame, request, lease),
        "server": request.server,
        "asked": ask_view(request.ask),
        "position": place,
        "ahead": None if place is None else place - 1,
        "in_line": line,
        "submitted_at": frame.time(request.submitted_at),
        "asked_at": frame.time(request.asked_at),
        "state_since": frame.time(request.state_since),
        "reasons": [
            reason_view(frame, reason, known.helps.get(index, ()))
            for index, reason in enumerate(reasons)
        ],
        "forecast": {
            "expected_start": frame.time(known.expected_start),
            "latest_start": frame.time(known.latest_start),
            "basis": known.basis or None,
        },
        "passed_by": passed_view(frame, known.passed_by),
        "history": [
            {"at": frame.time(at), "what": what, "text": why} for at, what, why in known.history
        ],
        "grants": request.grants,
        "approved_until": frame.time(request.approved_until),
        "lease": request.lease if lease is None else lease.id,
    }


def rejected_view(frame: Frame, asked: Mapping[str, Any], reason: Reason) -> dict[str, Any]:
    """Show what was refused before it became a request: state ``rejected``, one reason.

    A code that is not of the public list says what is wrong with the input, in its ``detail``.
    """
    shown = reason_view(frame, reason)
    if reason.code not in sentences.CATEGORY:
        shown |= {"category": "input", "text": dict(reason.evidence).get("detail", shown["text"])}
    return {
        "id": None,
        "kind": asked.get("kind", "session"),
        "state": "rejected",
        "tenant": asked.get("tenant"),
        "user": asked.get("user"),
        "class": asked.get("class"),
        "pool": asked.get("pool"),
        "server": asked.get("server"),
        "asked": {key: asked[key] for key in ("gpus", "flavor", "nodes") if key in asked},
        "position": None,
        "ahead": None,
        "submitted_at": frame.time(frame.now),
        "reasons": [shown],
        "forecast": {"expected_start": None, "latest_start": None, "basis": None},
        "passed_by": [],
        "history": [],
        "lease": None,
    }


def ask_view(ask: Ask) -> dict[str, Any]:
    """Show what was asked for, in the words in which it is asked."""
    return {
        "gpus": gpus(ask.gpus),
        "devices": ask.devices,
        "flavor": ask.flavor,
        "pool": ask.pool,
        "nodes": ask.nodes,
        "same_node": ask.same_node,
        "nvlink": ask.nvlink,
        "min_memory": memory(ask.min_memory),
        "min_driver": ask.min_driver,
        "duration": duration(ask.duration),
        "interruptible": ask.interruptible,
        "borrow": ask.borrow,
        "start": ask.start,
        "cpus": None if ask.cpus is None else gpus(ask.cpus),
        "memory": memory(ask.memory),
        "tolerations": list(ask.tolerations),
    }


def reason_view(
    frame: Frame, reason: Reason, helps: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Show a reason: category, code, sentence, numbers, rule, since, until, what helps."""
    evidence = evidence_view(frame, reason.evidence)
    until = frame.time(reason.until)
    return {
        "category": sentences.CATEGORY.get(reason.code, "backend"),
        "code": reason.code,
        "text": sentences.reason(
            reason.code, evidence, frame.lang, until=until, now=str(frame.wall(frame.now))
        ),
        "evidence": evidence,
        "rule": reason.rule,
        "since": frame.time(reason.since),
        "until": until,
        "helps": [dict(help_) for help_ in helps],
    }


def evidence_view(frame: Frame, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Turn the domain's integers into the shape of REST, and leave out what names others' rows."""
    return {
        key: _shown(frame, sentences.EVIDENCE.get(key, "text"), value)
        for key, value in pairs
        if frame.viewer.admin or key not in PRIVATE_EVIDENCE
    }


def _shown(frame: Frame, kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "gpus" and isinstance(value, int):
        return gpus(value)
    if kind == "time" and isinstance(value, int):
        return frame.time(value)
    if kind == "duration" and isinstance(value, int):
        return duration(value)
    if kind == "memory" and isinstance(value, int):
        return memory(value)
    if kind == "gpus_by_name":
        return gpus_by_name(_pairs(value))
    if kind == "text_by_name":
        return dict(_pairs(value))
    return list(value) if isinstance(value, tuple) else value


def _pairs(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else value


def passed_view(frame: Frame, passes: Iterable[Pass]) -> list[dict[str, Any]]:
    """Show who was started first. Ids of others' requests are kept from who may not see them."""
    rows = []
    for passed in passes:
        other = frame.state.requests.get(passed.request)
        named = frame.viewer.admin or frame.sees(other)
        rows.append(
            {"request": passed.request if named else None, "times": passed.times, "why": passed.why}
        )
    return rows


def _place(frame: Frame, request: Request) -> tuple[int | None, int | None]:
    """(place, length of the line) of a queued request; (None, None) of any other."""
    bucket = frame.state.queue.get(bucket_key(frame.state.policy, request))
    if request.state != "queued" or bucket is None:
        return None, None
    return position(frame.state, request, bucket, frame.now)


def _pool(frame: Frame, request: Request, lease: Lease | None) -> str | None:
    """The pool that it is in, that it asks for, or the only one where it can be placed."""
    if lease is not None or request.ask.pool is not None:
        return request.ask.pool if lease is None else lease.pool
    pools = {pool for pool, _ in candidate_cells(frame.state.policy, request)}
    return pools.pop() if len(pools) == 1 else None
