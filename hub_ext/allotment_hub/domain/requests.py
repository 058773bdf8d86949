"""What is asked for, and its durable place in the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .policy import Interruptible

RequestKind = Literal["session", "job", "service"]
RequestState = Literal["queued", "parked", "granted", "done", "cancelled", "rejected", "expired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The shape of a request.

    Parameters
    ----------
    gpus : int
        Milli-GPUs in total.
    devices : int
        On how many devices they lie; ``gpus`` is split evenly over them.
    flavor, pool : str or None
        None is any that the tenant has a quota for.
    nodes : int
        Over exactly how many nodes the devices are split evenly. ``same_node`` False and
        ``nodes`` 1 lets the devices lie on any nodes (batch work only).
    min_memory : int or None
        Bytes that each device must have.
    duration : int or None
        Milliseconds declared; None takes the default of the class.
    start : "present" or "always"
        What happens when a waiting session's turn comes.
    """

    gpus: int
    devices: int
    flavor: str | None = None
    pool: str | None = None
    nodes: int = 1
    min_memory: int | None = None
    min_driver: str | None = None
    same_node: bool = True
    nvlink: bool = False
    duration: int | None = None
    interruptible: Interruptible | None = None
    borrow: bool | None = None
    start: Literal["present", "always"] = "present"
    cpus: int | None = None
    memory: int | None = None
    tolerations: tuple[str, ...] = ()

    @property
    def per_device(self) -> int:
        return self.gpus // self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a request is not started: a code of the public list and the numbers behind it.

    The keys of ``evidence`` and their kinds are those of ``allotment_hub.sentences.EVIDENCE``
    (milli-GPUs, milliseconds, bytes here); a mapping by name is a tuple of pairs.
    """

    code: str
    evidence: tuple[tuple[str, object], ...] = ()
    rule: str = ""
    since: int = 0
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Somebody later in line was started first: who, how often, and why that was allowed."""

    request: str
    times: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A durable ticket. Its history is that of its events; its reasons are worked out on demand,
    ``reasons`` holds those of its end (a refusal) or the last that were recorded.

    ``submitted_at`` is its age and survives parking and requeueing; ``sequence`` is the order in
    which the governor accepted it and breaks every tie. ``waits_for`` is the lease of the same
    server that still has to be gone before this one can be granted.
    """

    id: str
    sequence: int
    kind: RequestKind
    user: str
    tenant: str
    class_: str
    ask: Ask
    state: RequestState
    submitted_at: int
    asked_at: int
    server: str | None = None
    groups: tuple[str, ...] = ()
    present_at: int | None = None
    state_since: int = 0
    lease: str | None = None
    grants: int = 0
    reasons: tuple[Reason, ...] = ()
    options: tuple[tuple[str, object], ...] = field(default=())
    approved_until: int | None = None
    waits_for: str | None = None

    @property
    def live(self) -> bool:
        return self.state in ("queued", "parked", "granted")
