"""Kubernetes: the lease in the pod's manifest, and the API as the second source.

KubeSpawner is the real one, with its watch; only the API server behind it is a small one of ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kubernetes_asyncio.client import ApiException
from kubernetes_asyncio.client.models import (
    V1Container,
    V1EnvVar,
    V1PodResourceClaim,
    V1ResourceRequirements,
)
from kubernetes_asyncio.config import kube_config
from kubespawner import KubeSpawner
from kubespawner.clients import load_config, shared_client

from allotment_hub import gateapi
from allotment_hub.gateapi import server_label
from allotment_hub.spawner.refusal import StartRefused
from tests.spawner.test_ending import restart
from tests.support.boxes import Site
from tests.support.gatepeer import GatePeer
from tests.support.kubeapi import KubeApi
from tests.support.until import until

TWO = {"allotment": {"gpus": 2}}


class RealKube(KubeSpawner):
    """KubeSpawner as it is; only that something listens where its pods would."""

    runtime: Any
    reflectors: dict[Any, Any]

    async def listen(self, *_: Any) -> None:
        self.port = await self.runtime.run("box", {})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    api = KubeApi(tmp_path)
    load_config.cache_clear()  # KubeSpawner takes one cluster per process for granted
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(api.config))
    yield api
    api.close()


@pytest.fixture
async def kube(make_site: Callable[..., Site], cluster: KubeApi) -> AsyncIterator[Site]:
    class Here(RealKube):
        reflectors: ClassVar[dict[Any, Any]] = {}

    site = make_site(
        Here, storage_pvc_ensure=False, pre_spawn_hook=lambda s: s.listen(), image="img:1",
        events_enabled=False, k8s_api_host=cluster.url, namespace="default", poll_limit=5,
        k8s_api_request_timeout=2, k8s_api_request_retry_timeout=2, delete_stopped_pods=False,
    )  # fmt: skip
    yield site
    for reflector in site.spawner_class.reflectors.values():
        await reflector.stop()
    await shared_client("CoreV1Api").api_client.close()


def pod_of(cluster: KubeApi) -> Any:
    (pod,) = cluster.pods.values()
    return pod


def notebook(pod: Any) -> Any:
    """The server's container, of a manifest as hooks have it or of one that was sent."""
    if isinstance(pod, dict):
        return next(c for c in pod["spec"]["containers"] if c["name"] == "notebook")
    return next(c for c in pod.spec.containers if c.name == "notebook")


def env_of(pod: Any) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in notebook(pod)["env"]}


