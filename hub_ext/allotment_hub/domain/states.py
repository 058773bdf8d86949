"""One table of legal transitions. Whatever is not in it does not happen."""

from __future__ import annotations

REQUEST_EDGES: dict[str, frozenset[str]] = {
    "queued": frozenset({"granted", "parked", "cancelled", "rejected", "expired"}),
    "parked": frozenset({"queued", "cancelled", "rejected", "expired"}),
    # A grant that nobody claims is parked; one lost to a fault of the infrastructure or taken
    # back from work that restarts is queued again with its age.
    "granted": frozenset({"done", "parked", "queued", "cancelled"}),
    "done": frozenset(),
    "cancelled": frozenset(),
    "rejected": frozenset(),
    "expired": frozenset(),
}

LEASE_EDGES: dict[str, frozenset[str]] = {
    "granted": frozenset({"preparing", "active", "noticed", "stopping", "released"}),
    "preparing": frozenset({"active", "noticed", "stopping", "released"}),
    "active": frozenset({"noticed", "frozen", "stopping", "released"}),
    "noticed": frozenset({"preparing", "active", "frozen", "stopping", "released"}),
    "frozen": frozenset({"active", "stopping", "released"}),
    "stopping": frozenset({"released"}),
    "released": frozenset(),
}

JOB_EDGES: dict[str, frozenset[str]] = {
    "queued": frozenset({"starting", "cancelled", "failed"}),
    "starting": frozenset({"running", "requeued", "failed", "cancelled"}),
    "running": frozenset({"checkpointing", "succeeded", "failed", "cancelled", "requeued"}),
    "checkpointing": frozenset({"requeued", "succeeded", "failed", "cancelled"}),
    "requeued": frozenset({"starting", "cancelled", "failed"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


class IllegalTransition(Exception):
    """A change along an edge that is not declared: a fault in the program, never in the input."""


def check_edge(edges: dict[str, frozenset[str]], what: str, old: str, new: str) -> None:
    """Raise :class:`IllegalTransition` unless ``old`` may become ``new`` (or stays)."""
    if old != new and new not in edges[old]:
        raise IllegalTransition(f"{what}: {old} cannot become {new}")
