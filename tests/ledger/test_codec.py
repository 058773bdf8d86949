"""Records survive the passage through JSON; nothing malformed gets in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_hub.domain.events import NodeRecord, PolicyVersion, Record, Switch
from allotment_hub.domain.policy import Policy, Pool
from allotment_hub.domain.requests import Reason
from allotment_hub.ledger import CodecError
from allotment_hub.ledger.codec import RECORD_TYPES, decode, dumps, encode, kind_of, loads
from tests.ledger import build

_TEXT = st.text(max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT | st.sampled_from(["$list", "$dict", "\0", "\ud800", "</script>"]),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(_TEXT | st.sampled_from(["$list", "$dict"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT, int: st.integers(-(10**30), 10**30), bool: st.booleans(), type(None): st.none(),
    float: st.floats(allow_nan=False, allow_infinity=False), object: _JSON,
}  # fmt: skip


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, also ones that no rule would let through."""
    arguments, origin = get_args(hint), get_origin(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        return _record(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([strategy(member) for member in arguments])
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[strategy(member) for member in arguments])
    assert issubclass(origin, Mapping), hint
    return st.dictionaries(_TEXT, strategy(arguments[1]), max_size=3)


def _record(cls: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    needed = {f.name: strategy(hints[f.name]) for f in fields(cls) if _needed(f)}
    rest = {f.name: strategy(hints[f.name]) for f in fields(cls) if not _needed(f)}
    return st.fixed_dictionaries(needed, optional=rest).map(lambda values: cls(**values))


def _needed(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@given(st.one_of([strategy(cls) for cls in RECORD_TYPES.values()]))
def test_a_record_comes_back_as_it_went_in(record: Record) -> None:
    kind = kind_of(record)
    assert decode(kind, encode(record)) == record
    again = loads(kind, dumps(record))
    assert again == record
    assert dumps(again) == dumps(record)


@given(strategy(RECORD_TYPES["Request"]))
def test_the_text_is_plain_ascii_that_any_database_stores(record: Record) -> None:
    text = dumps(record)
    assert text.isascii()
    assert "\0" not in text


def test_the_order_of_a_mapping_is_kept_because_the_first_match_counts() -> None:
    pools = {"b": Pool(), "a": Pool()}
    record = PolicyVersion(number=1, policy=Policy(pools=pools), by="x", at=0)
    again = loads("PolicyVersion", dumps(record))
    assert isinstance(again, PolicyVersion)
    assert list(again.policy.pools) == ["b", "a"]


def test_a_read_only_mapping_is_written_like_any_other() -> None:
    node = build.node()
    record = NodeRecord(
        node=RECORD_TYPES and type(node)(name="n", labels=MappingProxyType({"a": "b"}))
    )
    assert loads("NodeRecord", dumps(record)) == record


def test_a_field_added_later_takes_its_default() -> None:
    data = encode(Switch(name="grants", on=True))
    del data["text"]
    assert decode("Switch", data) == Switch(name="grants", on=True)


BAD = [
    ("a number as text", {"sequence": "1"}, "Request.sequence: int is needed, not '1'"),
    ("a boolean as a number", {"sequence": True}, "Request.sequence: int is needed, not True"),
    ("a real number as an integer", {"sequence": 1.0}, "Request.sequence: int is needed, not 1.0"),
    ("nothing where something is due", {"user": None}, "Request.user: str is needed, not None"),
    ("an unknown word", {"kind": "party"}, "Request.kind: one of 'session', 'job', 'service' is"),
    ("an unknown field", {"colour": "red"}, "Request.colour: unknown field"),
    ("a number as a mapping", {"ask": 3}, "Request.ask: a mapping is needed, not 3"),
    ("a fault deep inside", {"ask": {"gpus": 1, "devices": None}}, "Request.ask.devices: int"),
    ("a missing field", {"ask": {"gpus": 1}}, "Request.ask.devices: missing"),
    ("text as a list", {"groups": "vision"}, "Request.groups: a list is needed, not 'vision'"),
    ("a bad item", {"groups": ["a", 1]}, "Request.groups[1]: str is needed, not 1"),
    ("a short pair", {"options": [["a"]]}, "Request.options[0]: 2 items are needed, not 1"),
]


@pytest.mark.parametrize(("change", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_malformed_data_is_refused_with_the_field(change: dict[str, Any], message: str) -> None:
    data = json.loads(dumps(build.request(1))) | change
    with pytest.raises(CodecError) as caught:
        decode("Request", data)
    assert message in str(caught.value)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CodecError, match="unknown kind of record 'Cat'; known are Request, Lease"):
        decode("Cat", {})


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(CodecError, match="Lease is not JSON"):
        loads("Lease", "{")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", {1: 2}, object()])
def test_what_json_cannot_carry_is_refused_on_the_way_in(value: object) -> None:
    record = build.request(1, reasons=(Reason(code="AllInUse", evidence=(("it", value),)),))
    with pytest.raises(CodecError):
        dumps(record)
