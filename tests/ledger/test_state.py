"""The rules and the ledger together: what is loaded is the state that was decided on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_hub.domain.admission import decide
from allotment_hub.domain.state import State
from allotment_hub.ledger import Ledger
from tests.domain.histories import History
from tests.ledger.test_properties import emptied

KEPT = (
    "version", "nodes", "requests", "leases", "claims", "reservations", "switches", "people",
    "spent", "sequence", "fence", "taken", "queued_by_user", "used_by_tenant", "held", "reserved",
)  # fmt: skip


class Kept(History):
    """A history of which every step is committed before the next."""

    ledger: Ledger

    def settle(self) -> None:
        decide(self.state, self.now)
        events = self.state.take_journal()
        self.ledger.commit(events, offset_ms=0)
        self.watch.follow(events)


def parts(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in KEPT}


def loaded_state(ledger: Ledger) -> State:
    loaded, state = ledger.load(), State()
    state.load(loaded.records)
    state.sequence, state.fence = loaded.sequence, loaded.fence
    return state


def follow(url: str, seed: int) -> None:
    """Steps of a real pool, with a restart in the middle that loses nothing."""
    with emptied(url) as ledger:
        history = Kept(Random(seed))
        history.ledger = ledger
        history.begin()
        for _ in range(3):
            for _ in range(20):
                history.step()
            again = loaded_state(ledger)
            assert parts(again) == parts(history.state)
            assert ledger.load() == ledger.fold_events()
            assert ledger.differences() == []
            history.state = again
        assert ledger.verify().holds


@given(st.integers(0, 1 << 30))
@settings(max_examples=max(5, settings().max_examples // 5))
def test_a_restart_continues_where_the_rules_were__sqlite(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    follow(f"sqlite:///{tmp_path_factory.getbasetemp()}/state.sqlite", seed)


@pytest.mark.postgres
@given(st.integers(0, 1 << 30))
@settings(max_examples=max(3, settings().max_examples // 10))
def test_a_restart_continues_where_the_rules_were__postgres(
    shared_postgres_url: str, seed: int
) -> None:
    follow(shared_postgres_url, seed)
