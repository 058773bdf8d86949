"""What a person has to know now: read off the state, so that none is lost or said too late."""

from __future__ import annotations

from typing import Any

from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request

from .frame import Frame


def notices_of(frame: Frame, user: str) -> list[dict[str, Any]]:
    """Return the notices that concern a user at this moment, soonest deadline first.

    Each is ``{kind, subject, request, lease, trigger, step, since, until, undo, evidence}``:
    ``reclaim`` for a lease that is being taken back, ``claim`` for a grant that waits to be
    claimed, ``parked`` for a place that waits for its owner.
    """
    state = frame.state
    found: list[tuple[int, dict[str, Any]]] = []
    for lease in state.leases.values():
        if lease.user == user:
            found += _of_lease(frame, lease)
    for request in state.requests.values():
        if request.user == user and request.state == "parked":
            found.append((request.state_since, _parked(frame, request)))
    return [notice for _, notice in sorted(found, key=lambda item: (item[0], item[1]["subject"]))]


def _of_lease(frame: Frame, lease: Lease) -> list[tuple[int, dict[str, Any]]]:
    if lease.reclaim is not None:
        reclaim = lease.reclaim
        notice = _notice("reclaim", lease)
        notice |= {
            "trigger": reclaim.trigger,
            "step": reclaim.step,
            "since": frame.time(reclaim.started_at),
            "until": frame.time(reclaim.step_ends_at),
            "undo": list(reclaim.undo),
            "evidence": list(reclaim.evidence),
        }
        return [(reclaim.step_ends_at, notice)]
    if lease.state == "granted" and lease.held_until is not None:
        notice = _notice("claim", lease)
        notice |= {
            "since": frame.time(lease.granted_at),
            "until": frame.time(lease.held_until),
            "undo": ["claim"],
        }
        return [(lease.held_until, notice)]
    return []


def _parked(frame: Frame, request: Request) -> dict[str, Any]:
    return {
        "kind": "parked",
        "subject": request.id,
        "request": request.id,
        "lease": None,
        "user": request.user,
        "trigger": None,
        "step": None,
        "since": frame.time(request.state_since),
        "until": None,
        "undo": ["claim"],
        "evidence": [],
    }


def _notice(kind: str, lease: Lease) -> dict[str, Any]:
    return {
        "kind": kind,
        "subject": lease.id,
        "request": lease.request,
        "lease": lease.id,
        "user": lease.user,
        "trigger": None,
        "step": None,
        "evidence": [],
    }
