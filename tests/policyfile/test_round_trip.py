"""What is written is read again as the same; what differs is found."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_hub.domain.amounts import Unit
from allotment_hub.domain.policy import Policy
from allotment_hub.policyfile import (
    PolicyError,
    Problem,
    diff_policies,
    dump_policy,
    effective,
    load_policy,
    policy_data,
)
from allotment_hub.policyfile.notation import WORDS, fields_of
from allotment_hub.policyfile.problems import Problems
from allotment_hub.policyfile.reader import read

from .builders import GOOD, spoiled
from .strategies import policies

OFTEN = settings(max_examples=60, deadline=None)


@OFTEN
@given(policies(), st.booleans())
def test_a_dumped_policy_loads_as_the_same_policy(policy: Policy, full: bool) -> None:
    assert load_policy(dump_policy(policy, full=full)).policy == policy


@OFTEN
@given(policies(), st.booleans())
def test_so_does_its_json(policy: Policy, full: bool) -> None:
    text = json.dumps(policy_data(policy, full=full))
    assert load_policy(text).policy == policy
    assert load_policy(json.loads(text)).policy == policy


@settings(max_examples=25, deadline=None)
@given(policies())
def test_the_order_of_names_is_kept(policy: Policy) -> None:
    again = load_policy(dump_policy(policy)).policy
    for section in ("flavors", "pools", "tenants", "classes"):
        assert list(getattr(again, section)) == list(getattr(policy, section))


@pytest.mark.parametrize("word", ["no", "yes", "on", "y", "n", "null", "true", "~"])
def test_words_that_older_readers_of_yaml_take_for_switches_are_quoted(word: str) -> None:
    policy = load_policy(spoiled("tenants", "nlp", "groups", value=[word])).policy
    assert f'- "{word}"\n' in dump_policy(policy)


@settings(max_examples=25, deadline=None)
@given(policies(), policies())
def test_equal_policies_have_no_difference_and_others_have_one(old: Policy, new: Policy) -> None:
    assert diff_policies(old, old) == []
    if policy_data(old) != policy_data(new):
        assert diff_policies(old, new)


def refused_for(source: Any) -> tuple[Problem, ...]:
    """Load a policy; give back what it is refused for, nothing where it is accepted."""
    try:
        load_policy(source)
    except PolicyError as error:
        return error.problems
    return ()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted({key for cls in (Policy,) for key in fields_of(cls)}))
            | st.sampled_from(["quotas", "groups", "flavor", "guarantee", "model", "when", "for"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JUNK)
def test_whatever_is_given_is_loaded_or_refused_but_never_crashes(data: Any) -> None:
    document = {"version": 1, **data} if isinstance(data, dict) else data
    if isinstance(document, str):
        document = {"version": document}
    for problem in refused_for(document if isinstance(document, dict) else json.dumps(document)):
        assert problem.text("file").isprintable()
        assert len(problem.message) < 500


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_broken_part_of_a_good_policy_never_crashes(data: st.DataObject) -> None:
    paths = [
        ("tenants", "vision", "quotas", 0, "pool"), ("tenants", "vision", "quotas"),
        ("tenants", "vision"), ("pools",), ("pools", "training"), ("flavors", "a100"),
        ("classes", "notebook"), ("reclaim", 0), ("reclaim", 0, "when"), ("borrowing",),
    ]  # fmt: skip
    where = data.draw(st.sampled_from(paths))
    for problem in refused_for(spoiled(*where, value=data.draw(JUNK))):
        assert problem.text("file").isprintable()


def _quantities(cls: Any) -> list[tuple[Any, str]]:
    found = []
    for spec in fields_of(cls).values():
        inner = spec.hint
        args = getattr(inner, "__args__", ())
        for part in (inner, *args):
            if dataclasses.is_dataclass(part):
                found += _quantities(part)
        if spec.unit is not None:
            found.append((cls, spec.name))
    return found


def test_every_quantity_of_the_policy_is_read_with_its_unit() -> None:
    found = {(cls.__name__, name) for cls, name in _quantities(Policy)}
    for cls, name in _annotated(Policy):
        assert (cls, name) in found
    assert ("Quota", "guarantee") in found
    assert ("ReclaimRule", "idle_after") in found


def _annotated(cls: Any) -> set[tuple[str, str]]:
    import typing

    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        (cls.__name__, name)
        for name, hint in hints.items()
        if any(isinstance(mark, Unit) for mark in getattr(hint, "__metadata__", ()))
    }


def test_every_word_belongs_to_a_field_that_exists() -> None:
    for cls, name in WORDS:
        assert name in {item.name for item in dataclasses.fields(cls)}


def test_a_duration_that_may_be_absent_can_be_switched_off_in_words() -> None:
    """Absent means *inherit* in an override; anywhere else there is a word for it."""
    for cls, name in _quantities(Policy):
        spec = next(one for one in fields_of(cls).values() if one.name == name)
        inherits = cls.__name__ in ("Borrowing", "Quota", "Flavor")
        assert not spec.optional or inherits or spec.words, (cls, name)


@pytest.mark.parametrize(
    ("where", "value", "change"),
    [
        (("tenants", "vision", "quotas", 0, "ceiling"), 8,
         {"path": "tenants.vision.quotas[0].ceiling", "before": 6, "after": 8}),
        (("reclaim", 1, "idle_after"), "off",
         {"path": "reclaim[1].idle_after", "before": "30m", "after": "off"}),
        (("classes", "notebook", "objective"), {"start_within": "10m"},
         {"path": "classes.notebook.objective", "before": "off",
          "after": {"start_within": "10m", "share": 0.95}}),
        (("borrowing", "notice"), "1m", {"path": "borrowing.notice", "before": "15m",
                                         "after": "1m"}),
    ],
)  # fmt: skip
def test_a_difference_is_told_in_the_notation_of_the_file(
    where: tuple[str | int, ...], value: Any, change: dict[str, Any]
) -> None:
    old = load_policy(spoiled("borrowing", value={"notice": "15m"})).policy
    data = spoiled(*where, value=value)
    if where[0] != "borrowing":
        data["borrowing"] = {"notice": "15m"}
    assert diff_policies(old, load_policy(data).policy) == [change]


def test_a_new_tenant_is_one_difference_and_so_is_one_that_is_gone() -> None:
    old = load_policy(GOOD).policy
    new = load_policy(spoiled("tenants", "third", value={"groups": ["x"]})).policy
    [added] = diff_policies(old, new)
    assert added["path"] == "tenants.third"
    assert added["before"] is None
    assert added["after"]["groups"] == ["x"]
    [gone] = diff_policies(new, old)
    assert (gone["path"], gone["after"]) == ("tenants.third", None)


def test_the_order_of_quotas_is_no_difference_and_that_of_flavors_is() -> None:
    quotas = [
        {"pool": "interactive", "flavor": "l40s", "guarantee": 1},
        {"pool": "interactive", "flavor": "a100", "guarantee": 4},
    ]
    old = load_policy(spoiled("tenants", "vision", "quotas", value=quotas)).policy
    new = load_policy(spoiled("tenants", "vision", "quotas", value=quotas[::-1])).policy
    assert diff_policies(old, new) == []
    flavors = dict(reversed(GOOD["flavors"].items()))
    turned = load_policy(spoiled("flavors", value=flavors)).policy
    assert diff_policies(load_policy(GOOD).policy, turned) == [
        {"path": "flavors", "before": ["a100", "l40s"], "after": ["l40s", "a100"]}
    ]


def test_a_rule_put_in_between_is_one_difference() -> None:
    rules = [GOOD["reclaim"][0], {"when": {"class": "training"}}, GOOD["reclaim"][1]]
    new = load_policy(spoiled("reclaim", value=rules)).policy
    changes = diff_policies(load_policy(GOOD).policy, new)
    assert [one["path"] for one in changes] == ["reclaim[1]"]
    assert changes[0]["before"] is None


def test_every_value_in_force_has_an_origin() -> None:
    text = "version: 1\nborrowing:\n  term: 2h\nflavors:\n  g: {model: G}\n"
    origins = {one.path: (one.value, one.origin) for one in effective(load_policy(text))}
    assert origins["borrowing.term"] == ("2h", "policy:3")
    assert origins["flavors.g.model"] == ("G", "policy:5")
    assert origins["flavors.g.sharing"] == ("off", "default")
    assert origins["reclaim[0].idle_after"] == ("30m", "default")


def test_reading_reports_nothing_for_a_part_that_is_right() -> None:
    problems = Problems()
    assert read(Policy, {"version": 1}, problems) == Policy()
    assert problems.found == []
