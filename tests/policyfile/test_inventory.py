"""Declared inventories: what a file means, and what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allotment_hub.policyfile import InventoryError, load_inventory, load_policy

CONTRACT = """
inventory:
  - {node: n1, labels: {pool: interactive}, cpus: 32, memory: 256GiB, driver: "570.86",
     devices: [{model: "NVIDIA A100-SXM4-80GB", memory: 80GiB, count: 4, nvlink: [[0, 1, 2, 3]]}]}
"""


def test_the_notation_of_scenarios() -> None:
    [node] = load_inventory(CONTRACT)
    assert (node.name, node.cpus, node.memory, node.driver) == ("n1", 32_000, 256 << 30, "570.86")
    assert node.labels == {"pool": "interactive"}
    assert [device.uuid for device in node.devices] == [f"GPU-n1-{n}" for n in range(4)]
    assert [device.index for device in node.devices] == [0, 1, 2, 3]
    assert {device.island for device in node.devices} == {0}
    assert node.devices[0].memory == 80 << 30
    assert node.serves


def test_a_bare_list_is_read_too_and_gives_the_same() -> None:
    bare = CONTRACT.replace("inventory:\n", "")
    assert load_inventory(bare) == load_inventory(CONTRACT)


def test_groups_of_one_node_are_numbered_on_and_have_islands_of_their_own() -> None:
    [node] = load_inventory("""
- node: n1
  taints: [maintenance]
  devices:
    - {model: L40S, memory: 48GiB, count: 2}
    - {model: A100, memory: 80GiB, count: 4, nvlink: [[0, 1], [2, 3]]}
    - {model: A100, memory: 20GiB, mig: 2g.20gb, count: 2}
    - {model: H100, memory: 80GiB, uuids: [GPU-real], health: dirty, detail: 3 GiB left}