def resources_of(pod: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = notebook(pod)["resources"]
    return found


async def test_the_lease_is_in_the_manifest(kube: Site, cluster: KubeApi, peer: GatePeer) -> None:
    section = kube.config[kube.spawner_class.__name__]
    section.node_selector = {"zone": "a"}
    section.extra_resource_limits = {"example.com/licence": "1"}
    section.flavors = {
        "a100": {
            "node_selector": {"gpu": "a100"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        }
    }
    await kube.user("ann").spawn(options=TWO)
    pod = pod_of(cluster)
    resources = resources_of(pod)
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "2"
    assert resources["limits"]["example.com/licence"] == "1"
    assert pod["spec"]["nodeSelector"] == {
        "zone": "a", "gpu": "a100", "kubernetes.io/hostname": "n1",
    }  # fmt: skip
    assert pod["spec"]["tolerations"][-1]["key"] == "gpu"
    labels = pod["metadata"]["labels"]
    assert labels["allotment.jupyter.org/lease"] == "l1"
    assert labels["allotment.jupyter.org/fence"] == "1"
    assert labels["allotment.jupyter.org/server"] == server_label("ann", "")
    env = env_of(pod)
    assert env["ALLOTMENT_LEASE"] == "l1"
    assert "NVIDIA_VISIBLE_DEVICES" not in env  # the device plugin sets it


async def test_a_mig_flavor_asks_for_its_own_resource(
    kube: Site, cluster: KubeApi, peer: GatePeer
) -> None:
    section = kube.config[kube.spawner_class.__name__]
    section.flavors = {"a100": {"resource": "nvidia.com/mig-1g.10gb"}}
    section.pin_node = False
    await kube.user("ann").spawn(options={"allotment": {"gpus": 1}})
    assert resources_of(pod_of(cluster))["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert not pod_of(cluster)["spec"].get("nodeSelector")


async def test_a_session_without_gpus_sees_none(kube: Site, cluster: KubeApi) -> None:
    await kube.user("ann").spawn()
    assert env_of(pod_of(cluster))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not resources_of(pod_of(cluster)).get("limits")


PROFILE = [
    {"display_name": "small", "slug": "small", "default": True},
    {
        "display_name": "big", "slug": "big",
        "kubespawner_override": {"extra_resource_limits": {"nvidia.com/gpu": "8"}},
    },
    {
        "display_name": "sly", "slug": "sly",
        "kubespawner_override": {"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}},
    },
]  # fmt: skip


def hook_limits(_spawner: Any, pod: Any) -> Any:
    notebook(pod).resources.limits = {"nvidia.com/gpu": "3"}
    return pod


def hook_text(_spawner: Any, pod: Any) -> Any:
    notebook(pod).resources.limits = {"nvidia.com/mig-1g.10gb": "1Ki"}
    return pod


def hook_sidecar(_spawner: Any, pod: Any) -> Any:
    resources = V1ResourceRequirements(limits={"amd.com/gpu": 1})
    pod.spec.containers.append(V1Container(name="side", resources=resources))
    return pod


def hook_init(_spawner: Any, pod: Any) -> Any:
    resources = V1ResourceRequirements(limits={"nvidia.com/gpu": "3"})
    pod.spec.init_containers = [V1Container(name="init", resources=resources)]
    return pod


def hook_claim(_spawner: Any, pod: Any) -> Any:
    pod.spec.resource_claims = [V1PodResourceClaim(name="gpu")]
    return pod


def hook_env(_spawner: Any, pod: Any) -> Any:
    notebook(pod).env.append(V1EnvVar(name="CUDA_VISIBLE_DEVICES", value="0,1"))
    return pod


def hook_lease(_spawner: Any, pod: Any) -> Any:
    for variable in notebook(pod).env:
        if variable.name == "ALLOTMENT_LEASE":
            variable.value = "l99"
    return pod


@pytest.mark.parametrize(
    "hook",
    [hook_limits, hook_text, hook_sidecar, hook_init, hook_claim, hook_env, hook_lease],
)
async def test_the_last_word_is_the_leases(
    kube: Site, cluster: KubeApi, peer: GatePeer, hook: Any
) -> None:
    """Hooks run after everything else that could be checked."""
    kube.config[kube.spawner_class.__name__].modify_pod_hook = hook
    with pytest.raises(StartRefused) as caught:
        await kube.user("ann").spawn(options=TWO)
    assert (caught.value.status_code, caught.value.label) == (403, "more-than-leased")
    assert not cluster.pods
    await until(lambda: peer.ended == ["l1"])


@pytest.mark.parametrize("options", [{"profile": "big"}, {"profile": "sly"}], ids=str)
@pytest.mark.parametrize("gpus", [0, 2])
async def test_profiles_by_rest_give_nothing_beyond_the_lease(
    kube: Site, cluster: KubeApi, options: dict[str, Any], gpus: int
) -> None:
    """POLICY-13: with and without a lease, by options that no form offers."""
    kube.config[kube.spawner_class.__name__].profile_list = PROFILE
    if gpus and options["profile"] == "big":
        # The lease's own amount is written over the profile's.
        await kube.user("ann").spawn(options={**options, "allotment": {"gpus": gpus}})
        assert resources_of(pod_of(cluster))["limits"]["nvidia.com/gpu"] == "2"
        return
    if not gpus and options["profile"] == "sly":
        await kube.user("ann").spawn(options=options)
        assert env_of(pod_of(cluster))["NVIDIA_VISIBLE_DEVICES"] == "void"
        return
    with pytest.raises(StartRefused) as caught:
        await kube.user("ann").spawn(options={**options, "allotment": {"gpus": gpus}})
    assert caught.value.label == "more-than-leased"
    assert not cluster.pods


async def test_a_watch_that_forgot_the_pod_is_no_absence(
    kube: Site, cluster: KubeApi, peer: GatePeer
) -> None:
    """SPAWN-05: the API still has the pod."""
    ann = kube.user("ann")
    await ann.spawn(options=TWO)
    cluster.lose()
    await until(lambda: not ann.spawner.pod_reflector.pods)
    assert await ann.spawner.poll() is None
    cluster.fault = 500
    assert await ann.spawner.poll() is None
    assert not peer.names(gateapi.ABSENT)
    cluster.fault = None
    cluster.pods.clear()
    assert await ann.spawner.poll() == 1
    await until(lambda: peer.ended == ["l1"])
    assert peer.names(gateapi.ABSENT)[0]["proof"] == "api"


async def test_a_server_that_ended_beside_a_sidecar_takes_its_pod_along(
    kube: Site, cluster: KubeApi, peer: GatePeer
) -> None:
    ann = kube.user("ann")
    await ann.spawn(options=TWO)
    (name,) = cluster.pods
    cluster.terminate(name, 137)
    ref = f"default/{name}"
    pods = ann.spawner.pod_reflector.pods
    await until(lambda: "terminated" in pods[ref]["status"]["containerStatuses"][0]["state"])
    assert await ann.spawner.poll() == 137
    await until(lambda: peer.ended == ["l1"])
    assert not cluster.pods


async def test_a_pod_that_cannot_be_deleted_holds_its_lease(
    kube: Site, cluster: KubeApi, peer: GatePeer
) -> None:
    """SPAWN-02: reservation and object disappear together."""
    ann = kube.user("ann")
    await ann.spawn(options=TWO)
    cluster.fault = 500
    with pytest.raises(ApiException):
        await ann.stop()
    assert cluster.pods
    assert peer.leases
    cluster.fault = None
    await until(lambda: peer.ended == ["l1"])
    assert not cluster.pods


async def test_the_hub_restarts_with_the_pod_running(
    kube: Site, cluster: KubeApi, peer: GatePeer
) -> None:
    """SPAWN-08, SPAWN-10: pod name and lease are both there again; both are gone after the end."""
    ann = kube.user("ann")
    await ann.spawn(options=TWO)
    again = await restart(kube, "ann")
    assert again.spawner.pod_name in cluster.pods
    assert await again.spawner.poll() is None
    await again.stop()
    await until(lambda: peer.ended == ["l1"])
    row = again.orm_user.orm_spawners[""]
    await until(lambda: "allotment" not in (row.state or {}))
