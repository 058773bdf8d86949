"""What REST gives out, for the OpenAPI document and the types made from it.

The rows themselves are made by :mod:`..views`; a test holds each against its model here. A model
names what may be relied on; further keys may come.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Time = str
"""RFC 3339, UTC."""


class View(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="allow")


class ForecastView(View):
    """See the contract."""

    expected_start: Time | None
    latest_start: Time | None
    basis: str | None


class HelpView(View):
    """See the contract."""

    text: str
    change: dict[str, Any]
    forecast: ForecastView


class ReasonView(View):
    """See the contract."""

    category: Literal["shape", "quota", "occupied", "preparing", "order", "backend"]
    code: str
    text: str
    evidence: dict[str, Any]
    rule: str
    since: Time | None
    until: Time | None
    helps: list[HelpView]


class PassView(View):
    """See the contract."""

    request: str | None
    times: int
    why: str


class StepView(View):
    """See the contract."""

    at: Time
    what: str
    text: str


class StartSlot(View):
    """See the contract."""

    position: int
    starting: int


RequestState = Literal["queued", "parked", "granted", "done", "cancelled", "rejected", "expired"]
LeaseState = Literal["granted", "preparing", "active", "noticed", "frozen", "stopping", "released"]


class RequestView(View):
    """See the contract."""

    id: str | None
    kind: Literal["session", "job", "service"]
    state: RequestState
    tenant: str | None
    user: str
    class_: str | None = Field(alias="class")
    pool: str | None
    server: str | None
    asked: dict[str, Any]
    position: int | None
    ahead: int | None
    submitted_at: Time
    reasons: list[ReasonView]
    forecast: ForecastView
    passed_by: list[PassView]
    history: list[StepView]
    lease: str | None
    start_slot: StartSlot | None = None


class PresenceView(View):
    """What a waiting room that says it is there is told: little, since it says so often."""

    id: str
    state: RequestState
    lease: str | None


class DeviceShare(View):
    """See the contract."""

    node: str
    uuid: str
    index: int
    flavor: str
    share: float


class ReclaimView(View):
    """See the contract."""

    trigger: str
    evidence: list[str]
    step: Literal["notice", "freeze", "stop"]
    step_ends_at: Time
    undo: list[str]


class VerdictView(View):
    """See the contract."""

    state: Literal[
        "active", "preparing", "protected", "unused", "idle", "abandoned", "stale", "unknown"
    ]
    since: Time | None
    evidence: list[Any]


class LeaseView(View):
    """See the contract."""

    id: str | None
    state: LeaseState
    request: str | None
    tenant: str
    user: str
    class_: str = Field(alias="class")
    devices: list[DeviceShare]
    basis: Literal["guaranteed", "borrowed"]
    lenders: dict[str, float]
    rule: str
    policy_version: int
    granted_at: Time
    active_at: Time | None
    term_ends_at: Time
    renewals_left: int
    reclaim: ReclaimView | None
    verdict: VerdictView
    start_slot: StartSlot | None = None


class QuotaView(View):
    """See the contract."""

    pool: str
    flavor: str
    guarantee: float
    ceiling: float
    lend: float
    used: float
    guaranteed: float
    borrowed: float
    lent: float
    free: float


class TenantView(View):
    """See the contract."""

    name: str
    quotas: list[QuotaView]


class MeView(View):
    """See the contract."""

    user: str
    admin: bool
    owns: list[str]
    tenants: list[TenantView]
    requests: list[RequestView]
    leases: list[LeaseView]
    notices: list[dict[str, Any]]


class CapacityView(View):
    """See the contract."""

    at: Time
    free: float
    in_use: float
    in_service: float
    out_of_service: float
    free_wrong_shape: float
    free_quota_blocked: float
    held_not_used: float
    held_preparing: float
    pools: list[dict[str, Any]]
    flavors: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    unmanaged: list[dict[str, Any]]


class AlternativeView(View):
    """See the contract."""

    change: dict[str, Any]
    text: str
    now: bool
    forecast: ForecastView


class PreviewView(RequestView):
    """What would be decided, in the shape of a request that is not made."""

    decision: Literal["granted", "queued", "rejected"]
    now: bool
    alternatives: list[AlternativeView]
    lease: LeaseView | None  # type: ignore[assignment]  # here the lease itself, not its id


class RequestList(View):
    """See the contract."""

    requests: list[RequestView]
    next: str | None


class LeaseList(View):
    """See the contract."""

    leases: list[LeaseView]
    next: str | None


class PolicyView(View):
    """See the contract."""

    version: int
    by: str
    at: Time
    note: str
    text: str
    policy: dict[str, Any]


class PolicyCheckView(View):
    """See the contract."""

    ok: bool
    errors: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    changes: list[dict[str, Any]]


class PolicyHistory(View):
    """See the contract."""

    versions: list[dict[str, Any]]


class GrantView(View):
    """See the contract."""

    id: str
    kind: str
    subject: str
    by: str
    reason: str
    starts_at: Time
    ends_at: Time


class SwitchView(View):
    """See the contract."""

    name: str
    on: bool
    text: str
    since: Time | None


class NodeView(View):
    """See the contract."""

    node: str
    health: str
    draining: bool


class UsageView(View):
    """See the contract."""

    usage: list[dict[str, Any]]
    currency: str


class WaitsView(View):
    """See the contract."""

    waits: list[dict[str, Any]]


class DecisionsView(View):
    """See the contract."""

    decisions: list[dict[str, Any]]


class AuditView(View):
    """See the contract."""

    audit: list[dict[str, Any]]


class EventStream(View):
    """Server-sent events."""


class HealthView(View):
    """See the contract."""

    status: Literal["ok"]
    phase: str
    version: str


class ReadyView(View):
    """See the contract."""

    ready: bool
    phase: str
    detail: str


class ProblemView(View):
    """``application/problem+json``."""

    code: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
