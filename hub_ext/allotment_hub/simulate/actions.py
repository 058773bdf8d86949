"""What a timeline may say: every action, the forms it may be written in, and its keys.

Forms are liberal and keys are strict: ``cancel: r1`` and ``cancel: {request: r1, user: ann}`` are
the same, while an unknown key is a fault with the nearest valid one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allotment_hub.policyfile.problems import Path

from .document import Sheet, nearest

ASK_KEYS = frozenset(
    {
        "tenant", "class", "pool", "flavor", "gpus", "devices", "nodes", "min_memory", "min_driver",
        "same_node", "nvlink", "duration", "interruptible", "borrow", "start", "cpus", "memory",
        "tolerations",
    }
)  # fmt: skip
"""What may be asked for (and amended), in the words of REST."""

ACTOR = {"user": "by"}
"""Who acts is ``by``; ``user`` says the same where nobody else is meant."""


@dataclass(frozen=True)
class Action:
    """The form of one action.

    Parameters
    ----------
    keys : frozenset of str
        Keys of its mapping.
    scalar : str or None
        The key that a bare value stands for; None refuses a bare value.
    needs : tuple of str
        Keys that have to be there.
    same : mapping
        Other words for a key.
    opaque : bool
        Whether the mapping has keys of its own (a policy), so that none is checked here.
    """

    keys: frozenset[str]
    scalar: str | None = None
    needs: tuple[str, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    opaque: bool = False


SPAN = {"valid_for": "for", "duration": "for", "text": "reason", "why": "reason"}
"""Words for how long something holds, and why."""


def _of_lease(*more: str, same: Mapping[str, str] | None = None) -> Action:
    words = {"request": "lease", "id": "lease", "job": "lease", **ACTOR, **(same or {})}
    return Action(frozenset({"lease", "by", *more}), "lease", ("lease",), words)


def _of_request(*more: str) -> Action:
    words = {"lease": "request", "id": "request", "job": "request", **ACTOR}
    return Action(frozenset({"request", "by", *more}), "request", ("request",), words)


STATES = ("lost", "restored", "dirty", "tainted")
"""What a device or a node may be said to be."""

_HEALTH = frozenset({*STATES, "is", "detail", "state", "health"})

WHY = {
    "reason": "detail",
    "why": "detail",
    "text": "detail",
    "error": "detail",
    "message": "detail",
}
"""Words for why something is so."""

ACTIONS: dict[str, Action] = {
    "request": Action(
        frozenset({"as", "user", "by", "kind", "server", "groups", "key", "options", *ASK_KEYS}),
        needs=("user",),
        same={"name": "as", "id": "as"},
    ),
    "amend": Action(
        frozenset({"request", "by", "change", *ASK_KEYS}),
        needs=("request",),
        same={
            "id": "request",
            "user": "by",
            "changes": "change",
            "asked": "change",
            "to": "change",
            "set": "change",
            "with": "change",
        },
    ),
    "cancel": _of_request("reason"),
    "claim": _of_request(),
    "renew": _of_lease("for"),
    "keep": _of_lease("for"),
    "release": _of_lease("reason", "force"),
    "report": Action(
        frozenset({"lease", "kernels", "terminals", "presence", "stage", "by", "server"}),
        needs=("lease",),
        same={"request": "lease", "job": "lease", "id": "lease", **ACTOR},
    ),
    "reading": Action(
        frozenset(
            {
                "node",
                "device",
                "index",
                "uuid",
                "utilisation",
                "memory_used",
                "memory_total",
                "processes",
                "reason",
            }
        ),
        same={"utilization": "utilisation", "gpu": "device", "memory": "memory_used"},
    ),
    "presence": Action(
        frozenset({"request", "user", "server", "visible", "last_input_at"}),
        "request",
        same={
            "lease": "request",
            "looking": "visible",
            "watching": "visible",
            "present": "visible",
            "by": "user",
        },
    ),
    "stage": _of_lease(
        "stage", "text", "for", "until", "progress", same={"name": "stage", "is": "stage"}
    ),
    "started": _of_lease(),
    "preparing": _of_lease("detail"),
    "gone": _of_lease("detail", same=WHY),
    "start_failed": _of_lease("detail", "retry", same={**WHY, "infrastructure": "retry"}),
    "exit": _of_lease(
        "code", "signal", "detail", same={**WHY, "status": "code", "exit_code": "code"}
    ),
    "approve": Action(
        frozenset({"as", "request", "user", "class", "by", "for", "until", "reason"}),
        "request",
        same={"lease": "request", "job": "request", "id": "request", **SPAN},
    ),
    "exempt": Action(
        frozenset({"as", "lease", "user", "class", "by", "for", "until", "reason"}),
        "lease",
        same={"request": "lease", "job": "lease", "id": "lease", **SPAN},
    ),
    "confirm": _of_lease(),
    "policy": Action(frozenset(), "path", opaque=True),
    "node": Action(
        frozenset(
            {
                "node",
                "by",
                "remove",
                "draining",
                "labels",
                "cpus",
                "memory",
                "driver",
                "taints",
                "devices",
                *_HEALTH,
            }
        ),
        needs=("node",),
        same={"name": "node", "id": "node", "drain": "draining", **WHY},
    ),
    "device": Action(
        frozenset({"device", "node", "index", "by", *_HEALTH}),
        same={"uuid": "device", "id": "device", "gpu": "device", **WHY},
    ),
    "drain": Action(
        frozenset({"node", "on", "by", "reason"}),
        "node",
        ("node",),
        {"name": "node", "draining": "on", "text": "reason", "why": "reason", **ACTOR},
    ),
    "pause": Action(
        frozenset({"on", "by", "text"}),
        "on",
        same={"reason": "text", "why": "text", "grants": "on", "paused": "on", **ACTOR},
    ),
    "runtime": Action(
        frozenset({"unreachable", "reachable", "text", "manual", "start_after", "stop_after"}),
        same={"detail": "text", "reason": "text", "why": "text"},
    ),
    "restart": Action(
        frozenset({"on", "down_for", "ended"}),
        "on",
        same={
            "for": "down_for",
            "down": "down_for",
            "gone": "ended",
            "governor": "on",
            "what": "on",
            "of": "on",
        },
    ),
    "clock": Action(frozenset({"wall"}), "wall", ("wall",), {"by": "wall", "jump": "wall"}),
}

EXPECTS: dict[str, frozenset[str]] = {
    "request": frozenset(),
    "lease": frozenset(),
    "job": frozenset(),
    "tenant": frozenset({"pool", "flavor"}),
    "pool": frozenset({"flavor"}),
    "capacity": frozenset({"pool", "flavor"}),
    "device": frozenset({"node", "index"}),
    "audit": frozenset(),
    "notices": frozenset(),
    "decisions": frozenset(),
}
"""What an ``expect`` may look at, and the keys that narrow it down."""


def read_action(name: str, raw: Any, path: Path, sheet: Sheet) -> dict[str, Any]:
    """Read the value of an action into its one form, with aliases resolved.

    Faults are noted in ``sheet``; what is returned then is what could be read.
    """
    form = ACTIONS[name]
    if raw is None and form.scalar == "on":
        raw = {}
    if name in ("node", "device"):
        raw = _said_of(name, raw)
    if name == "runtime" and raw in ("reachable", "unreachable"):
        raw = {raw: True}
    if not isinstance(raw, Mapping):
        if form.scalar is None or isinstance(raw, list) or raw is None:
            sheet.fault(path, f"{name!r} takes a mapping with {', '.join(sorted(form.keys))}")
            return {}
        raw = {form.scalar: raw}
    if form.opaque:
        return dict(raw)
    return _keys(name, form, raw, path, sheet)


def _said_of(name: str, raw: Any) -> Any:
    """``{lost: n1}`` and ``{lost: {node: n1, index: 2}}`` as ``{node: n1, lost: true}``."""
    if not isinstance(raw, Mapping) or {"node", "device", "uuid", "name"} & set(raw):
        return raw
    for state in STATES:
        subject = raw.get(state)
        if isinstance(subject, Mapping):
            return {**raw, **subject, state: True}
        if isinstance(subject, str):
            return {**raw, name: subject, state: True}
    return raw


def _keys(
    name: str, form: Action, raw: Mapping[str, Any], path: Path, sheet: Sheet
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in raw.items():
        meant = key if key in form.keys else form.same.get(key, key)
        if meant not in form.keys:
            known = {*form.keys, *form.same}
            sheet.fault((*path, key), f"unknown key of {name!r}{nearest(key, known)}")
        elif meant in result:
            sheet.fault((*path, key), f"says the same as another key of this {name!r}")
        else:
            result[meant] = value
    for key in form.needs:
        if key not in result:
            sheet.fault(path, f"{name!r} needs {key!r}")
    return result
