"""The lease on Kubernetes: in the pod's manifest, checked last of all, read back from the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from traitlets import Bool, Dict, Unicode, default

from allotment_hub.gateapi import HeldLease, server_label

from .environment import OURS
from .mixin import Governed
from .sight import Sight

LABEL = "allotment.jupyter.org"
HOSTNAME = "kubernetes.io/hostname"
HIDDEN_ENV = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


class GovernedPod(Governed):
    """What governs KubeSpawner beside :class:`~.mixin.Governed`."""

    gpu_resource = Unicode(
        "nvidia.com/gpu", help="""Extended resource that stands for one device of a lease."""
    ).tag(config=True)

    gpu_resources = Unicode(
        r"^(nvidia\.com|amd\.com|intel\.com|gpu\.intel\.com|habana\.ai|aliyun\.com|volcano\.sh)/",
        help="""Regular expression of the extended resources that count as GPUs: no pod may have
        any of them beyond its lease.""",
    ).tag(config=True)

    flavors = Dict(
        help="""How a flavor is had on this cluster, by its name:
        `{resource: ..., node_selector: {...}, tolerations: [...]}`; all optional.""",
    ).tag(config=True)

    pin_node = Bool(
        True, help="""Bind the pod to the node of its lease, where the lease names one."""
    ).tag(config=True)

    @default("device_environment")
    def _default_device_environment(self) -> str:
        return "plugin"

    # -- the manifest ------------------------------------------------------------------------

    async def get_pod_manifest(self) -> Any:
        """The wrapped class's manifest with the lease applied."""
        pod = await super().get_pod_manifest()  # type: ignore[misc]  # of the wrapped class
        lease = self._lease if self._parting is None else None
        self._label(pod, lease)
        if lease is not None:
            self._apply(pod, lease)
        return pod

    async def _make_create_pod_request(self, pod: Any, request_timeout: Any) -> Any:
        """Check the final manifest: profiles and hooks have had their say by now."""
        self.check_pod(pod)
        return await super()._make_create_pod_request(pod, request_timeout)  # type: ignore[misc]  # of the wrapped class

    def _label(self, pod: Any, lease: HeldLease | None) -> None:
        labels = {**(pod.metadata.labels or {}), **self.lease_labels}
        labels[f"{LABEL}/server"] = server_label(self.user.name, self.name)
        if lease is not None:
            labels[f"{LABEL}/lease"] = lease.id
            labels[f"{LABEL}/fence"] = str(lease.fence)
        pod.metadata.labels = labels

    def _apply(self, pod: Any, lease: HeldLease) -> None:
        flavor = self.flavors.get(lease.flavor, {})
        resource = flavor.get("resource", self.gpu_resource)
        count = str(len(lease.devices))
        resources = _notebook(pod).resources
        resources.limits = {**(resources.limits or {}), resource: count}
        resources.requests = {**(resources.requests or {}), resource: count}
        selector = {**(pod.spec.node_selector or {}), **flavor.get("node_selector", {})}
        nodes = {device.node for device in lease.devices}
        if self.pin_node and len(nodes) == 1:
            selector[HOSTNAME] = nodes.pop()
        pod.spec.node_selector = selector or None
        extra = list(flavor.get("tolerations", ()))
        pod.spec.tolerations = [*(pod.spec.tolerations or ()), *extra] or None

    def check_pod(self, pod: Any) -> None:
        """Refuse a manifest that takes more than the lease gives, or says something else of it.

        Raises
        ------
        StartRefused
        """
        lease = self._lease if self._parting is None else None
        allowed = {} if lease is None else {self._resource_of(lease): len(lease.devices)}
        for name, amount in _gpus(pod, re.compile(self.gpu_resources)).items():
            if amount > allowed.get(name, 0):
                raise self._refused(
                    f"This session's profile asks for {amount} of {name}, its lease is for "
                    f"{allowed.get(name, 0)}. Ask for GPUs in the GPU fields instead.",
                    "more-than-leased", 403,
                )  # fmt: skip
        if getattr(pod.spec, "resource_claims", None):
            raise self._refused(
                "This session's profile has resource claims, which could hold GPUs outside its "
                "lease.", "more-than-leased", 403,
            )  # fmt: skip
        ours = self.lease_environment()
        for container in _containers(pod):
            for variable in container.env or ():
                name = variable.name
                if name in (*HIDDEN_ENV, *OURS) and variable.value != ours.get(name):
                    raise self._refused(
                        f"This session's profile sets {name}, which only its lease may set.",
                        "more-than-leased", 403,
                    )  # fmt: skip

    def _resource_of(self, lease: HeldLease) -> str:
        return str(self.flavors.get(lease.flavor, {}).get("resource", self.gpu_resource))

    # -- reading back ------------------------------------------------------------------------

    async def second_source(self, code: int) -> tuple[Sight, str] | None:
        """Ask the API itself: the watch that ``poll()`` reads may be old or still empty."""
        try:
            pod = await self.api.read_namespaced_pod(self.pod_name, self.namespace)  # type: ignore[attr-defined]  # of KubeSpawner
        except Exception as error:  # the client raises its own, aiohttp's and asyncio's errors
            if getattr(error, "status", None) == 404:
                return Sight.ABSENT, "api"
            return Sight.UNKNOWN, ""
        if pod.status.phase in ("Succeeded", "Failed"):
            return Sight.ABSENT, "api"
        ended = any(
            status.name == "notebook" and status.state.terminated is not None
            for status in pod.status.container_statuses or ()
        )
        # A sidecar may outlive the server; the devices stay with the pod until it is gone.
        return (Sight.ENDED if ended else Sight.RUNNING), ""


def _containers(pod: Any) -> Iterator[Any]:
    yield from pod.spec.containers
    yield from pod.spec.init_containers or ()


def _notebook(pod: Any) -> Any:
    return next((c for c in pod.spec.containers if c.name == "notebook"), pod.spec.containers[0])


def _amounts(container: Any) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    both = [resources.limits or {}, resources.requests or {}]
    names = {name for part in both for name in part}
    return {name: max(_whole(part.get(name, 0)) for part in both) for name in names if "/" in name}


def _whole(value: Any) -> int:
    """Read an extended resource's amount; what is not a plain number counts as too much."""
    text = str(value)
    return int(text) if text.isdigit() and len(text) < 10 else 10**9


def _gpus(pod: Any, pattern: re.Pattern[str]) -> dict[str, int]:
    """Sum the GPUs of a pod as the scheduler does: containers add up, init containers overlap."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in _amounts(container).items():
            total[name] = total.get(name, 0) + amount
    for container in pod.spec.init_containers or ():
        for name, amount in _amounts(container).items():
            total[name] = max(total.get(name, 0), amount)
    return {name: amount for name, amount in total.items() if pattern.search(name)}
