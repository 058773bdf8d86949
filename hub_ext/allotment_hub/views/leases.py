"""A lease as its holder sees it, and the job that one carries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allotment_hub.domain.leases import Lease, LeasedDevice, Reclaim
from allotment_hub.domain.requests import Request

from .frame import Frame, duration, gpus, gpus_by_name


def lease_view(frame: Frame, lease: Lease) -> dict[str, Any]:
    """Show a lease in the shape of REST."""
    return {
        "id": lease.id,
        "state": lease.state,
        "state_since": frame.time(lease.state_since),
        "request": lease.request,
        "kind": lease.kind,
        "tenant": lease.tenant,
        "user": lease.user,
        "class": lease.class_,
        "server": lease.server,
        "pool": lease.pool,
        "flavor": lease.flavor,
        "gpus": gpus(lease.gpus),
        "devices": [_device(device) for device in lease.devices],
        "basis": lease.basis,
        "borrowed_at_grant": lease.borrowed_at_grant,
        "borrowed": gpus(lease.borrowed),
        "lenders": gpus_by_name(lease.lenders),
        "rule": lease.rule,
        "policy_version": lease.policy_version,
        "fence": lease.fence,
        "interruptible": lease.interruptible,
        "granted_at": frame.time(lease.granted_at),
        "preparing_at": frame.time(lease.preparing_at),
        "active_at": frame.time(lease.active_at),
        "released_at": frame.time(lease.released_at),
        "term": duration(lease.term),
        "term_ends_at": frame.time(lease.term_ends_at),
        "held_until": frame.time(lease.held_until),
        "protected_until": frame.time(lease.protected_until or None),
        "renewals_left": lease.renewals_left,
        "renewed": lease.renewed,
        "keeps_left": lease.keeps_left,
        "reclaim": None if lease.reclaim is None else _reclaim(frame, lease.reclaim),
        "verdict": _verdict(frame, lease),
        "end_reason": lease.end_reason or None,
    }


def _device(device: LeasedDevice) -> dict[str, Any]:
    return {
        "node": device.node,
        "uuid": device.uuid,
        "index": device.index,
        "flavor": device.flavor,
        "share": gpus(device.share),
    }


def _reclaim(frame: Frame, reclaim: Reclaim) -> dict[str, Any]:
    """The step and its end; the demand behind it only by id, and only to who may see it."""
    behind = frame.state.requests.get(reclaim.for_request or "")
    return {
        "trigger": reclaim.trigger,
        "evidence": list(reclaim.evidence),
        "step": reclaim.step,
        "step_ends_at": frame.time(reclaim.step_ends_at),
        "started_at": frame.time(reclaim.started_at),
        "undo": list(reclaim.undo),
        "for_request": reclaim.for_request if frame.sees(behind) else None,
        "for_tenant": None if behind is None else behind.tenant,
        "confirmed_by": reclaim.confirmed_by,
    }


def _verdict(frame: Frame, lease: Lease) -> Mapping[str, Any]:
    known = frame.verdicts.get(lease.id)
    if known is not None:
        return known
    if lease.state in ("granted", "preparing"):
        return {
            "state": "preparing",
            "since": frame.time(lease.preparing_at or lease.granted_at),
            "evidence": ["the server has not answered yet"],
        }
    return {
        "state": "unknown",
        "since": frame.time(lease.active_at or lease.granted_at),
        "evidence": ["nothing was reported"],
    }


_JOB_STATES = {
    "granted": "starting",
    "preparing": "starting",
    "active": "running",
    "noticed": "running",
    "frozen": "checkpointing",
    "stopping": "checkpointing",
}


def job_view(frame: Frame, request: Request, lease: Lease | None) -> dict[str, Any]:
    """Show a job: the state of its request and of the lease it runs on, as one."""
    return {
        "id": request.id,
        "state": _job_state(request, lease),
        "tenant": request.tenant,
        "user": request.user,
        "class": request.class_,
        "submitted_at": frame.time(request.submitted_at),
        "attempts": request.grants,
        "request": request.id,
        "lease": None if lease is None else lease.id,
        "detail": None if lease is None else lease.end_reason or None,
    }


def _job_state(request: Request, lease: Lease | None) -> str:
    if request.state == "cancelled":
        return "cancelled"
    if request.state in ("rejected", "expired"):
        return "failed"
    if request.state in ("queued", "parked"):
        return "requeued" if request.grants else "queued"
    if lease is None or lease.live:
        return "starting" if lease is None else _JOB_STATES[lease.state]
    return _ended(lease)


def _ended(lease: Lease) -> str:
    """How a job whose lease is over has ended, by the reason of that end."""
    trigger = None if lease.reclaim is None else lease.reclaim.trigger
    if trigger in ("owner", "admin"):
        return "cancelled"
    code = re.search(r"\bcode (\d+)", lease.end_reason)
    return "failed" if trigger is not None or (code and int(code[1])) else "succeeded"
