"""Why something waits: codes of the public list with the rule and the numbers behind them."""

from __future__ import annotations

from typing import Any

from .requests import Reason

CATEGORIES = {
    "shape": (
        "NoSuchFlavor", "TooLargeForAnyNode", "Fragmented", "MemoryTooSmall", "DriverTooOld",
        "TopologyConflict", "NodeTainted", "NodeUnhealthy",
    ),
    "quota": (
        "CeilingReached", "BorrowingRefused", "NothingToBorrow", "LendLimitReached",
        "UserLimitReached", "BudgetSpent", "NoQuota",
    ),
    "occupied": ("AllInUse", "WaitingForReturn", "HeldIdle", "StaleClaim", "UnmanagedProcess"),
    "preparing": ("ImagePulling", "DataStaging", "PermissionPending", "EnvironmentPreparing"),
    "order": (
        "BehindInQueue", "HeldForLargerRequest", "HeldForPriority", "ApprovalPending",
        "ClaimWindow",
    ),
    "backend": ("BackendUnreachable", "GrantsPaused", "Reconciling"),
}  # fmt: skip
CATEGORY = {code: category for category, codes in CATEGORIES.items() for code in codes}


def reason(
    code: str, rule: str = "", since: int = 0, until: int | None = None, **evidence: Any
) -> Reason:
    """A reason; evidence that is None is left out, ``class_`` and ``from_`` lose the underscore.

    >>> reason("CeilingReached", "ceiling:nlp", ceiling=4000).evidence
    (('ceiling', 4000),)
    """
    if code not in CATEGORY:
        raise ValueError(f"{code} is not a code of the public list")
    kept = tuple((key.rstrip("_"), value) for key, value in evidence.items() if value is not None)
    return Reason(code=code, evidence=kept, rule=rule, since=since, until=until)


def evidence_of(given: Reason) -> dict[str, object]:
    """The evidence as a mapping."""
    return dict(given.evidence)
