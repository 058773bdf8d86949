"""What is counted, for Prometheus. Worked out when asked for; no user is named in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .site import Site

PHASES = ("starting", "standby", "reconciling", "ready", "failed", "stopping")


class _State(Collector):
    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterator[Metric]:
        service = self._site.service
        phase = GaugeMetricFamily("allotment_phase", "Phase of the governor", labels=["phase"])
        for name in PHASES:
            phase.add_metric([name], float(service.phase == name))
        yield phase
        requests = CounterMetricFamily(
            "allotment_requests", "Requests by how they began; refusals are no failures",
            labels=["outcome"],
        )  # fmt: skip
        for outcome, count in sorted(service.outcomes.items()):
            requests.add_metric([outcome], count)
        yield requests
        if service.life is not None:
            yield from self._rows()

    def _rows(self) -> Iterator[Metric]:
        life = self._site.service.life
        if life is None:
            return
        state = life.governor.state
        waiting = GaugeMetricFamily(
            "allotment_requests_live",
            "Requests that are not over",
            labels=["tenant", "class", "state"],
        )
        rows = Counter((r.tenant, r.class_, r.state) for r in state.requests.values())
        for key, count in sorted(rows.items()):
            waiting.add_metric(list(key), count)
        yield waiting
        leases = GaugeMetricFamily(
            "allotment_leases", "Live leases", labels=["tenant", "pool", "flavor", "state", "basis"]
        )
        gpus = GaugeMetricFamily(
            "allotment_gpus_held",
            "GPUs of live leases",
            labels=["tenant", "pool", "flavor", "basis"],
        )
        held: Counter[tuple[str, str, str, str]] = Counter()
        counted: Counter[tuple[str, str, str, str, str]] = Counter()
        for lease in state.leases.values():
            counted[lease.tenant, lease.pool, lease.flavor, lease.state, lease.basis] += 1
            held[lease.tenant, lease.pool, lease.flavor, lease.basis] += lease.gpus
        for lease_key, count in sorted(counted.items()):
            leases.add_metric(list(lease_key), count)
        for gpu_key, amount in sorted(held.items()):
            gpus.add_metric(list(gpu_key), amount / 1000)
        yield leases
        yield gpus
        starting, queued, stopping = life.actor.busy
        acts = GaugeMetricFamily("allotment_acts", "Servers being acted on", labels=["act"])
        for name, number in (("starting", starting), ("waiting", queued), ("stopping", stopping)):
            acts.add_metric([name], number)
        yield acts
        yield GaugeMetricFamily("allotment_streams", "Open event streams", value=len(life.feed))
        yield GaugeMetricFamily(
            "allotment_unmanaged", "Servers that run for no live lease",
            value=len(life.reconciler.unmanaged),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "allotment_policy_version", "Version of the policy in force", value=state.version.number
        )


def render(site: Site) -> bytes:
    """The metrics as text."""
    registry = CollectorRegistry()
    registry.register(_State(site))
    text: bytes = generate_latest(registry)
    return text
