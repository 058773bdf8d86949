"""The pure parts: examples in their documentation, and properties over anything the driver says."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_hub.inventory.observe import Known, Surroundings, absorb
from allotment_hub.inventory.readings import Reading
from allotment_hub.inventory.topology import islands

MODULES = ["health", "matching", "names", "readings", "topology"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_documentation_hold(name: str) -> None:
    module = importlib.import_module(f"allotment_hub.inventory.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def around(held: frozenset[str] | None) -> Surroundings:
    return Surroundings(
        node="n",
        machine_memory=1 << 38,
        held=held,
        avoided={},
        alive=lambda pid: None,
        is_system=lambda pid: False,
        idle_memory=512 << 20,
        settle=60_000,
    )


UUIDS = st.sampled_from(["GPU-a", "GPU-b", "GPU-c", "MIG-d"])
ERRORS = st.dictionaries(
    st.sampled_from(["handle", "uuid", "memory", "utilisation", "processes", "mig"]),
    st.tuples(st.sampled_from([3, 4, 6, 15, 16, 21, 999, 12345]), st.text(min_size=1, max_size=5)),
    max_size=3,
)
SIZES = st.integers(0, 1 << 40)


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    device: dict[str, Any] = {"index": draw(st.none() | st.integers(0, 7)), "errors": draw(ERRORS)}
    if draw(st.booleans()):
        return {**device, "skipped": True}
    if draw(st.booleans()):
        device["uuid"] = draw(UUIDS)
    if draw(st.booleans()):
        device["memory"] = [draw(SIZES), draw(SIZES)]
    if draw(st.booleans()):
        device["utilisation"] = draw(st.none() | st.integers(0, 100))
    if draw(st.booleans()):
        device["processes"] = draw(
            st.none() | st.lists(st.tuples(st.integers(0, 1 << 22), st.none() | SIZES), max_size=3)
        )
    if draw(st.booleans()):
        device |= {"mig": True, "parent": draw(UUIDS), "gi": 1, "ci": 0}
    if draw(st.booleans()):
        device |= {"bus": draw(st.sampled_from("wxyz")), "links": draw(st.lists(UUIDS))}
    return device


ANSWERS = st.lists(devices(), max_size=5).map(lambda found: {"driver": "1", "devices": found})


@given(st.lists(ANSWERS, max_size=5), st.none() | st.frozensets(UUIDS))
def test_no_answer_breaks_the_reading_or_loses_a_device_that_is_held(
    answers: list[dict[str, Any]], held: frozenset[str] | None
) -> None:
    known: Mapping[str, Known] = {}
    for number, answer in enumerate(answers):
        after = absorb(known, answer, number, around(held)).devices
        assert {uuid for uuid in known if around(held).holds(uuid)} <= set(after)
        for uuid, each in after.items():
            assert each.device.uuid == uuid == each.reading.device
            assert each.device.health == "ok" or each.device.detail
            assert 0 <= each.device.since <= number
            assert each.device.health != "dirty" or not around(held).holds(uuid)
        known = after


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefgs"))))
def test_islands_are_connected_and_never_of_one(links: dict[str, list[str]]) -> None:
    found = islands(links)
    for bus, ends in links.items():
        for end in ends:
            if end in links and end != bus:
                assert found[bus] == found[end]
    assert all(list(found.values()).count(number) > 1 for number in found.values())
    assert sorted(set(found.values())) == list(range(len(set(found.values()))))


def test_memory_of_a_device_that_tells_only_part_stays_unknown() -> None:
    reading = Reading(node="n", device="d")
    assert reading.unattributed is None
    assert reading.without_values("why").missing["memory"] == "why"