""")
    assert [device.index for device in node.devices] == list(range(9))
    assert [device.island for device in node.devices] == [None, None, 0, 0, 1, 1, None, None, None]
    assert node.devices[6].uuid == "MIG-n1-6"
    assert node.devices[6].mig_profile == "2g.20gb"
    assert node.devices[8].uuid == "GPU-real"
    assert node.devices[8].health == "dirty"
    assert node.taints == ("maintenance",)


def node_with(**changes: Any) -> list[dict[str, Any]]:
    return [{"node": "n1", "devices": [{"model": "L40S", "memory": "48GiB"}], **changes}]


def group_with(**changes: Any) -> list[dict[str, Any]]:
    return node_with(devices=[{"model": "L40S", "memory": "48GiB", **changes}])


@pytest.mark.parametrize(
    ("source", "path", "words"),
    [
        ("just text", "", ["a list of nodes", "pass its path"]),
        ([], "", ["holds no node", "node: n1"]),
        ({"inventory": []}, "inventory", ["holds no node"]),
        ({"inventory": 4}, "inventory", ["is 4", "a list"]),
        ({"nodes": []}, "nodes", ["is not a known key", "inventory"]),
        ([4], "[0]", ["is 4", "a mapping with node"]),
        ([{}], "[0].node", ["is missing", "text"]),
        (node_with(node="a/b"), "[0].node", ["holds '/'"]),
        (node_with(node="x" * 65), "[0].node", ["at most 64"]),
        (node_with(nod="x"), "[0].nod", ["did you mean 'node'?"]),
        (node_with() + node_with(), "[1].node", ["'n1'", "names must differ"]),
        (node_with(cpus=True), "[0].cpus", ["is true", "a number of CPUs"]),
        (node_with(cpus=-1), "[0].cpus", ["-1", "a number of CPUs"]),
        (node_with(cpus="many"), "[0].cpus", ["'many'", "CPUs"]),
        (node_with(memory="256"), "[0].memory", ["'256'", "80GiB"]),
        (node_with(driver=570.86), "[0].driver", ["is 570.86", "text in quotes: '570.86'"]),
        (node_with(labels={"a": 1}), "[0].labels.a", ["is 1", "text in quotes: '1'"]),
        (node_with(labels={"a": "x\ny"}), "[0].labels.a", ["control"]),
        (node_with(taints="x"), "[0].taints", ["a list", "[x]"]),
        (node_with(taints=[""]), "[0].taints[0]", ["is empty"]),
        (node_with(health="dead"), "[0].health", ["'dead'", "ok, lost or unknown"]),
        (group_with(count=0), "[0].devices[0].count", ["is 0", "1 to 1,024"]),
        (group_with(count=True), "[0].devices[0].count", ["is true", "a whole number"]),
        (group_with(count=10**30), "[0].devices[0].count", ["1 to 1,024"]),
        (group_with(memory=0), "[0].devices[0].memory", ["is 0", "80GiB"]),
        (group_with(memory=float("nan")), "[0].devices[0].memory", ["nan", "80GiB"]),
        (group_with(model=""), "[0].devices[0].model", ["is empty"]),
        (group_with(model="a\x1b[31m"), "[0].devices[0].model", ["control", "\\x1b"]),
        (group_with(count=2, uuids=["a"]), "[0].devices[0].uuids", ["lists 1 for 2 devices"]),
        (group_with(count=2, uuids=["a", "a"]), "[0].devices", ["'a' a second time"]),
        (group_with(count=2, nvlink=[[0, 2]]), "[0].devices[0].nvlink[0][1]", ["is 2", "0 to 1"]),
        (group_with(count=2, nvlink=[[0], [0]]), "[0].devices[0].nvlink[1][0]", ["two islands"]),
        (group_with(count=2, nvlink=[0, 1]), "[0].devices[0].nvlink[0]", ["is 0", "a list"]),
        (group_with(count=2, nvlink=[[True]]), "[0].devices[0].nvlink[0][0]", ["is true"]),
        (node_with(devices=[{"model": "x", "memory": 1, "count": 1000}] * 2), "[0].devices",
         ["more than 1,024 devices"]),
    ],
    ids=lambda value: repr(value)[:50],
)  # fmt: skip
def test_a_bad_inventory(source: Any, path: str, words: list[str]) -> None:
    with pytest.raises(InventoryError) as caught:
        load_inventory(source)
    errors = {str(error["path"]): str(error["message"]) for error in caught.value.errors}
    assert path in errors
    for word in words:
        assert word in errors[path]


def test_an_identity_is_given_to_one_device_in_the_whole_inventory() -> None:
    group = {"model": "L40S", "memory": 1, "uuids": ["GPU-1"]}
    nodes = [{"node": "a", "devices": [group]}, {"node": "b", "devices": [group]}]
    with pytest.raises(InventoryError, match="'GPU-1' a second time"):
        load_inventory(nodes)


def test_all_errors_come_at_once_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("- node: n1\n  cpus: x\n  devices:\n    - model: L40S\n      memory: much\n")
    with pytest.raises(InventoryError) as caught:
        load_inventory(file)
    lines = str(caught.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        f"{file}:2:", f"{file}:5:"
    ]  # fmt: skip


def test_guarantees_of_a_policy_must_fit() -> None:
    policy = load_policy("""
version: 1
flavors: {l40s: {model: L40S}}
tenants: {a: {groups: [a], quotas: [{flavor: l40s, guarantee: 2}]}}
""").policy
    with pytest.raises(InventoryError, match=r"add up to 2 \(a 2\), but the inventory has 1"):
        load_inventory(node_with(), policy)
    assert load_inventory(group_with(count=2), policy)


def test_a_large_inventory_as_json_is_quick_to_read() -> None:
    import json

    group = {"model": "A100", "memory": "80GiB", "count": 8}
    nodes = [{"node": f"n{n}", "devices": [group]} for n in range(1200)]
    assert len(load_inventory(json.dumps(nodes))) == 1200
