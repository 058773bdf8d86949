"""Whatever is sent: taken or refused in words, never a fault of ours, never half a change."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide
from allotment_hub.domain.commands import Refusal
from allotment_hub.domain.state import State
from allotment_hub.policyfile import load_inventory, load_policy
from allotment_hub.web.problems import Problem
from allotment_hub.web.schema import WANTS, Changes, ListQuery, NewRequest, read_body, read_query
from tests.support.governed import INVENTORY, POLICY

NAMES = st.sampled_from(
    ["vision", "nlp", "notebook", "urgent", "training", "a100-80g", "l40s", "default", "x"]
)
NUMBERS = st.one_of(
    st.integers(-3, 9), st.floats(), st.sampled_from([0.25, 0.5, 1.5, 10**30, 1_000_000, True])
)
TEXTS = st.one_of(NAMES, st.text(max_size=12), st.sampled_from(["4h", "90s", "80GiB", "99999d"]))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
KEYS = st.one_of(st.sampled_from(sorted(WANTS | {"kind", "server", "user"})), st.text(max_size=6))
BODIES = st.dictionaries(KEYS, st.one_of(NUMBERS, TEXTS, JSON), max_size=7)
SENSIBLE = st.fixed_dictionaries(
    {"gpus": st.sampled_from([1, 2, 3, 0.5, 4, 8])},
    optional={
        "tenant": NAMES, "class": NAMES, "flavor": NAMES, "pool": NAMES,
        "kind": st.sampled_from(["session", "job", "service"]), "nodes": st.integers(1, 3),
        "devices": st.integers(1, 5), "same_node": st.booleans(), "nvlink": st.booleans(),
        "borrow": st.booleans(), "duration": st.sampled_from(["1s", "4h", "20d"]),
        "min_memory": st.sampled_from(["1GiB", "90GiB"]), "cpus": st.integers(0, 64),
        "memory": st.sampled_from(["1GiB", "4TiB"]), "min_driver": st.sampled_from(["1", "999.9"]),
        "interruptible": st.sampled_from(["no", "checkpoint", "stateless"]),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> State:
    state = State()
    commands.set_policy(state, 0, load_policy(POLICY).policy, "test")
    commands.set_nodes(state, 0, load_inventory(INVENTORY))
    decide(state, 0)
    state.take_journal()
    return state


class BadInput(Exception):
    """The 400 that says what is wrong."""


@contextlib.contextmanager
def _only_bad_input() -> Iterator[None]:
    """Let no other problem pass than a 400 that can be sent."""
    try:
        yield
    except Problem as problem:
        json.dumps(problem.body(), allow_nan=False)
        if problem.status == 400 and problem.errors:
            raise BadInput from None
        raise


def _read(model: Any, content: bytes) -> Any:
    with _only_bad_input():
        return read_body(model, content)


def _text(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=True).encode()


@given(body=st.one_of(BODIES, SENSIBLE), changes=BODIES)
@settings(max_examples=200)
def test_a_body_is_taken_or_refused_and_never_breaks_anything(
    world: State, body: dict[str, Any], changes: dict[str, Any]
) -> None:
    state = world.fork()
    try:
        asked = _read(NewRequest, _text(body))
        row = commands.submit(
            state, 10, id="r1", kind=asked.kind, user="ann", groups=("vision",),
            wants=asked.wants(), server=asked.server,
        )  # fmt: skip
    except (BadInput, Refusal):
        assert state.journal == []
        return
    assert row.tenant in ("vision", "")
    decide(state, 10)
    before = len(state.journal)
    try:
        wanted = _read(Changes, _text(changes)).wants()
        commands.amend(state, 20, "r1", wanted, "user:ann")
        decide(state, 20)
    except (BadInput, Refusal):
        assert len(state.journal) == before


@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_bytes_are_a_body_or_bad_input(content: bytes) -> None:
    with contextlib.suppress(BadInput):
        _read(NewRequest, content)


@given(arguments=st.dictionaries(TEXTS, st.lists(TEXTS, min_size=1, max_size=2), max_size=4))
def test_a_query_is_read_or_bad_input(arguments: dict[str, list[str]]) -> None:
    with contextlib.suppress(BadInput), _only_bad_input():
        read_query(ListQuery, arguments)
