"""The document is made from the table, kept in the repository, and true of what is answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.clock import ManualClock
from allotment_hub.web.answers import (
    AuditView,
    CapacityView,
    LeaseList,
    LeaseView,
    MeView,
    PolicyHistory,
    PolicyView,
    PreviewView,
    RequestList,
    RequestView,
    UsageView,
    WaitsView,
)  # fmt: skip
from allotment_hub.web.describe import text
from allotment_hub.web.openapi import document
from allotment_hub.web.routes import TABLE
from tests.support.governed import governed

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_in_the_repository_is_the_one_of_the_code() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), (
        "run: .venv/bin/python -m allotment_hub.web.describe > docs/openapi.json"
    )


def test_every_call_is_described_and_every_reference_leads_somewhere() -> None:
    made = document()
    described = {
        (method.upper(), path) for path, methods in made["paths"].items() for method in methods
    }
    assert described == {(route.method, route.path) for route in TABLE if not route.gate}
    ids = [call["operationId"] for methods in made["paths"].values() for call in methods.values()]
    assert len(ids) == len(set(ids))
    names = set(re.findall(r"#/components/schemas/([^\"']+)", text()))
    assert names <= set(made["components"]["schemas"])


def test_unknown_keys_are_errors_in_the_document_too() -> None:
    schemas = document()["components"]["schemas"]
    for route in TABLE:
        if route.body is not None and not route.gate:
            assert schemas[route.body.__name__]["additionalProperties"] is False, route.path


@pytest.mark.parametrize(
    ("who", "path", "model"),
    [
        ("ann", "/me", MeView), ("bob", "/me", MeView), ("root", "/me", MeView),
        ("ann", "/capacity", CapacityView), ("root", "/requests", RequestList),
        ("root", "/requests?state=done,cancelled,rejected,queued", RequestList),
        ("root", "/leases?state=active,released,noticed,stopping", LeaseList),
        ("root", "/policy", PolicyView), ("root", "/policy/history", PolicyHistory),
        ("root", "/usage", UsageView), ("root", "/waits", WaitsView), ("root", "/audit", AuditView),
    ],
)  # fmt: skip
async def test_what_is_answered_is_what_is_described(
    tmp_path: Path, who: str, path: str, model: Any
) -> None:
    clock = ManualClock(1_000_000)
    async with governed(tmp_path, clock=clock) as world:
        lease = await world.active((await world.submit("bob", 4))["id"])
        await world.advance(3_600_000)
        waits = await world.submit("ann", 2)
        ended = await world.active((await world.submit("ann", 1, "l40s", server="x"))["id"])
        await world.call("ann", "POST", f"/leases/{ended.id}/release", {})
        await world.until(lambda: ended.id not in world.state.leases)
        model.model_validate(await world.call(who, "GET", path))
        RequestView.model_validate(await world.call("ann", "GET", f"/requests/{waits['id']}"))
        LeaseView.model_validate(await world.call("bob", "GET", f"/leases/{lease.id}"))
        body = {"gpus": 1, "flavor": "l40s"}
        PreviewView.model_validate(await world.call("ann", "POST", "/requests/preview", body))
