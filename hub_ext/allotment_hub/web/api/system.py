"""Whether the governor is well, what it counts, and what it can be asked."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ..answers import HealthView, ReadyView
from ..identity import viewer
from ..metrics import render
from ..openapi import document
from ..problems import forbidden, unauthenticated
from ..routes import Answer, Call, route
from ..site import SENTENCES

try:
    VERSION = version("jupyter-allotment")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0"


@route("GET", "/health", who="anyone", needs_governor=False, answer=HealthView)
async def health(call: Call) -> Answer:
    """The process answers. Looks at nothing else."""
    return Answer({"status": "ok", "phase": call.site.service.phase, "version": VERSION})


@route("GET", "/ready", who="anyone", needs_governor=False, answer=ReadyView)
async def ready(call: Call) -> Answer:
    """Decisions are made: the ledger is ours, its schema fits, reconciling is over. Else 503."""
    service = call.site.service
    body = {
        "ready": service.ready,
        "phase": service.phase,
        # What went wrong may name paths and hosts: that is for the log.
        "detail": "" if service.ready else SENTENCES.get(service.phase, ""),
    }
    if service.ready:
        return Answer(body)
    return Answer(body, status=503, headers={"Retry-After": "2"})


@route("GET", "/metrics", who="anyone", needs_governor=False, identify=True)
async def metrics(call: Call) -> Answer:
    """Prometheus metrics. For admins, unless the operator has opened them. No user is named."""
    if not call.site.open_metrics:
        identity = call.identity
        if identity is None:
            raise unauthenticated()
        governor = call.site.service.governor
        admin = viewer(identity, governor.state.policy).admin if governor else identity.admin
        if not admin or identity.bound:
            raise forbidden("Metrics are for admins.")
    return Answer(raw=render(call.site), content_type="text/plain; version=0.0.4; charset=utf-8")


@route("GET", "/openapi.json", who="anyone", needs_governor=False)
async def openapi(call: Call) -> Answer:
    """The description of this interface."""
    return Answer(document(call.site.prefix))
