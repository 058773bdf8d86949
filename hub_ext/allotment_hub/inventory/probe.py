"""Asks the driver, in a process of its own, and answers in plain JSON values.

Every call may fail for itself: the answer then holds the driver's code and text in place of the
value. Nothing is concluded here; see :mod:`.observe`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pynvml

from .codes import NO_DATA, NOT_SUPPORTED

Answer = dict[str, Any]
Touch = Callable[[int], None]

NOT_AVAILABLE = 1 << 60
"""No device has this much memory. The driver's "not available" marker is 2**64 - 1."""

MARKER_TEXT = "the driver says 'not available'"


def look(
    *,
    slow: bool,
    skip: Collection[int],
    known: Collection[str],
    since: Mapping[str, int],
    touch: Touch,
) -> Answer:
    """Read all devices.

    Parameters
    ----------
    slow
        Also the processes and the links, which cost milliseconds and hold the driver's lock.
    skip
        Numbers of devices not to touch, because the last look ended at them.
    known
        UUIDs to ask for by name when the list does not show them: a slice whose GPU is closed to
        us, a device that fell off the bus.
    since
        For each UUID, the driver's time stamp of the newest process sample that was seen.
    touch
        Called with the number of each device before it is touched, so that it can be told which
        one a crash or a hang belongs to.
    """
    answer: Answer = {"driver": pynvml.nvmlSystemGetDriverVersion(), "devices": []}
    seen: set[str | None] = set()
    for index in range(pynvml.nvmlDeviceGetCount()):
        if index in skip:
            answer["devices"].append({"index": index, "skipped": True})
            continue
        touch(index)
        for found in _device(index, slow, since):
            answer["devices"].append(found)
            seen |= {found.get("uuid"), found.get("parent")}
    touch(-1)
    for uuid in known:
        if uuid not in seen and not skip:
            answer["devices"].append(_by_uuid(uuid, slow, since))
    return answer


def _device(index: int, slow: bool, since: Mapping[str, int]) -> list[Answer]:
    """A whole GPU, or its MIG slices in its place: the slice is what is given out."""
    whole: Answer = {"index": index, "errors": {}}
    handle = _ask(whole, "handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return [whole]
    whole["uuid"] = _ask(whole, "uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    mode = _ask(whole, "mig", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    unsure = "mig" in whole["errors"] and whole["errors"]["mig"][0] != NOT_SUPPORTED
    if mode or unsure:
        slices = _slices(handle)
        if slices or mode:
            return [
                _values({"index": index, "parent": whole["uuid"], "errors": {}}, each, slow, since)
                for each in slices
            ] or [{**whole, "empty_mig": True}]
    return [_values(whole, handle, slow, since)]


def _slices(handle: Any) -> list[Any]:
    found = []
    # A parent that tells nothing has no slices to show; those known are asked for by UUID.
    with contextlib.suppress(pynvml.NVMLError):
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(pynvml.NVMLError_NotFound):  # places have gaps
                found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return found


def _by_uuid(uuid: str, slow: bool, since: Mapping[str, int]) -> Answer:
    answer: Answer = {"index": None, "uuid": uuid, "errors": {}}
    handle = _ask(answer, "handle", lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid))
    return answer if handle is None else _values(answer, handle, slow, since)


def _values(answer: Answer, handle: Any, slow: bool, since: Mapping[str, int]) -> Answer:
    ask = _ask
    if answer.get("uuid") is None:
        answer["uuid"] = ask(answer, "uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    answer["name"] = ask(answer, "name", lambda: pynvml.nvmlDeviceGetName(handle))
    memory = ask(answer, "memory", lambda: _memory(handle))
    if memory is not None and max(memory) >= NOT_AVAILABLE:
        answer["errors"]["memory"] = [NO_DATA, MARKER_TEXT]
        memory = None
    answer["memory"] = memory
    rates = ask(answer, "utilisation", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    answer["utilisation"] = rates.gpu if rates is not None and rates.gpu <= 100 else None
    if answer.get("parent") or str(answer["uuid"]).startswith("MIG-"):
        _instance(answer, handle)
    else:
        answer["bus"] = ask(answer, "bus", lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)
        if slow:
            answer["links"] = _links(handle)
    if slow:
        answer["processes"] = ask(answer, "processes", lambda: _processes(handle))
        stamp = since.get(str(answer["uuid"]), 0)
        shares = ask(answer, "process_utilisation", lambda: _process_utilisation(handle, stamp))
        answer["shares"], answer["stamp"] = shares if shares is not None else (None, stamp)
    return answer


def _memory(handle: Any) -> list[int]:
    """Total and used bytes. Version 2 does not count as used what the driver reserves."""
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, AttributeError):
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)  # drivers before 510
    return [info.total, info.used]


def _instance(answer: Answer, handle: Any) -> None:
    ask = _ask
    answer["gi"] = ask(answer, "gi", lambda: pynvml.nvmlDeviceGetGpuInstanceId(handle))
    answer["ci"] = ask(answer, "ci", lambda: pynvml.nvmlDeviceGetComputeInstanceId(handle))
    if not answer.get("parent"):
        answer["parent"] = ask(
            answer,
            "parent",
            lambda: pynvml.nvmlDeviceGetUUID(
                pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            ),
        )
    answer["mig"] = True


def _processes(handle: Any) -> list[list[int | None]]:
    """Pid and bytes of each process of the compute and the graphics list, each once."""
    found: dict[int, int | None] = {}
    lists = [pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    # Compute-only devices and slices have no second list; then the first one decides.
    with contextlib.suppress(pynvml.NVMLError):
        lists.append(pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    for process in (process for each in lists for process in each):
        memory = process.usedGpuMemory
        if memory is not None and memory >= NOT_AVAILABLE:
            memory = None
        before = found.get(process.pid)
        found[process.pid] = memory if before is None else max(before, memory or 0)
    return [[pid, memory] for pid, memory in sorted(found.items())]


def _process_utilisation(handle: Any, stamp: int) -> tuple[dict[int, int] | None, int]:
    """Mean percent of each process since ``stamp``, and the newest stamp.

    A process without a sample did nothing in that time. None when there was no time to look back
    on, or no samples at all: then nothing is known.
    """
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, stamp)
    except pynvml.NVMLError as error:
        if error.value in (0, pynvml.NVML_ERROR_NOT_FOUND):  # 0: success with no sample
            return None, stamp
        raise
    values: dict[int, list[int]] = {}
    newest = stamp
    for sample in samples:
        # The driver has been seen to fill unused places with zeros and odd percentages.
        if sample.timeStamp > stamp and sample.smUtil <= 100:
            values.setdefault(sample.pid, []).append(sample.smUtil)
            newest = max(newest, sample.timeStamp)
    if stamp == 0:
        return None, newest
    return {pid: round(sum(each) / len(each)) for pid, each in values.items()}, newest


def _links(handle: Any) -> list[str]:
    found = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found.append("switch")
            else:
                found.append(_text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except pynvml.NVMLError:
            break  # links are numbered without gaps: the first that does not exist ends the list
    return found


def _ask(answer: Answer, what: str, call: Callable[[], Any]) -> Any:
    """The call's value; None with the driver's code and text under ``errors`` when it fails."""
    try:
        value = call()
    except pynvml.NVMLError as error:
        answer["errors"][what] = [error.value, str(error)]
        return None
    except UnicodeDecodeError:
        answer["errors"][what] = [NO_DATA, "the driver's text is not readable"]
        return None
    return _text(value) if isinstance(value, bytes) else value


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
