"""What somebody has, and what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...domain.findings import findings
from ...views import capacity_view, me_view
from ...views.findings import finding_view
from ...views.frame import Frame, Viewer
from ..answers import CapacityView, MeView
from ..look import request_shown
from ..routes import Answer, Call, route


@route("GET", "/me", who="user", answer=MeView)
async def me(call: Call) -> Answer:
    """One's tenants with their quotas, own leases, requests and notices."""
    who, frame = call.who, call.frame()
    view = me_view(frame, groups=who.groups, requests=())
    view["requests"] = [
        request_shown(call.site, frame, row)
        for row in call.governor.state.requests.values()
        if row.user == who.name
    ]
    view["server"] = who.server
    return Answer(view)


LARGE = 512
"""Devices above which the view costs so much that people share one for a moment."""

SHARED_MS = 1_000


def _capacity(call: Call, frame: Frame) -> dict[str, Any]:
    """The view of capacity. In a large pool all who see nobody else's rows get the same one,
    without their own leases by device, at most a second old.
    """
    state = frame.state
    devices = sum(len(node.devices) for node in state.nodes.values())
    if devices <= LARGE or frame.viewer.admin or frame.viewer.owns:
        return capacity_view(frame)
    kept = call.site.shared.get(("capacity", frame.lang))
    if kept is None or kept[0] is not state or frame.now - kept[1] >= SHARED_MS:
        view = capacity_view(replace(frame, viewer=Viewer(name="")))
        kept = call.site.shared["capacity", frame.lang] = (state, frame.now, view)
    return dict(kept[2])


@route("GET", "/capacity", who="user", answer=CapacityView)
async def capacity(call: Call) -> Answer:
    """Pools, flavors, nodes and devices: in service, free, and each unusable share by cause."""
    frame = call.frame()
    view = _capacity(call, frame)
    # Who runs beside the books is an admin's business; that somebody does is everybody's.
    view["unmanaged"] = [
        {
            "user": other.user if frame.viewer.sees(other.user, None) else None,
            "server": other.server if frame.viewer.sees(other.user, None) else None,
            "seen_at": frame.time(other.seen_at),
        }
        for other in call.site.service.unmanaged
    ]
    if call.viewer.admin:
        found = findings(frame.state, frame.now)
        view["findings"] = [finding_view(one, frame.wall) for one in found]
    return Answer(view)
