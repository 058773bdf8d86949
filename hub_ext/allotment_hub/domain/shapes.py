"""From the keys that people write to a tenant, a class and an ask; and what can never start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import quota
from .amounts import MILLI, show_duration, show_gpus
from .cells import Cell
from .checks import interruptible_of, may_borrow
from .inventory import slot_capacity
from .lines import candidate_cells
from .placement import possible
from .policy import Policy
from .reasons import reason
from .requests import Ask, Reason, Request
from .state import State
from .stock import Stock

KIND_OF = {"session": "interactive", "job": "batch", "service": "service"}

FIELDS = frozenset(
    {
        "tenant", "class", "pool", "flavor", "gpus", "devices", "nodes", "min_memory",
        "min_driver", "same_node", "nvlink", "duration", "interruptible", "borrow", "start",
        "cpus", "memory", "tolerations",
    }
)  # fmt: skip
"""The keys of a request (contract.md, 2, and what was added to it)."""


class Refusal(Exception):
    """Input that is wrong in itself or an action that is not possible now.

    ``code`` for programs, ``detail`` says what and what would be right, ``field`` where.
    """

    def __init__(
        self, code: str, detail: str, field: str | None = None, reason: Reason | None = None
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.field, self.reason = code, detail, field, reason


def tenants_of(policy: Policy, groups: Sequence[str]) -> list[str]:
    """The tenants that hub groups make somebody a member of, in the order of the policy."""
    mine = set(groups)
    return [
        name
        for name, tenant in policy.tenants.items()
        if not tenant.disabled and not mine.isdisjoint(tenant.groups)
    ]


def shape_of(
    state: State, kind: str, groups: Sequence[str], wants: Mapping[str, Any]
) -> tuple[str, str, Ask]:
    """(tenant, class, ask) of a request. An empty tenant is one that the user does not have."""
    policy = state.policy
    if kind not in KIND_OF:
        raise Refusal("BadKind", f"kind is {kind!r}; right is session, job or service", "kind")
    unknown = sorted(set(wants) - FIELDS)
    if unknown:
        raise Refusal("UnknownKey", f"{unknown[0]!r} is not a key of a request", unknown[0])
    tenant = _tenant(policy, groups, wants)
    class_ = _class(policy, kind, wants)
    ask = _ask(policy, tenant, wants)
    rule = policy.classes[class_].duration
    if ask.duration is not None and ask.duration > rule.max:
        raise Refusal(
            "DurationTooLong",
            f"asks for {show_duration(ask.duration)}; class {class_} allows at most "
            f"{show_duration(rule.max)}",
            "duration",
        )
    if kind == "session" and (ask.nodes > 1 or not ask.same_node):
        raise Refusal("BadShape", "a session runs on one node; ask for a job instead", "nodes")
    return tenant, class_, ask


def _tenant(policy: Policy, groups: Sequence[str], wants: Mapping[str, Any]) -> str:
    mine = tenants_of(policy, groups)
    asked = wants.get("tenant")
    if asked is not None:
        return asked if asked in mine else ""
    flavor, pool = wants.get("flavor"), wants.get("pool")
    for name in mine:
        if any(
            flavor in (None, q.flavor) and pool in (None, q.pool)
            for q in policy.tenants[name].quotas
        ):
            return name
    return mine[0] if mine else ""


def _class(policy: Policy, kind: str, wants: Mapping[str, Any]) -> str:
    asked = wants.get("class")
    fitting = [name for name, class_ in policy.classes.items() if class_.kind == KIND_OF[kind]]
    if asked is None:
        pool = wants.get("pool")
        for name in fitting:
            if policy.classes[name].approval is None and (
                pool is None or pool in policy.pools_for(name)
            ):
                return name
        raise Refusal("NoClass", f"the policy has no class for a {kind}", "class")
    if asked not in policy.classes:
        known = ", ".join(fitting) or "none"
        raise Refusal("NoSuchClass", f"there is no class {asked!r}; for a {kind}: {known}", "class")
    if asked not in fitting:
        raise Refusal(
            "WrongClass",
            f"class {asked} is for {policy.classes[asked].kind} work, not for a {kind}",
            "class",
        )
    return str(asked)


def _ask(policy: Policy, tenant: str, wants: Mapping[str, Any]) -> Ask:
    fields = {k: v for k, v in wants.items() if k not in ("tenant", "class", "gpus", "devices")}
    gpus, devices = wants.get("gpus"), wants.get("devices")
    nodes = fields.get("nodes", 1)
    flavor = fields.get("flavor")
    if flavor is not None and flavor not in policy.flavors:
        gpus = gpus or (devices or 1) * MILLI
        return Ask(**{**fields, "gpus": gpus, "devices": devices or max(1, -(-gpus // MILLI))})
    share = _share(policy, flavor)
    if devices is not None and gpus is None:
        gpus = devices * share
    if gpus is None or gpus <= 0:
        raise Refusal("NoGpus", "say how many GPUs: gpus is a number above zero", "gpus")
    if devices is None:
        devices = _devices(policy, flavor, gpus)
    if gpus % devices or devices % nodes:
        raise Refusal(
            "BadShape",
            f"{show_gpus(gpus)} GPUs do not divide evenly over {devices} devices on {nodes} nodes",
            "gpus",
        )
    _check_share(policy, flavor, gpus // devices)
    return Ask(**{**fields, "gpus": gpus, "devices": devices})


def _share(policy: Policy, flavor: str | None) -> int:
    sharing = policy.flavors[flavor].sharing if flavor is not None else None
    return sharing.share if sharing is not None else MILLI


def _devices(policy: Policy, flavor: str | None, gpus: int) -> int:
    sharing = policy.flavors[flavor].sharing if flavor is not None else None
    if sharing is not None and sharing.mode == "mig":
        return max(1, gpus // sharing.share)
    return max(1, -(-gpus // MILLI))


def _check_share(policy: Policy, flavor: str | None, per_device: int) -> None:
    share = _share(policy, flavor)
    sharing = policy.flavors[flavor].sharing if flavor is not None else None
    if sharing is None:
        if per_device != MILLI and (flavor is not None or not _any_shared(policy)):
            raise Refusal(
                "BadShape",
                f"{show_gpus(per_device)} of a GPU: these are given out whole, "
                "ask for a whole number",
                "gpus",
            )
    elif per_device % share or (sharing.mode == "mig" and per_device != share):
        raise Refusal(
            "BadShape",
            f"{show_gpus(per_device)} of a GPU: {flavor} is given out in parts of "
            f"{show_gpus(share)}",
            "gpus",
        )


def _any_shared(policy: Policy) -> bool:
    return any(flavor.sharing is not None for flavor in policy.flavors.values())


def refused_for(state: State, request: Request, replaces: Request | None = None) -> Reason | None:
    """Why a request can never start under the present policy and inventory; None if it may."""
    policy, ask = state.policy, request.ask
    if request.tenant not in policy.tenants:
        return reason("NoQuota", "tenants.groups", flavor=ask.flavor, asked=ask.gpus)
    limits = policy.tenants[request.tenant].limits
    waiting = state.queued_by_user.get((request.tenant, request.user), 0)
    if replaces is not None and replaces.state == "queued" and replaces.tenant == request.tenant:
        waiting -= 1
    if limits.queued_per_user is not None and waiting >= limits.queued_per_user:
        return reason(
            "UserLimitReached", f"tenants.{request.tenant}.limits.queued_per_user",
            tenant=request.tenant, detail=f"{waiting} requests wait already",
        )  # fmt: skip
    if limits.gpus_per_user is not None and ask.gpus > limits.gpus_per_user:
        return reason(
            "UserLimitReached", f"tenants.{request.tenant}.limits.gpus_per_user",
            tenant=request.tenant, limit=limits.gpus_per_user, asked=ask.gpus,
        )  # fmt: skip
    if ask.flavor is not None and ask.flavor not in policy.flavors:
        return reason("NoSuchFlavor", "flavors", flavor=ask.flavor, known=tuple(policy.flavors))
    cells = candidate_cells(policy, request)
    if not cells:
        return _no_cell(state, request)
    refusals = []
    for pool, flavor in cells:
        refusal = _refused_in(state, request, state.cell(pool, flavor))
        if refusal is None:
            return None
        refusals.append(refusal)
    return refusals[0]


def _no_cell(state: State, request: Request) -> Reason:
    offered = tuple(
        dict.fromkeys(q.flavor for q in state.policy.tenants[request.tenant].quotas if q.most > 0)
    )
    return reason(
        "NoQuota", f"tenants.{request.tenant}.quotas", tenant=request.tenant,
        flavor=request.ask.flavor, pool=request.ask.pool, asked=request.ask.gpus,
        offered=offered or None, class_=request.class_,
    )  # fmt: skip


def _refused_in(state: State, request: Request, cell: Cell) -> Reason | None:
    ask, where = request.ask, f"{request.tenant}/{cell.pool}/{cell.flavor}"
    share = quota.share_of(state, cell, request.tenant)
    if ask.per_device % _share(state.policy, cell.flavor):
        return reason(
            "TooLargeForAnyNode", "flavors.sharing", flavor=cell.flavor, asked=ask.gpus,
            note="not a multiple of the part that this flavor is given out in",
        )  # fmt: skip
    stock = state.stock(cell.pool, cell.flavor)
    if stock is None:
        return reason("NoSuchFlavor", "inventory", flavor=cell.flavor, pool=cell.pool)
    if ask.gpus > share.ceiling:
        return reason(
            "CeilingReached", f"ceiling:{where}", tenant=request.tenant, flavor=cell.flavor,
            pool=cell.pool, ceiling=share.ceiling, used=share.used, asked=ask.gpus,
        )  # fmt: skip
    code = possible(stock, ask)
    if code is not None and (taints := _taints(stock)):
        code = possible(stock, replace(ask, tolerations=taints))  # taints come and go: it waits
    if code is not None:
        return _shape_reason(state, request, cell, code)
    beyond = ask.gpus - share.guarantee
    if beyond > 0 and not may_borrow(state, request, state.policy.classes[request.class_]):
        note = None
        if interruptible_of(state, request) == "no":
            note = "work that cannot be interrupted runs within the guarantee"
        return reason(
            "BorrowingRefused", f"classes.{request.class_}.borrow", tenant=request.tenant,
            flavor=cell.flavor, guarantee=share.guarantee, asked=ask.gpus, note=note,
            class_=request.class_,
        )  # fmt: skip
    if beyond > _most_lent(state, request, cell):
        return reason(
            "LendLimitReached", f"lend:{where}", tenant=request.tenant, flavor=cell.flavor,
            pool=cell.pool, asked=beyond, lend=_most_lent(state, request, cell),
            guarantee=share.guarantee,
        )  # fmt: skip
    return None


def _most_lent(state: State, request: Request, cell: Cell) -> int:
    """The most that could ever be borrowed: all that others lend, and what nobody owns counting
    devices that are out of service, since they may come back.
    """
    stock = state.stock(cell.pool, cell.flavor)
    everything = stock.whole if stock else 0
    nobody = everything - state.covered.get((cell.group, cell.flavor), 0)
    owners = state.owners.get((cell.pool, cell.flavor), ())
    return max(0, nobody) + sum(q.lends for name, q in owners if name != request.tenant)


def tainted(state: State, request: Request, cell: Cell) -> Reason | None:
    """Why a request waits that only taints keep from being placed, whoever uses the devices."""
    stock = state.stock(cell.pool, cell.flavor)
    code = None if stock is None else possible(stock, request.ask)
    return None if code is None else _shape_reason(state, request, cell, "NodeTainted")


def _shape_reason(state: State, request: Request, cell: Cell, code: str) -> Reason:
    stock = state.stock(cell.pool, cell.flavor)
    shelves = list(stock.shelves.values()) if stock is not None else []
    per_node = request.ask.gpus // request.ask.nodes
    capacity = slot_capacity(state.policy, cell.flavor)
    largest = max((len(s.devices) for s in shelves), default=0) * capacity
    taints = () if stock is None else _taints(stock)
    drivers = tuple((s.node.name, s.node.driver or "unknown") for s in shelves)
    memory = max((d.memory for s in shelves for d in s.devices), default=0)
    return reason(
        code, "placement", flavor=cell.flavor, pool=cell.pool, asked=request.ask.gpus,
        per_node=per_node if request.ask.nodes > 1 else None,
        largest=largest if code == "TooLargeForAnyNode" else None,
        taints=taints if code == "NodeTainted" else None,
        min_driver=request.ask.min_driver if code == "DriverTooOld" else None,
        drivers=drivers if code == "DriverTooOld" else None,
        min_memory=request.ask.min_memory if code == "MemoryTooSmall" else None,
        largest_memory=memory if code == "MemoryTooSmall" else None,
        largest_island=_largest_island(shelves) * capacity if code == "TopologyConflict" else None,
    )  # fmt: skip


def _taints(stock: Stock) -> tuple[str, ...]:
    shelves = stock.shelves.values()
    return tuple(sorted({taint for shelf in shelves for taint in shelf.node.taints}))


def _largest_island(shelves: Sequence[Any]) -> int:
    sizes: dict[tuple[str, int], int] = {}
    for shelf in shelves:
        for device in shelf.devices:
            if device.island is not None:
                key = (shelf.node.name, device.island)
                sizes[key] = sizes.get(key, 0) + 1
    return max(sizes.values(), default=0)
