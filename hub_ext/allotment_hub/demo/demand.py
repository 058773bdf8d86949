"""What runs and waits already when a visitor comes: asked over REST, as anybody would."""

from __future__ import annotations

from typing import Any

from .calls import Person
from .hub import DemoHub
from .waiting import Patience

A100, L40S = "a100-80g", "l40s"
WITHIN_GUARANTEE = (("bob", 1), ("rita", 1))
BORROWER = ("ned", 2)
WAITING = ("rob", 1)

START_WITHIN_S = 120.0


def begin(hub: DemoHub) -> None:
    """Let two sessions run within their guarantees, one on borrowed GPUs, and one wait."""
    asked = []
    for name, gpus in (*WITHIN_GUARANTEE, BORROWER):
        person = hub.person(name)
        asked.append((person, person.ask(gpus, A100)))
    for person, request in asked:
        active_lease(hub.patience, person, request["id"])
    name, gpus = WAITING
    hub.person(name).ask(gpus, A100)


def active_lease(
    patience: Patience, person: Person, request: str, seconds: float = START_WITHIN_S
) -> Any:
    """The lease of a request once its server is up; DemoError when it does not come up."""

    def look() -> Any:
        for row in person.governor("GET", "leases")["leases"]:
            if row["request"] == request and row["state"] == "active":
                return row
        return None

    return patience.until(look, seconds, f"the session of {person.name} is up")
