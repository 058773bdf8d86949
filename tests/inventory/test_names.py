from __future__ import annotations

import pytest

from allotment_hub.domain.inventory import Device, Node
from allotment_hub.inventory import devices_of_session, is_mig, match_devices, resolve_visible

GPU = "GPU-2ac434d3-1aca-57a0-597d-1d2effdba9f3"
SLICE = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"
OLD = f"MIG-{GPU}/1/0"


def gpu(uuid: str, index: int, model: str = "H100") -> Device:
    return Device(uuid=uuid, index=index, model=model, memory=80)


SMALL, LARGE = gpu("GPU-small", 0, "L40S"), gpu("GPU-large", 1)
SLICES = [Device(uuid=SLICE, index=0, model="A100", memory=10, mig_profile="1g.10gb")]


@pytest.mark.parametrize("name", [SLICE, OLD])
def test_gpu_17_a_mig_name_is_no_number_and_means_its_slice(name: str) -> None:
    assert is_mig(name)
    assert resolve_visible(name, SLICES, aliases={OLD: SLICE}).devices == (SLICE,)


def test_gpu_17_a_number_does_not_name_a_slice() -> None:
    visible = resolve_visible("0", SLICES, order="PCI_BUS_ID")
    assert visible.devices == ()
    assert "MIG" in visible.unknown


@pytest.mark.parametrize("name", [GPU, "0", "", "MIG-", "MIG-GPU-x/1/0", f"{OLD}/7", "MIG-1/2/3"])
def test_other_names_are_not_mig_names(name: str) -> None:
    assert not is_mig(name)


def test_gpu_14_a_number_is_unknown_on_a_mixed_machine_without_an_order() -> None:
    assert resolve_visible("0", [SMALL, LARGE]).unknown
    assert resolve_visible("1", [SMALL, LARGE], order="PCI_BUS_ID").devices == ("GPU-large",)
    assert resolve_visible("1", [gpu("a", 0), gpu("b", 1)]).devices == ("b",)


def test_gpu_18_the_record_outranks_the_environment() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    devices = [SMALL, gpu("GPU-4", 4)]
    assert devices_of_session(["GPU-4"], environment, devices).devices == ("GPU-4",)
    assert devices_of_session([OLD], {}, SLICES, {OLD: SLICE}).devices == (SLICE,)
    assert devices_of_session([], environment, [SMALL]).devices == ("GPU-small",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("GPU-small", "GPU-large")),
        ("", ()),
        ("NoDevFiles", ()),
        ("GPU-large,GPU-small", ("GPU-large", "GPU-small")),
        (" GPU-large , GPU-large", ("GPU-large",)),
        ("GPU-large,nonsense,GPU-small", ("GPU-large",)),
        ("GPU-l", ("GPU-large",)),
        ("GPU-", ()),
        ("9" * 40, ()),
        ("-1", ()),
        ("GPU-large\nGPU-small", ()),
    ],
)
def test_visible_devices(value: str | None, expected: tuple[str, ...]) -> None:
    assert resolve_visible(value, [SMALL, LARGE]).devices == expected


def test_gpu_15_a_stored_device_is_found_by_its_uuid_or_is_gone() -> None:
    after = [Node(name="n", devices=(gpu("Y", 0), gpu("X", 1)))]
    matched = match_devices(["X", "Z"], after)
    assert matched.present["X"][1].index == 1
    assert "Y" not in matched.present
    assert matched.gone == ("Z",)


def test_gpu_15_a_slice_is_found_under_its_new_name() -> None:
    matched = match_devices([OLD], [Node(name="n", devices=tuple(SLICES))], {OLD: SLICE})
    assert matched.present[OLD][1].uuid == SLICE
