"""Who may do what in a timeline: as REST would answer, for an action that says ``by`` whom.

Left out, ``by`` is whoever may. Somebody who is not in ``users`` is taken for a person in charge,
and so is, where the policy names no ``admins``, somebody whose groups belong to no tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allotment_hub.domain.policy import Policy
from allotment_hub.domain.requests import Request
from allotment_hub.domain.shapes import Refusal, tenants_of
from allotment_hub.views.frame import Viewer, viewer_of

if TYPE_CHECKING:
    from .player import Player

OF_A_REQUEST = frozenset({"amend", "cancel", "claim", "renew", "keep", "release"})
FOR_ADMINS = frozenset({"exempt", "policy", "drain", "pause"})


def check(player: Player, act: str, args: Mapping[str, Any]) -> None:
    """Refuse an action of somebody who may not do it.

    Raises
    ------
    Refusal
        ``NotFound`` for what the person may not even see, else ``Forbidden``.
    """
    name = str(args.get("by") or "").removeprefix("user:")
    if name not in player.scenario.users:
        return
    viewer = _viewer(player, name)
    if viewer.admin:
        return
    request = _subject(player, args)
    if act in OF_A_REQUEST and request is not None and not viewer.sees_row(request):
        raise Refusal("NotFound", f"{name} may not see request {request.id}")
    if act in FOR_ADMINS or (act == "release" and args.get("force")):
        raise Refusal("Forbidden", f"{name} is no admin")
    if act == "approve":
        _may_approve(player, viewer, request)
    if act == "confirm" and request is not None and not _may_confirm(player, viewer, request):
        raise Refusal("Forbidden", f"{name} may not confirm the stop of {request.id}")


def _viewer(player: Player, name: str) -> Viewer:
    policy, groups = player.state.policy, player.scenario.users[name]
    seen = viewer_of(policy, name, groups)
    in_charge = not policy.admins and not tenants_of(policy, groups) and not seen.owns
    return viewer_of(policy, name, groups, admin=in_charge and bool(groups or name == "root"))


def _subject(player: Player, args: Mapping[str, Any]) -> Request | None:
    name = str(args.get("request", args.get("lease")))
    return player.past_requests.get(player.names.get(name, ""))


def _may_approve(player: Player, viewer: Viewer, request: Request | None) -> None:
    policy: Policy = player.state.policy
    class_ = None if request is None else policy.classes.get(request.class_)
    if request is None or class_ is None or class_.approval is None:
        return
    groups = player.scenario.users[viewer.name]
    names = {f"user:{viewer.name}", *(f"group:{group}" for group in groups)}
    if request.user == viewer.name or names.isdisjoint(class_.approval.by):
        by = ", ".join(class_.approval.by)
        raise Refusal("Forbidden", f"class {request.class_} is approved by {by}")


def _may_confirm(player: Player, viewer: Viewer, request: Request) -> bool:
    lease = player.state.leases.get(request.lease or "")
    if lease is None:
        return True
    rule = player.state.policy.reclaim_rule(
        class_=lease.class_, flavor=lease.flavor, tenant=lease.tenant, user=lease.user
    )
    return rule.confirm != "admin" and lease.tenant in viewer.owns
