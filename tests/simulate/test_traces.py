"""What rows of a trace stand for that say only what they must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.cli import main
from allotment_hub.policyfile import load_policy
from allotment_hub.simulate.traces import read_trace

POLICY: dict[str, Any] = {
    "version": 1,
    "flavors": {"a100": {"model": "A100"}},
    "pools": {"days": {"classes": ["notebook"]}, "nights": {"classes": ["training"]}},
    "tenants": {
        "alpha": {"groups": ["a"], "quotas": [{"pool": "days", "flavor": "a100", "guarantee": 2}]},
        "beta": {"groups": ["b"], "quotas": [{"pool": "nights", "flavor": "a100", "guarantee": 2}]},
    },
    "classes": {"training": {"kind": "batch"}, "notebook": {"kind": "interactive"}},
}
INVENTORY = [{"node": "n1", "devices": [{"model": "A100", "memory": "80GiB", "count": 4}]}]


@pytest.mark.parametrize(
    ("row", "kind", "class_"),
    [
        ("0,10,1,alpha,,", "session", None),
        ("0,10,1,beta,,", "job", None),
        ("0,10,1,beta,notebook,", "session", "notebook"),
        ("0,10,1,alpha,training,", "job", "training"),
        ("0,10,1,alpha,,job", "job", None),
    ],
)
def test_a_row_without_kind_is_what_its_class_or_tenant_is_for(
    row: str, kind: str, class_: str | None
) -> None:
    lines = ["submit_s,duration_s,gpus,tenant,class,kind", row]
    (job,) = read_trace(lines, "t.csv", load_policy(POLICY).policy)
    assert (job.kind, job.class_) == (kind, class_)


def test_the_columns_that_are_needed_are_enough(tmp_path: Path) -> None:
    policy = {**POLICY, "pools": {"days": {}}, "classes": {"notebook": {"kind": "interactive"}}}
    policy["tenants"] = {"alpha": POLICY["tenants"]["alpha"]}
    (tmp_path / "p.yaml").write_text(json.dumps(policy), encoding="utf-8")
    (tmp_path / "i.yaml").write_text(json.dumps(INVENTORY), encoding="utf-8")
    (tmp_path / "t.csv").write_text("submit_s,duration_s,gpus,tenant\n0,60,1,alpha\n", "utf-8")
    files = ["--policy", "p.yaml", "--inventory", "i.yaml", "--trace", "t.csv", "--out", "out"]
    words = [word if word[0] == "-" else str(tmp_path / word) for word in files]
    assert main(["simulate", *words]) == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert found["finished"] == 1
    assert list(found["by_class"]) == ["notebook"]
