"""What would be decided if this were asked for now: on a copy of the state, by the same rules.

Nothing is recorded. Beside the decision the preview tries what else might be asked for (fewer
GPUs, another flavor, borrowing) and names what would start now where the wish itself would not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..domain import commands
from ..domain.admission import decide
from ..domain.amounts import MILLI, show_gpus
from ..domain.leases import Lease
from ..domain.requests import Request, RequestKind
from ..domain.shapes import tenants_of
from ..domain.state import State
from ..views import lease_view, request_view
from ..views.frame import Frame
from ..views.outlook import change_in_words, outlook_of

WISH = "preview"
MOST_ALTERNATIVES = 4
MOST_TRIED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a wish leads to in a copy of the state."""

    state: State
    request: Request
    lease: Lease | None

    @property
    def decision(self) -> str:
        """``granted``, ``queued`` or ``rejected``."""
        return self.request.state if self.request.state != "parked" else "queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The outcome of a wish, and the changes to it that would start now."""

    outcome: Outcome
    alternatives: tuple[tuple[Mapping[str, Any], Outcome], ...]

    def view(self, frame: Frame) -> dict[str, Any]:
        """As REST shows it, to whoever asks."""
        outcome = self.outcome
        after = Frame(
            state=outcome.state,
            now=frame.now,
            wall=frame.wall,
            viewer=frame.viewer,
            lang=frame.lang,
        )
        outlook = outlook_of(after, outcome.request, helps=False)
        shown = request_view(after, outcome.request, lease=outcome.lease, outlook=outlook)
        shown["id"] = None
        granted = outcome.decision == "granted"
        if granted:
            shown["forecast"] |= {"expected_start": frame.time(frame.now), "basis": "now"}
        lease = None if outcome.lease is None else lease_view(after, outcome.lease)
        if lease is not None:
            lease |= {"id": None, "request": None}
        return {
            **shown,
            "decision": outcome.decision,
            "now": granted,
            "lease": lease,
            "asked": shown["asked"],
            "alternatives": [
                self._alternative(frame, change, other) for change, other in self.alternatives
            ],
        }

    @staticmethod
    def _alternative(frame: Frame, change: Mapping[str, Any], other: Outcome) -> dict[str, Any]:
        shown = {key: show_gpus(v) if key == "gpus" else v for key, v in change.items()}
        lease = other.lease
        return {
            "change": shown,
            "text": change_in_words(shown),
            "now": True,
            "basis": None if lease is None else lease.basis,
            "forecast": {
                "expected_start": frame.time(frame.now),
                "latest_start": frame.time(frame.now),
                "basis": "now",
            },
        }


def preview(
    state: State,
    now: int,
    *,
    kind: RequestKind,
    user: str,
    groups: Sequence[str],
    wants: Mapping[str, Any],
    server: str | None = None,
) -> Preview:
    """Try a wish, and what is near it.

    Parameters
    ----------
    state : State
        Not changed.
    wants : mapping
        As for :func:`..domain.commands.submit`.

    Raises
    ------
    Refusal
        The wish is wrong in itself.
    """

    def attempt(changed: Mapping[str, Any]) -> Outcome:
        copy = state.fork()
        asked = commands.submit(
            copy, now, id=WISH, kind=kind, user=user, groups=groups, wants=changed, server=server
        )
        decide(copy, now)
        found = copy.requests.get(WISH, asked)
        return Outcome(state=copy, request=found, lease=copy.leases.get(found.lease or ""))

    outcome = attempt(wants)
    better: list[tuple[Mapping[str, Any], Outcome]] = []
    if outcome.decision != "granted":
        for tried, change in enumerate(_changes(state, groups, wants)):
            if tried >= MOST_TRIED or len(better) >= MOST_ALTERNATIVES:
                break
            try:
                other = attempt({**wants, **change})
            except commands.Refusal:
                continue
            if other.decision == "granted":
                better.append((change, other))
    return Preview(outcome=outcome, alternatives=tuple(better))


def _changes(
    state: State, groups: Sequence[str], wants: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """What might be asked for instead, nearest first. Whether it makes sense is tried."""
    flavors = dict.fromkeys(
        quota.flavor
        for name in tenants_of(state.policy, groups)
        for quota in state.policy.tenants[name].quotas
        if quota.most > 0
    )
    if wants.get("borrow") is False:
        yield {"borrow": True}
    for flavor in flavors:
        if flavor != wants.get("flavor"):
            yield {"flavor": flavor}
    for tenant in tenants_of(state.policy, groups):
        if wants.get("tenant") not in (None, tenant):
            yield {"tenant": tenant}
    gpus = wants.get("gpus", 0)
    for fewer in sorted({gpus // 2 // MILLI * MILLI, MILLI}, reverse=True):
        if 0 < fewer < gpus:
            yield {"gpus": fewer}
            for flavor in flavors:
                if flavor != wants.get("flavor"):
                    yield {"gpus": fewer, "flavor": flavor}
