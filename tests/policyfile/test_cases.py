"""Field cases of policy loading, each named by its id."""

from __future__ import annotations

import pytest

from allotment_hub.domain.amounts import MINUTE, UNLIMITED
from allotment_hub.policyfile import load_inventory, load_policy

from .builders import GOOD, errors_of, remarks_of, spoiled


def test_policy_01_misspelt_keys_are_all_listed_with_the_nearest_valid_one() -> None:
    text = """
version: 1
flavors: {g: {model: G}}
tenants:
  a:
    ceilling: 8
    quotas: [{flavor: g, garantee: 4}]
widgets: {}
"""
    errors = errors_of(text)
    assert "did you mean 'ceiling', which belongs in 'quotas'?" in errors["tenants.a.ceilling"]
    assert "did you mean 'guarantee'?" in errors["tenants.a.quotas[0].garantee"]
    assert "known here: version, currency" in errors["widgets"]
    assert len(errors) == 3


@pytest.mark.parametrize("huge", ["1000000000000000000", "1e18", "1000001"])
def test_quota_02_a_huge_number_is_refused_and_unlimited_is_a_word(huge: str) -> None:
    text = "version: 1\nflavors: {{g: {{model: G}}}}\n"
    text += "tenants: {{a: {{quotas: [{{flavor: g, ceiling: {}}}]}}}}"
    message = errors_of(text.format(huge))["tenants.a.quotas[0].ceiling"]
    assert "above the bound of 1,000,000 GPUs; write 'unlimited'" in message
    loaded = load_policy(text.format("unlimited"))
    assert loaded.policy.tenants["a"].quotas[0].most == UNLIMITED
    notes = remarks_of(loaded, "note")
    assert notes["tenants.a.quotas[0].ceiling"] == "is unlimited: up to all that the pool has"


POOL_OF_SEVEN = """
version: 1
flavors: {g: {model: G}}
tenants:
  a: {groups: [a], quotas: [{flavor: g, guarantee: 6}]}
  b: {groups: [b], quotas: [{flavor: g, guarantee: 4}]}
"""


def test_quota_21_guarantees_above_the_inventory_are_refused() -> None:
    seven = load_inventory([{"node": "n", "devices": [{"model": "G", "memory": 1, "count": 7}]}])
    errors = errors_of(POOL_OF_SEVEN, inventory=seven)
    message = errors["tenants.b.quotas[0].guarantee"]
    assert "add up to 10 (a 6, b 4), but the inventory has 7" in message
    assert "write 'overcommit: true'" in message


def test_quota_21_or_accepted_with_a_warning_where_the_policy_says_so() -> None:
    seven = load_inventory([{"node": "n", "devices": [{"model": "G", "memory": 1, "count": 7}]}])
    loaded = load_policy(POOL_OF_SEVEN + "overcommit: true\n", inventory=seven)
    assert "add up to 10" in remarks_of(loaded)["tenants.b.quotas[0].guarantee"]


def test_quota_21_a_sum_that_fits_is_fine() -> None:
    ten = load_inventory([{"node": "n", "devices": [{"model": "G", "memory": 1, "count": 10}]}])
    assert load_policy(POOL_OF_SEVEN, inventory=ten).warnings == ()


def test_quota_21_pools_that_share_nodes_are_counted_together() -> None:
    nodes = load_inventory([{"node": "n", "devices": [{"model": "A100 80GB", "memory": "80GiB",
                                                       "count": 6}]}])  # fmt: skip
    quotas = [{"pool": "training", "flavor": "a100", "guarantee": 1}]
    errors = errors_of(
        spoiled("tenants", "third", value={"groups": ["x"], "quotas": quotas}), inventory=nodes
    )
    assert "in the pools without labels add up to 7" in str(errors)


def test_policy_09_zero_means_none_for_amounts_and_the_loader_says_so() -> None:
    quota = {"pool": "interactive", "flavor": "a100", "guarantee": 0, "ceiling": 0, "lend": 0}
    loaded = load_policy(spoiled("tenants", "nlp", "quotas", 0, value=quota))
    assert loaded.policy.tenants["nlp"].quotas[0].most == 0
    notes = remarks_of(loaded, "note")
    assert notes["tenants.nlp.quotas[0].guarantee"] == "is 0: guarantees no GPU"
    assert "does not mean unlimited" in notes["tenants.nlp.quotas[0].ceiling"]
    assert notes["tenants.nlp.quotas[0].lend"] == "is 0: lends nothing to others"


def test_policy_09_a_zero_time_is_refused_with_a_hint_to_off() -> None:
    message = errors_of(spoiled("reclaim", 0, "idle_after", value=0))["reclaim[0].idle_after"]
    assert "write 1s or more, or 'off' to switch it off" in message


