"""What comes in ``user_options["allotment"]`` is carried safely, or refused with what is right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_hub import gateapi
from allotment_hub.gateapi import LEASE_OPTION, GateError, LeaseCall, ServerCall, StartCall
from allotment_hub.spawner.options import WantsError, check_wants, wants_from_form
from allotment_hub.spawner.refusal import StartRefused
from tests.support.boxes import Site
from tests.support.gatepeer import GatePeer

GOOD: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 0.25},
    {"gpus": 2, "tenant": "vision", "class": "notebook", "pool": "p", "flavor": "a100-80g"},
    {"gpus": 4, "nodes": 2, "same_node": False, "nvlink": True, "min_memory": "40GiB"},
    {"gpus": 1, "duration": "4h", "interruptible": "no", "borrow": False, "start": "always"},
    {"gpus": 1, "tenant": "équipe Ä"},
    {"gpus": 1, "duration": 3600, "min_memory": 1024},
]

BAD = [
    ([], "allotment", "write an object"),
    ("1", "allotment", "write an object"),
    (True, "allotment", "write an object"),
    ({"gpu": 1}, "allotment.gpu", "unknown key"),
    ({"gpus": 1, "profile": "gpu8"}, "allotment.profile", "unknown key"),
    ({"gpus": 1, LEASE_OPTION: "l1"}, "allotment.allotment_lease", "unknown key"),
    ({"gpus": True}, "allotment.gpus", "a number such as"),
    ({"gpus": "1"}, "allotment.gpus", "a number such as"),
    ({"gpus": "unlimited"}, "allotment.gpus", "a number such as"),
    ({"gpus": [1]}, "allotment.gpus", "a number such as"),
    ({"gpus": float("nan")}, "allotment.gpus", "finite"),
    ({"gpus": float("inf")}, "allotment.gpus", "finite"),
    ({"gpus": -1}, "allotment.gpus", "from zero up"),
    ({"gpus": 0.0001}, "allotment.gpus", "three decimals"),
    ({"gpus": 10**30}, "allotment.gpus", "above the bound"),
    ({"gpus": int("9" * 4000)}, "allotment.gpus", "above the bound"),
    ({"flavor": "a100"}, "allotment.gpus", "say how many"),
    ({"gpus": 1, "nodes": 0}, "allotment.nodes", "whole number"),
    ({"gpus": 1, "nodes": True}, "allotment.nodes", "whole number"),
    ({"gpus": 1, "nodes": 1.5}, "allotment.nodes", "whole number"),
    ({"gpus": 1, "nvlink": 1}, "allotment.nvlink", "true or false"),
    ({"gpus": 1, "borrow": "no"}, "allotment.borrow", "true or false"),
    ({"gpus": 1, "duration": "4 hours"}, "allotment.duration", "90s, 20m"),
    ({"gpus": 1, "duration": 0}, "allotment.duration", "more than nothing"),
    ({"gpus": 1, "min_memory": "much"}, "allotment.min_memory", "80GiB"),
    ({"gpus": 1, "interruptible": "maybe"}, "allotment.interruptible", "one of"),
    ({"gpus": 1, "interruptible": ["no"]}, "allotment.interruptible", "one of"),
    ({"gpus": 1, "start": "later"}, "allotment.start", "one of"),
    ({"gpus": 1, "tenant": ""}, "allotment.tenant", "1 to 64"),
    ({"gpus": 1, "tenant": "a" * 65}, "allotment.tenant", "1 to 64"),
    ({"gpus": 1, "tenant": "a/b"}, "allotment.tenant", "without slashes"),
    ({"gpus": 1, "flavor": "a\nb"}, "allotment.flavor", "printable"),
    ({"gpus": 1, "class": " x "}, "allotment.class", "printable"),
    ({"gpus": 1, "pool": 7}, "allotment.pool", "name of"),
]  # fmt: skip


@pytest.mark.parametrize("wants", GOOD, ids=str)
def test_good_ones_pass_unchanged(wants: dict[str, Any]) -> None:
    assert check_wants(wants) == wants


@pytest.mark.parametrize("wants", [None, {}, {"gpus": 0}, {"gpus": 0, "flavor": "a100"}], ids=str)
def test_no_gpus_is_no_request(wants: Any) -> None:
    assert check_wants(wants) is None


@pytest.mark.parametrize(("wants", "path", "right"), BAD, ids=lambda v: repr(v)[:40])
def test_bad_ones_are_refused_with_what_would_be_right(wants: Any, path: str, right: str) -> None:
    with pytest.raises(WantsError) as caught:
        check_wants(wants)
    assert any(where == path and right in text for where, text in caught.value.errors)
    assert len(str(caught.value)) < 1000


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(WantsError) as caught:
        check_wants({"gpus": -1, "nodes": 0, "colour": "red"})
    assert len(caught.value.errors) == 3


_LEAF = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20)
_KEYS = st.sampled_from(["gpus", "nodes", "flavor", "duration"]) | st.text(max_size=10)


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4)


@given(st.recursive(_LEAF, _nest, max_leaves=8))
def test_any_json_is_carried_or_refused(raw: Any) -> None:
    try:
        checked = check_wants(raw)
    except WantsError:
        return
    assert checked is None or (set(checked) <= set(raw) and checked["gpus"] > 0)


def test_a_form_gives_its_fields_and_leaves_the_rest() -> None:
    form = {
        "allotment_gpus": ["2"], "allotment_flavor": ["a100"], "allotment_duration": [" "],
        "allotment_nvlink": ["on"], "profile": ["big"], "file_file": [{"filename": "x"}],
    }  # fmt: skip
    wants, rest = wants_from_form(form)
    assert wants == {"gpus": 2, "flavor": "a100", "nvlink": True}
    assert rest == {"profile": ["big"], "file_file": [{"filename": "x"}]}


@pytest.mark.parametrize("text", ["two", "NaN", "1e400", "-1", "9" * 500, "0x1"])
def test_a_form_with_nonsense_is_refused_later(text: str) -> None:
    wants, _ = wants_from_form({"allotment_gpus": [text]})
    with pytest.raises(WantsError):
        check_wants(wants)


# -- at the hub ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wants", [{"gpus": True}, {"gpus": 8, "extra_resource_limits": {}}, [1]], ids=str
)
async def test_forged_options_ask_nobody_and_are_forgotten(
    site: Site, peer: GatePeer, wants: Any
) -> None:
    """POLICY-13: by REST, beside any form. The hub has stored them before it lets us look."""
    ann = site.user("ann")
    with pytest.raises(StartRefused) as caught:
        await ann.spawn(options={"allotment": wants, "image": "x"})
    assert (caught.value.status_code, caught.value.label) == (400, "bad-options")
    assert peer.calls == []
    assert ann.orm_user.orm_spawners[""].user_options == {"image": "x"}
    await ann.spawn()  # a single action leaves it behind


async def test_a_forged_mark_does_not_last(site: Site, peer: GatePeer) -> None:
    ann = site.user("ann")
    await ann.spawn(options={LEASE_OPTION: "l7", "image": "x"})
    assert ann.spawner.user_options == {"image": "x"}
    assert ann.orm_user.orm_spawners[""].user_options == {"image": "x"}


async def test_what_the_child_reads_stays_untouched(site: Site, peer: GatePeer) -> None:
    seen: list[dict[str, Any]] = []
    site.config[site.spawner_class.__name__].apply_user_options = lambda _s, o: seen.append(o)
    ann = site.user("ann")
    await ann.spawn(options={"allotment": {"gpus": 1}, "image": "x"})
    assert seen == [{"image": "x"}]
    assert ann.spawner.user_options["image"] == "x"
    assert peer.names(gateapi.START)[0]["options"] == {"allotment": {"gpus": 1}, "image": "x"}


async def test_uploaded_files_are_not_sent(site: Site, peer: GatePeer) -> None:
    await site.user("ann").spawn(options={"allotment": {"gpus": 1}, "file": [{"body": b"x"}]})
    assert peer.names(gateapi.START)[0]["options"] == {"allotment": {"gpus": 1}}


def test_calls_survive_their_own_notation() -> None:
    call = StartCall(
        user="a\n<b>", server="", groups=("ä",), wants={"gpus": 1}, options={"x": [1]}, admin=True
    )
    assert StartCall.from_json(json.loads(json.dumps(call.to_json()))) == call
    lease = LeaseCall(lease="l1", fence=3, proof="poll")
    assert LeaseCall.from_json(json.loads(json.dumps(lease.to_json()))) == lease
    assert len(LeaseCall(lease="l", fence=1, detail="x" * 9000).to_json()["detail"]) == 2000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (StartCall, []),
        (StartCall, {"user": "", "server": "", "groups": []}),
        (StartCall, {"user": "a", "server": "", "groups": "vision"}),
        (StartCall, {"user": "a", "server": "", "groups": [], "admin": 1}),
        (StartCall, {"user": "a", "server": "", "groups": [], "sudo": True}),
        (LeaseCall, {"lease": "l", "fence": True}),
        (LeaseCall, {"lease": "l", "fence": -1}),
        (LeaseCall, {"lease": 1, "fence": 1}),
        (ServerCall, {"user": "a"}),
    ],
    ids=lambda v: repr(v)[:40],
)
def test_calls_of_another_shape_are_refused(kind: Any, body: Any) -> None:
    with pytest.raises(GateError):
        kind.from_json(body)
