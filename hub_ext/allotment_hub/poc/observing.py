"""A player that keeps what a report needs: every event, and what was said to those who wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allotment_hub import sentences, views
from allotment_hub.domain.events import Event
from allotment_hub.domain.explain import explain
from allotment_hub.simulate.opening import Opening
from allotment_hub.simulate.player import Player
from allotment_hub.simulate.scenario import Scenario
from allotment_hub.simulate.store import Store
from allotment_hub.views.frame import viewer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a waiting person was told from ``at`` on; ``code`` empty: nothing could be told."""

    at: int
    request: str
    code: str = ""
    category: str = ""
    text: str = ""
    rule: str = ""
    until: str | None = None
    position: int | None = None
    helps: tuple[str, ...] = ()
    expected: int | None = None
    latest: int | None = None


class Observer(Player):
    """Plays as the scenario player does, and writes down what was said to those who wait."""

    def __init__(self, scenario: Scenario, opening: Opening, store: Store | None = None) -> None:
        self.events: list[Event] = []
        self.told: list[Told] = []
        self._last: dict[str, tuple[Any, ...]] = {}
        super().__init__(scenario, opening, store)

    def _keep(self, events: list[Event]) -> None:
        super()._keep(events)
        self.events += events

    def settle(self) -> None:
        """As the player does; then look at every wait."""
        super().settle()
        for request in list(self.state.requests.values()):
            if request.state == "queued":
                self._look_at(request.id)

    def _look_at(self, request_id: str) -> None:
        found = explain(self.state, self.state.requests[request_id], self.now, helps=False)
        first = found.reasons[0] if found.reasons else None
        key = (first.code, first.rule, found.position) if first is not None else ()
        if self._last.get(request_id) != key:
            self._last[request_id] = key
            self.told.append(self._told(request_id))

    def _told(self, request_id: str) -> Told:
        """Everything that the waiting room would say now."""
        outlook = self.outlook(self.state.requests[request_id])
        request = views.request_view(self.frame(), self.state.requests[request_id], outlook=outlook)
        shown = request["reasons"][0] if request["reasons"] else {"helps": []}
        return Told(
            at=self.now,
            request=request_id,
            code=shown.get("code", ""),
            category=shown.get("category", ""),
            text=shown.get("text", ""),
            rule=shown.get("rule", ""),
            until=shown.get("until"),
            position=request["position"],
            helps=tuple(one["text"] for one in shown["helps"]),
            expected=outlook.expected_start,
            latest=outlook.latest_start,
        )

    def seen_by(self, user: str) -> dict[str, Any]:
        """What a person sees of the pool and of its own, in the shape of REST."""
        groups = self.scenario.users.get(user, ())
        viewer = viewer_of(self.state.policy, user, groups)
        frame = views.Frame(state=self.state, now=self.now, wall=self.wall, viewer=viewer)
        requests = [row for row in self.state.requests.values() if viewer.sees_row(row)]
        leases = [row for row in self.state.leases.values() if viewer.sees_row(row)]
        return {
            "me": views.me_view(frame, groups=groups),
            "capacity": views.capacity_view(frame),
            "requests": [
                views.request_view(
                    frame, row, lease=self.state.leases.get(row.lease or ""),
                    outlook=views.outlook_of(frame, row),
                )
                for row in requests
            ],
            "leases": [views.lease_view(frame, row) for row in leases],
        }  # fmt: skip


def explained(told: Told) -> bool:
    """Whether what was told is a reason of the public list with a sentence of its own."""
    return told.code in sentences.CATEGORY and bool(told.text)
