"""B3: how much of a cluster of 6,212 GPUs is given out before nothing fits any more.

The public task list with parts of GPUs, processors and memory, on 1,213 nodes. Tasks come in a
random order (ten seeds), again and again, until they have asked for as many GPUs as there are.
None ends. What does not fit when it comes is turned away. Tasks without GPUs are not queued by the
governor; they take processors and memory where the fewest GPUs are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from random import Random

from allotment_hub.domain import commands
from allotment_hub.domain.admission import decide
from allotment_hub.domain.policy import Flavor, Limits, Policy, Quota, Sharing, Tenant, WorkClass
from allotment_hub.domain.state import State
from allotment_hub.simulate.traces_public import Pod, load_fgd_nodes, load_fgd_pods

from .common import figure, traces

SEEDS = range(42, 52)
ROWS = {"Random": 86.30, "DotProd": 90.62, "Clustering": 91.65, "Packing": 91.78,
        "BestFit": 92.86, "FGD": 95.23}  # fmt: skip


def policy_of(gpus: int) -> Policy:
    """One team that owns everything; devices are given out in hundredths."""
    quota = Quota(flavor="gpu", guarantee=gpus * 1000, ceiling=gpus * 1000)
    return Policy(
        flavors={"gpu": Flavor(model=".", sharing=Sharing(mode="time-slice", share=10))},
        tenants={
            "all": Tenant(groups=("all",), quotas=(quota,), limits=Limits(queued_per_user=None))
        },
        classes={"task": WorkClass(kind="batch", interruptible="no")},
    )


def order_of(pods: list[Pod], demand: int, seed: int) -> list[Pod]:
    """The tasks in the order of a seed, some again, until they ask for so many milli-GPUs."""
    chance = Random(seed)
    order = chance.sample(pods, len(pods))
    while sum(pod.devices * pod.per_device for pod in order) < demand:
        order += chance.choices(pods, k=50)
    total = 0
    for at, pod in enumerate(order):
        total += pod.devices * pod.per_device
        if total >= demand:
            return order[: at + 1]
    return order


class Cluster:
    """The nodes, and the tasks on them."""

    def __init__(self, placement: str) -> None:
        folder = traces() / "alibaba_fgd_2023"
        nodes = load_fgd_nodes(folder / "openb_node_list_gpu_node.csv.gz")
        self.gpus = sum(len(node.devices) for node in nodes)
        self.state = State()
        self.state.placement = placement
        commands.set_policy(self.state, 0, policy_of(self.gpus), "bench")
        commands.set_nodes(self.state, 0, nodes)
        self.stock = self.state.stocks["", "gpu"]
        self.given = 0
        self.now = 0

    def take(self, pod: Pod) -> None:
        """One task comes, and stays if it fits."""
        self.now += 1000
        if not pod.devices:
            self._without_gpus(pod)
            return
        wants = {
            "gpus": pod.devices * pod.per_device, "devices": pod.devices, "flavor": "gpu",
            "cpus": pod.cpus, "memory": pod.memory,
        }  # fmt: skip
        name = f"task-{self.now}"
        commands.submit(
            self.state, self.now, id=name, kind="job", user="all", groups=["all"], wants=wants
        )
        decide(self.state, self.now)
        request = self.state.requests.get(name)
        if request is not None and request.lease is not None:
            commands.started(self.state, self.now, request.lease)
            self.given += request.ask.gpus
        elif request is not None:
            commands.cancel(self.state, self.now, name, "bench")
        self.state.take_journal()

    def _without_gpus(self, pod: Pod) -> None:
        fits = []
        for name, shelf in self.stock.shelves.items():
            cpus, memory = self.state.host_used.get(name, (0, 0))
            node = shelf.node
            left = (node.cpus or 0) - cpus - pod.cpus
            if left >= 0 and memory + pod.memory <= (node.memory or 0):
                free = len(shelf.free) * 1000 + sum(shelf.part.values())
                fits.append((free, left, name, cpus, memory))
        if fits:
            _, _, name, cpus, memory = min(fits)
            self.state.host_used[name] = (cpus + pod.cpus, memory + pod.memory)
            self.stock.changed.add(name)


def allocation(placement: str, seed: int, share: float) -> float:
    """Per cent of all GPUs that are given out at a demand of ``share`` of them."""
    cluster = Cluster(placement)
    pods = load_fgd_pods(traces() / "alibaba_fgd_2023" / "openb_pod_list_default.csv.gz")
    for pod in order_of(pods, round(cluster.gpus * 1000 * share), seed):
        cluster.take(pod)
    return cluster.given / cluster.gpus / 10


def run(scale: float) -> Iterator[Mapping[str, object]]:
    """The mean over the seeds for both rules of placement; a scale takes fewer seeds."""
    seeds = list(SEEDS)[: max(1, round(len(SEEDS) * scale))]
    for placement, least in (("fragmentation-gradient", "FGD"), ("best-fit", "BestFit")):
        with ProcessPoolExecutor(2) as pool:
            work = [(placement, seed, 1.0) for seed in seeds]
            found = list(pool.map(allocation, *zip(*work, strict=True)))
        mean = sum(found) / len(found)
        yield figure(
            f"allocation_pct@{placement}", round(mean, 2), ROWS[least], at_least=ROWS["BestFit"],
            stretch=ROWS["FGD"], lowest=round(min(found), 2), rows=ROWS, seeds=len(seeds),
        )  # fmt: skip
