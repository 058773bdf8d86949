"""The watch sees what is broken: each invariant is broken on purpose once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from allotment_hub.domain.events import Event
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from allotment_hub.simulate.invariants import Watch
from tests.views.world import world


def lease(state: State, id: str = "lent.1") -> Lease:
    return state.leases[id]


def new(state: State, **changes: object) -> Lease:
    """A lease as the next grant would make it, with something wrong about it."""
    made = replace(
        lease(state), id="new.1", fence=state.fence + 1, state="granted", reclaim=None,
        granted_at=9, server="new", policy_version=state.version.number,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


Change = Callable[[State], Lease | Request]


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, lambda state: new(state)),
        (3, lambda state: new(state, lenders=())),
        (4, lambda state: new(state, lenders=(("vision", 2000),))),
        (8, lambda state: new(state, fence=1)),
        (8, lambda state: replace(lease(state), fence=99)),
        (10, lambda state: new(state, server="lent")),
        (11, lambda state: replace(state.requests["claim"], state="done")),
        (14, lambda state: new(state, tenant="nobody")),
        (14, lambda state: new(state, class_="unknown")),
        (16, lambda state: replace(lease(state, "small.1"), lenders=(), state="active")),
        (26, lambda state: new(state, gpus=1000)),
        (27, lambda state: new(state, policy_version=7)),
        (27, lambda state: replace(lease(state), policy_version=2)),
    ],
)
def test_a_broken_invariant_is_seen(number: int, change: Change) -> None:
    player = world()
    watch = Watch(player.state)
    record = change(player.state)
    if number == 16:  # a lease that was guaranteed becomes borrowed
        watch.shadow.leases["small.1"] = record  # type: ignore[assignment]  # a lease by the row
        record = player.state.leases["small.1"]
    watch.follow([Event(9, "made.up", record)])
    assert number in {violation.number for violation in watch.found}, watch.found


def test_nothing_is_found_in_a_sound_history() -> None:
    player = world()
    assert player.watch.found == []
    assert player.watch.compare(player.state, player.now) == []


def test_a_final_record_that_comes_back_is_seen() -> None:
    player = world()
    watch = Watch(player.state)
    ended = replace(player.state.requests["claim"], state="cancelled")
    again = replace(ended, state="queued")
    watch.follow([Event(9, "request.cancelled", ended), Event(9, "request.queued", again)])
    assert [violation.number for violation in watch.found] == [11]


def test_a_grant_while_paused_or_on_a_lost_device_is_seen() -> None:
    player = world()
    player.commit()
    state = player.state
    from allotment_hub.domain import commands

    commands.switch(state, player.now, "paused", True, "user:root")
    commands.set_device(state, player.now, "GPU-n1-0", "lost")
    watch = Watch(state)
    watch.follow([Event(9, "lease.granted", new(state))])
    assert {2, 24} <= {violation.number for violation in watch.found}


def test_a_counter_that_drifts_is_seen() -> None:
    player = world()
    player.state.used_by_tenant["nlp"] += 1
    player.state.cell("default", "a100").used["nlp"] = -5
    found = player.watch.compare(player.state, player.now)
    assert {violation.number for violation in found} == {9}
    assert any("negative" in violation.text for violation in found)


def test_a_state_that_is_not_the_fold_of_its_events_is_seen() -> None:
    player = world()
    del player.state.requests["later"]
    assert 22 in {found.number for found in player.watch.compare(player.state, player.now)}


def test_a_stop_within_the_protected_period_is_seen() -> None:
    player = world()
    state = player.state
    shielded = replace(lease(state), protected_until=player.now + 60_000, interruptible="no")
    state.leases["lent.1"] = shielded
    watch = Watch(state)
    watch.follow([Event(player.now, "lease.stopping", replace(shielded, state="stopping"))])
    told = [violation.text for violation in watch.found if violation.number == 16]
    assert any("protected" in text for text in told)
    assert any("cannot be interrupted" in text for text in told)
