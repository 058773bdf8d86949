"""What somebody has, and what there is."""

from __future__ import annotations

from ...views import capacity_view, me_view
from ..answers import CapacityView, MeView
from ..look import request_shown
from ..routes import Answer, Call, route


@route("GET", "/me", who="user", answer=MeView)
async def me(call: Call) -> Answer:
    """One's tenants with their quotas, own leases, requests and notices."""
    who, frame = call.who, call.frame()
    view = me_view(frame, groups=who.groups)
    view["requests"] = [
        request_shown(call.site, frame, row)
        for row in call.governor.state.requests.values()
        if row.user == who.name
    ]
    view["server"] = who.server
    return Answer(view)


@route("GET", "/capacity", who="user", answer=CapacityView)
async def capacity(call: Call) -> Answer:
    """Pools, flavors, nodes and devices: in service, free, and each unusable share by cause."""
    frame = call.frame()
    view = capacity_view(frame)
    # Who runs beside the books is an admin's business; that somebody does is everybody's.
    view["unmanaged"] = [
        {
            "user": other.user if frame.viewer.sees(other.user, None) else None,
            "server": other.server if frame.viewer.sees(other.user, None) else None,
            "seen_at": frame.time(other.seen_at),
        }
        for other in call.site.service.unmanaged
    ]
    return Answer(view)
