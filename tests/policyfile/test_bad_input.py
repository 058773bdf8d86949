"""Every kind of bad input in a policy: the message names where, what, and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allotment_hub.policyfile import PolicyError, load_policy

from .builders import GOOD, errors_of, spoiled

QUOTA = ("tenants", "vision", "quotas", 0)
QUOTA_TEXT = "tenants.vision.quotas[0]"


def test_the_good_policy_is_good() -> None:
    assert load_policy(GOOD).warnings == ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["is true", "a number of GPUs"]),
        (False, ["is false", "a number of GPUs"]),
        (float("nan"), ["nan", "finite", "2 or 0.25"]),
        (float("inf"), ["inf", "finite", "2 or 0.25"]),
        (-1, ["-1", "from zero up", "2 or 0.25"]),
        (10**30, ["above the bound of 1,000,000 GPUs"]),
        (10**5000, ["more than a thousand digits", "a number of GPUs"]),
        ("9" * 5000, ["5002 characters", "a number of GPUs"]),
        ("", ["''", "a number of GPUs"]),
        ("four", ["'four'", "a number of GPUs"]),
        ("0.0001", ["more than three decimals", "0.125"]),
        (None, ["is empty", "write a value or leave the key out"]),
        ([1], ["is a list", "a number of GPUs"]),
        ({"a": 1}, ["is a mapping", "a number of GPUs"]),
        ("unlimited", ["'unlimited'", "a number of GPUs"]),
        ("1\n2", ["'1\\n2'", "a number of GPUs"]),
    ],
    ids=lambda value: "huge" if isinstance(value, int) and value > 10**9 else repr(value)[:20],
)
def test_a_number_of_gpus(value: Any, words: list[str]) -> None:
    errors = errors_of(spoiled(*QUOTA, "guarantee", value=value))
    assert list(errors) == [f"{QUOTA_TEXT}.guarantee"]
    for word in words:
        assert word in errors[f"{QUOTA_TEXT}.guarantee"]
    assert len(errors[f"{QUOTA_TEXT}.guarantee"]) < 250


NOT_TEXT = "write text"
CASES: list[tuple[tuple[str | int, ...], Any, str, list[str]]] = [
    # where, value, path in the message, words in the message
    (("version",), 2, "version", ["is 2", "version 1"]),
    (("version",), True, "version", ["is true", "version 1"]),
    (("version",), "1", "version", ["'1'", "version 1"]),
    (("currency",), 5, "currency", ["is 5", "text in quotes: '5'"]),
    (("currency",), "", "currency", ["is empty"]),
    (("overcommit",), "yes", "overcommit", ["'yes'", "true or false"]),
    (("overcommit",), 1, "overcommit", ["is 1", "true or false"]),
    (("admins",), "user:ann", "admins", ["'user:ann'", "a list", "[user:ann]"]),
    (("admins",), ["ann"], "admins[0]", ["'ann'", "user:NAME or group:NAME"]),
    (("admins",), ["user:ann", "user:ann"], "admins[1]", ["'user:ann'", "listed twice"]),
    (("tenants",), [], "tenants", ["is a list", "a mapping by name"]),
    (("tenants",), None, "tenants", ["is empty", "{}"]),
    (("tenants", "vision"), None, "tenants.vision", ["is empty", "groups"]),
    (("tenants", "vision"), "x", "tenants.vision", ["'x'", "a mapping with groups"]),
    (("tenants", "vision", "groups"), "vision", "tenants.vision.groups", ["a list", "[vision]"]),
    (("tenants", "vision", "groups", 0), 7, "tenants.vision.groups[0]", ["text in quotes: '7'"]),
    (("tenants", "vision", "groups", 0), "a\nb", "tenants.vision.groups[0]", ["control"]),
    (("tenants", "vision", "groups", 0), " a", "tenants.vision.groups[0]", ["spaces around"]),
    (("tenants", "vision", "groups", 0), "a" * 300, "tenants.vision.groups[0]", ["at most 255"]),
    (("tenants", "vision", "owners"), ["root:x"], "tenants.vision.owners[0]", ["user:NAME"]),
    (("tenants", "vision", "limits"), {"queued_per_user": -1},
     "tenants.vision.limits.queued_per_user", ["is -1", "from 0 to 1,000,000"]),
    (("tenants", "vision", "limits"), {"queued_per_user": 1.5},
     "tenants.vision.limits.queued_per_user", ["is 1.5", "whole number or unlimited"]),
    (("tenants", "vision", "limits"), {"queued_per_user": 10**30},
     "tenants.vision.limits.queued_per_user", ["1,000,000"]),
    (("tenants", "vision", "budget"), {}, "tenants.vision.budget.gpu_hours", ["is missing"]),
    (("tenants", "vision", "budget"), {"gpu_hours": 1, "per": "year"},
     "tenants.vision.budget.per", ["'year'", "day, week or month"]),
    ((*QUOTA, "flavor"), "h100", f"{QUOTA_TEXT}.flavor", ["'h100'", "did you mean 'a100'?"]),
    ((*QUOTA, "flavor"), 5, f"{QUOTA_TEXT}.flavor", ["is 5", "text in quotes: '5'"]),
    ((*QUOTA, "pool"), "gpu", f"{QUOTA_TEXT}.pool", ["'gpu'", "interactive or training"]),
    ((*QUOTA, "ceiling"), 3, f"{QUOTA_TEXT}.ceiling", ["is 3", "guarantee of 4", "4 or more"]),
    ((*QUOTA, "lend"), 5, f"{QUOTA_TEXT}.lend", ["is 5", "guarantee of 4", "4 or less"]),
    (QUOTA, {"pool": "training"}, f"{QUOTA_TEXT}.flavor", ["is missing", "text"]),
    (QUOTA, {"flavor": "a100"}, f"{QUOTA_TEXT}.pool", ["is missing", "interactive or training"]),
    (QUOTA, 4, QUOTA_TEXT, ["is 4", "a mapping with pool, flavor"]),
    (("flavors", "a100", "model"), "A100(", "flavors.a100.model",
     ["'A100('", "not a regular expression", "A100.*80GB"]),
    (("flavors", "a100", "model"), "(a+)+$", "flavors.a100.model", ["repeats a group"]),
    (("flavors", "a100", "model"), "(a|a)*$", "flavors.a100.model", ["repeats a group"]),
    (("flavors", "a100", "model"), r"(A)\1", "flavors.a100.model", ["refers back"]),
    (("flavors", "a100", "model"), ".*" * 9, "flavors.a100.model", ["more than 4 open repeats"]),
    (("flavors", "a100", "model"), "A" * 201, "flavors.a100.model", ["at most 200"]),
    (("flavors", "a100", "model"), "", "flavors.a100.model", ["is empty", "'.' for any"]),
    (("flavors", "a100", "memory"), "80", "flavors.a100.memory", ["'80'", "80GiB"]),
    (("flavors", "a100", "memory"), 0, "flavors.a100.memory", ["is 0", "leave it out"]),
    (("flavors", "a100", "rate"), -1, "flavors.a100.rate", ["-1", "12.5"]),
    (("flavors", "a100", "rate"), True, "flavors.a100.rate", ["is true", "12.5"]),
    (("flavors", "a100", "sharing"), {"mode": "mps", "share": 0},
     "flavors.a100.sharing.share", ["is 0", "above 0 and at most 1"]),
    (("flavors", "a100", "sharing"), {"mode": "mps", "share": 1.5},
     "flavors.a100.sharing.share", ["is 1.5", "above 0 and at most 1"]),
    (("flavors", "a100", "sharing"), {"mode": "half", "share": 0.5},
     "flavors.a100.sharing.mode", ["'half'", "time-slice, mig or mps"]),
    (("flavors", "a100", "sharing"), "mps", "flavors.a100.sharing", ["'mps'", "or off"]),
    (("pools",), {}, "pools", ["has no pool", "leave it out"]),
    (("pools", "training", "nodes"), {"zone": 1}, "pools.training.nodes.zone", [NOT_TEXT, "'1'"]),
    (("classes",), {}, "classes", ["has no class"]),
    (("classes", "notebook", "kind"), "Batch", "classes.notebook.kind", ["'Batch'", "batch or"]),
    (("classes", "notebook", "priority"), 10**30, "classes.notebook.priority", ["1,000,000"]),
    (("classes", "notebook", "priority"), True, "classes.notebook.priority", ["whole number"]),
    (("classes", "notebook", "priority"), 1.5, "classes.notebook.priority", ["whole number"]),
    (("classes", "notebook", "borrow"), "no", "classes.notebook.borrow", ["true, false or"]),
    (("classes", "notebook", "interruptible"), False, "classes.notebook.interruptible",
     ["is false", "no, checkpoint or stateless"]),
    (("classes", "notebook", "duration"), {"default": "13h"}, "classes.notebook.duration",
     ["default of 13h", "max of 12h"]),
    (("classes", "notebook", "duration"), {"default": "4 hours"},
     "classes.notebook.duration.default", ["'4 hours'", "4h"]),
    (("classes", "notebook", "duration"), {"max": "9999d"}, "classes.notebook.duration.max",
     ["'9999d'", "3660 days"]),
    (("classes", "notebook", "objective"), {"start_within": "5m", "share": 0},
     "classes.notebook.objective.share", ["is 0", "above 0 and at most 1"]),
    (("classes", "notebook", "objective"), {"start_within": "5m", "share": float("nan")},
     "classes.notebook.objective.share", ["nan", "above 0 and at most 1"]),
    (("classes", "notebook", "approval"), {"by": []}, "classes.notebook.approval.by", ["nobody"]),
    (("classes", "notebook", "approval"), {"by": ["x"]}, "classes.notebook.approval.by[0]",
     ["user:NAME or group:NAME"]),
    (("classes", "notebook", "approval"), {"by": ["user:x"], "running_at_once": 0},
     "classes.notebook.approval.running_at_once", ["is 0", "from 1"]),
    (("classes", "training", "preempts"), ["notebook"], "classes.training.preempts[0]",
     ["priority 100", "lower priority"]),
    (("classes", "notebook", "preempts"), ["trainng"], "classes.notebook.preempts[0]",
     ["did you mean 'training'?"]),
    (("borrowing",), {"renewals": -1}, "borrowing.renewals", ["is -1", "from 0"]),
    (("borrowing",), {"renewals": True}, "borrowing.renewals", ["is true", "whole number"]),
    (("reclaim",), [], "reclaim", ["has no rule", "without 'when'"]),
    (("reclaim",), {}, "reclaim", ["is a mapping", "a list"]),
    (("reclaim",), [{"when": {"class": "notebook"}}], "reclaim[0].when",
     ["last rule", "without 'when'"]),
    (("reclaim", 0, "when"), {"class": "notebok"}, "reclaim[0].when.class",
     ["'notebok'", "did you mean 'notebook'?"]),
    (("reclaim", 0, "when"), {"flavor": "b200"}, "reclaim[0].when.flavor", ["a100 or l40s"]),
    (("reclaim", 0, "when"), {"tenant": "visoin"}, "reclaim[0].when.tenant", ["'vision'?"]),
    (("reclaim", 0, "keep"), {"times": -1}, "reclaim[0].keep.times", ["is -1", "from 0"]),
    (("reclaim", 0, "confirm"), True, "reclaim[0].confirm", ["none, owner or admin"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "value", "path", "words"), CASES, ids=lambda value: repr(value)[:40]
)
def test_a_wrong_value(
    where: tuple[str | int, ...], value: Any, path: str, words: list[str]
) -> None:
    errors = errors_of(spoiled(*where, value=value))
    assert path in errors
    for word in words:
        assert word in errors[path]


@pytest.mark.parametrize("section", ["tenants", "pools", "flavors", "classes"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "an empty name"),
        ("unassigned", "kept for"),
        ("Unassigned", "kept for"),
        ("a/b", "holds '/'"),
        ("../x", "holds '/'"),
        ("a\nb", "holds '\\n'"),
        ("a\x00b", "holds '\\x00'"),
        ("a\u202eb", "holds '\\u202e'"),
        ("<b>x</b>", "holds '<'"),
        ('a"b', "holds '\"'"),
        ("a'b", "holds '''"),
        ("a;b", "holds ';'"),
        ("a" * 65, "at most 64"),
        (" a", "does not start with a letter"),
        ("-a", "does not start with a letter"),
        ("a  b", "a space too many"),
        ("A\u030a", "NFC"),
    ],
)
def test_a_name_that_could_be_taken_for_something_else(section: str, name: str, words: str) -> None:
    value = {"flavors": {"model": "x"}}.get(section, {})
    found = errors_of(spoiled(section, name, value=value))
    assert len(found) == 1
    path, message = next(iter(found.items()))
    assert path.startswith(section)
    assert path.isprintable()
    assert words in message


@pytest.mark.parametrize("name", ["视觉", "Größe", "a100-80g", "team 7", "विज्ञान", "x_y.z+1"])
def test_a_name_in_any_script_is_fine(name: str) -> None:
    tenant = {"groups": [name], "quotas": GOOD["tenants"]["nlp"]["quotas"]}
    assert name in load_policy(spoiled("tenants", name, value=tenant)).policy.tenants


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        (("reclaim", 0, "idle_after"), "'off' to switch it off"),
        (("reclaim", 0, "unused_after"), "'off' to switch it off"),
        (("reclaim", 0, "keep", "for"), "'times: 0'"),
        (("borrowing", "term"), "'renewals: 0'"),
        (("tenants", "vision", "borrowing", "term"), "'renewals: 0'"),
        (("classes", "notebook", "borrowing", "term"), "'renewals: 0'"),
        (("classes", "notebook", "duration", "default"), "leave it out"),
        (("classes", "notebook", "claim_window"), "leave it out"),
        (("classes", "notebook", "prepare_within"), "leave it out"),
        (("classes", "notebook", "parked_for"), "leave it out"),
        (("classes", "notebook", "max_wait"), "'off' for no bound"),
        (("classes", "notebook", "objective", "start_within"), "'objective: off'"),
        (("ordering", "age_step"), "leave it out"),
        (("ages", "report"), "leave it out"),
        (("ages", "reading"), "leave it out"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("zero", [0, "0s", "0d"])
def test_a_zero_duration_without_meaning(
    where: tuple[str | int, ...], hint: str, zero: object
) -> None:
    errors = errors_of(spoiled(*where, value=zero))
    message = next(text for path, text in errors.items() if path.endswith(str(where[-1])))
    assert "is 0" in message
    assert hint in message


def test_a_quota_given_twice() -> None:
    quota = GOOD["tenants"]["vision"]["quotas"][0]
    errors = errors_of(spoiled("tenants", "vision", "quotas", value=[quota, quota]))
    assert "second quota for 'a100' in pool 'interactive'" in errors["tenants.vision.quotas[1]"]
    assert "keep one" in errors["tenants.vision.quotas[1]"]


@pytest.mark.parametrize("source", ["just text", "[1, 2]", "7", "policy.yaml"])
def test_a_document_that_is_no_mapping(source: str) -> None:
    assert "start with 'version: 1'" in errors_of(source)[""]


def test_a_path_given_as_text_is_explained() -> None:
    assert "to read a file pass its path" in errors_of("policy.yaml")[""]


def test_a_policy_without_version() -> None:
    assert errors_of("flavors: {}") == {"version": "is missing; write 'version: 1'"}


def test_errors_have_the_line_and_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "version: 1\ntenants:\n  a:\n    quotas:\n      - flavor: x\n        lend: -1\n"
    )
    with pytest.raises(PolicyError) as caught:
        load_policy(file)
    assert {error["line"] for error in caught.value.errors} == {5, 6}
    assert f"{file}:6: tenants.a.quotas[0].lend: -1 is not" in str(caught.value)


def test_one_mistake_does_not_bring_others_with_it() -> None:
    assert list(errors_of(spoiled(*QUOTA, "guarantee", value="x"))) == [f"{QUOTA_TEXT}.guarantee"]
    assert list(errors_of(spoiled("flavors", value=3))) == ["flavors"]
    assert list(errors_of(spoiled("classes", value="x"))) == ["classes"]


def test_the_error_survives_being_sent_to_another_process() -> None:
    import pickle

    with pytest.raises(PolicyError) as caught:
        load_policy({"version": 3})
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - what this test has written
    assert again.errors == caught.value.errors
    assert str(again) == str(caught.value)


def test_a_flood_of_errors_is_cut_and_quick() -> None:
    tenants = {f"t{n}": {"nothing": n} for n in range(5000)}
    with pytest.raises(PolicyError) as caught:
        load_policy(spoiled("tenants", value=tenants))
    assert len(caught.value.errors) == 201
    assert caught.value.errors[-1]["message"] == "and 4,800 more errors"