def test_policy_09_off_and_unlimited_are_words() -> None:
    rule = {"idle_after": "off", "unused_after": "off"}
    policy = load_policy(spoiled("reclaim", 1, value=rule)).policy
    assert policy.reclaim[1].idle_after is None
    assert policy.reclaim[1].unused_after is None
    limits = {"gpus_per_user": "unlimited", "queued_per_user": "unlimited"}
    found = load_policy(spoiled("tenants", "nlp", "limits", value=limits)).policy
    assert found.tenants["nlp"].limits.gpus_per_user is None
    assert found.tenants["nlp"].limits.queued_per_user is None


def test_policy_09_a_zero_limit_is_taken_at_its_word_with_a_warning() -> None:
    limits = {"gpus_per_user": 0, "queued_per_user": 0}
    warnings = remarks_of(load_policy(spoiled("tenants", "nlp", "limits", value=limits)))
    assert "no user gets a GPU" in warnings["tenants.nlp.limits.gpus_per_user"]
    assert "write 'unlimited'" in warnings["tenants.nlp.limits.queued_per_user"]


def test_time_11_idle_limit_shorter_than_three_report_intervals_is_warned_about() -> None:
    warnings = remarks_of(load_policy(spoiled("reclaim", 0, "idle_after", value="75s")))
    assert "is 75s, shorter than 3 report intervals; write 3m" in warnings["reclaim[0].idle_after"]
    assert not remarks_of(load_policy(spoiled("reclaim", 0, "idle_after", value="3m")))


def test_time_04_a_term_is_a_duration_and_never_a_time_of_day() -> None:
    message = errors_of(spoiled("borrowing", "term", value="02:30"))["borrowing.term"]
    assert "'02:30' is not a duration" in message
    policy = load_policy(spoiled("borrowing", "term", value="1d")).policy
    assert policy.borrowing.term == 24 * 60 * MINUTE


@pytest.mark.parametrize("written", ["no", '"no"', "'no'"])
def test_interruptible_no_needs_no_quotes(written: str) -> None:
    text = f"version: 1\nclasses: {{c: {{interruptible: {written}}}}}"
    assert load_policy(text).policy.classes["c"].interruptible == "no"


def test_the_only_pool_need_not_be_named() -> None:
    text = "version: 1\nflavors: {g: {model: G}}\ntenants: {a: {quotas: [{flavor: g}]}}\n"
    assert load_policy(text).policy.tenants["a"].quotas[0].pool == "default"
    named = load_policy(text + "pools: {gpu: {}}\n")
    assert named.policy.tenants["a"].quotas[0].pool == "gpu"


def test_reserved_words_are_written_as_such_in_the_file() -> None:
    rule = {"when": {"class": "notebook"}, "keep": {"times": 1, "for": "5m"}}
    policy = load_policy(spoiled("reclaim", 0, value=rule)).policy
    assert policy.reclaim[0].when.class_ == "notebook"
    assert policy.reclaim[0].keep.for_ == 5 * MINUTE
    assert "reclaim[0].when.class_" in errors_of(
        spoiled("reclaim", 0, value={"when": {"class_": "notebook"}})
    )


def test_what_is_probably_not_meant_is_warned_about() -> None:
    policy = spoiled("tenants", "vision", "groups", value=[])
    policy["classes"]["stray"] = {"kind": "batch", "interruptible": "no", "borrow": True}
    policy["classes"]["Notebook"] = {"borrow": "surplus"}
    policy["pools"]["training"]["classes"] = ["training", "trainnig"]
    policy["reclaim"] = [{}, {}]
    warnings = remarks_of(load_policy(policy))
    assert "nobody can belong to it" in warnings["tenants.vision"]
    assert "is taken by no pool" in warnings["classes.stray"]
    assert "never borrows" in warnings["classes.stray.borrow"]
    assert "which only a service has" in warnings["classes.Notebook.borrow"]
    assert "differs from 'notebook' only in upper case" in warnings["classes.Notebook"]
    assert "did you mean 'training'?" in warnings["pools.training.classes[1]"]
    assert "no later rule is ever reached" in warnings["reclaim[0]"]


def test_a_group_of_two_tenants_is_allowed_and_noted() -> None:
    loaded = load_policy(spoiled("tenants", "nlp", "groups", value=["vision"]))
    notes = remarks_of(loaded, "note")
    assert notes["tenants.nlp.groups[0]"] == "'vision' also belongs to 'vision': its members choose"


def test_quotas_of_a_flavor_that_the_pool_does_not_have_are_warned_about() -> None:
    nodes = load_inventory([{"node": "n", "devices": [{"model": "A100 80GB", "memory": "80GiB",
                                                       "count": 6}]}])  # fmt: skip
    quota = {"pool": "interactive", "flavor": "l40s", "ceiling": 2}
    loaded = load_policy(spoiled("tenants", "nlp", "quotas", value=[quota]), inventory=nodes)
    assert "has no 'l40s'" in remarks_of(loaded)["tenants.nlp.quotas[0]"]


def test_a_bad_policy_leaves_the_loaded_one_as_it_was() -> None:
    before = load_policy(GOOD)
    errors_of(spoiled("reclaim", value=[]))
    assert load_policy(GOOD).policy == before.policy
