"""The shapes are those of the contract; nobody sees another's rows (invariant 25)."""

from __future__ import annotations

import json

import pytest

from allotment_hub import views
from allotment_hub.domain.reasons import reason
from allotment_hub.views.frame import Viewer
from tests.views.world import seen_by, world

REQUEST = {
    "id", "kind", "state", "tenant", "user", "class", "pool", "asked", "position", "ahead",
    "submitted_at", "reasons", "forecast", "passed_by", "history", "lease",
}  # fmt: skip
LEASE = {
    "id", "state", "request", "tenant", "user", "class", "devices", "basis", "lenders", "rule",
    "policy_version", "granted_at", "active_at", "term_ends_at", "renewals_left", "reclaim",
    "verdict",
}  # fmt: skip
REASON = {"category", "code", "text", "evidence", "rule", "since", "until", "helps"}
RECLAIM = {"trigger", "evidence", "step", "step_ends_at", "undo"}
QUOTA = {
    "pool", "flavor", "guarantee", "ceiling", "lend", "used", "guaranteed", "borrowed", "lent",
    "free",
}  # fmt: skip


def test_a_request_has_the_shape_of_the_contract() -> None:
    player = world()
    request = player.state.requests["claim"]
    shown = views.request_view(player.frame(), request, outlook=player.outlook(request))
    assert shown.keys() >= REQUEST
    assert (
        shown["asked"].items() >= {"gpus": 2, "flavor": None, "nodes": 1, "duration": "2h"}.items()
    )
    assert (shown["position"], shown["ahead"]) == (1, 0)
    assert shown["submitted_at"] == "2026-01-05T00:10:00.000Z"
    [why] = shown["reasons"]
    assert why.keys() == REASON
    assert (why["category"], why["code"]) == ("occupied", "WaitingForReturn")
    assert why["evidence"]["from"] == {"nlp": 3}
    assert why["until"] == shown["forecast"]["latest_start"] == "2026-01-05T00:27:00.000Z"
    assert shown["forecast"]["expected_start"] == "2026-01-05T00:25:00.000Z"
    assert "nlp" in why["text"]
    happened = [step["what"] for step in shown["history"]]
    assert happened == ["request.queued", "claim.made", "request.waiting"]


def test_a_lease_has_the_shape_of_the_contract() -> None:
    player = world()
    shown = views.lease_view(player.frame(), player.state.leases["lent.1"])
    assert shown.keys() >= LEASE
    assert shown["reclaim"].keys() >= RECLAIM
    assert shown["devices"][0] == {
        "node": "n1", "uuid": "GPU-n1-0", "index": 0, "flavor": "a100", "share": 1,
    }  # fmt: skip
    assert (shown["basis"], shown["lenders"]) == ("borrowed", {"unassigned": 1, "vision": 1})
    assert shown["verdict"]["state"] == "unknown"


def test_a_tenant_has_the_shape_of_the_contract() -> None:
    player = world()
    shown = views.tenant_view(player.frame(), "vision")
    [line] = shown["quotas"]
    assert line.keys() >= QUOTA
    assert line["guarantee"] == line["guaranteed"] + line["lent"] + line["free"]
    assert shown["budget"]["left"] == 100


def test_every_view_is_json() -> None:
    player = world()
    frame = seen_by(player, "ann")
    json.dumps(views.me_view(frame, groups=["vision"]), allow_nan=False)
    json.dumps(views.capacity_view(frame), allow_nan=False)


def test_the_shares_of_capacity_add_up() -> None:
    player = world()
    shown = views.capacity_view(player.frame())
    for part in [shown, *shown["pools"], *shown["flavors"], *shown["pools"][0]["flavors"]]:
        kinds = (
            "free", "in_use", "out_of_service", "free_wrong_shape", "free_quota_blocked",
            "held_not_used", "held_preparing",
        )  # fmt: skip
        assert part["total"] == sum(part[kind] for kind in kinds)
        assert part["in_service"] == part["total"] - part["out_of_service"]
    assert [line["offered"] for line in shown["flavors"]] == [True, False]


def test_a_verdict_moves_a_lease_to_what_is_held_and_not_used() -> None:
    player = world()
    frame = views.Frame(
        state=player.state, now=player.now, wall=player.wall,
        verdicts={"lent.1": {"state": "idle", "since": None, "evidence": []}},
    )  # fmt: skip
    assert views.capacity_view(frame)["held_not_used"] == 3
    assert views.lease_view(frame, player.state.leases["lent.1"])["verdict"]["state"] == "idle"


def test_what_a_user_sees_names_no_row_of_others() -> None:
    player = world()
    frame = seen_by(player, "bob")
    shown = json.dumps(
        [views.me_view(frame, groups=["nlp"]), views.capacity_view(frame)], allow_nan=False
    )
    for private in ('"ann"', '"cid"', '"lin"', '"claim"', '"later"', '"small', "small.1"):
        assert private not in shown
    assert "lent.1" in shown
    [lease] = views.me_view(frame, groups=["nlp"])["leases"]
    assert lease["reclaim"]["for_request"] is None
    assert lease["reclaim"]["for_tenant"] == "vision"


def test_an_owner_sees_the_rows_of_the_tenant_and_an_admin_sees_all() -> None:
    player = world()
    requests, leases = player.state.requests, player.state.leases
    owner, admin, user = (seen_by(player, name).viewer for name in ("lin", "root", "ann"))
    assert owner.sees_row(requests["claim"])
    assert not owner.sees_row(leases["lent.1"])
    assert admin.sees_row(leases["lent.1"])
    assert user.sees_row(requests["claim"])
    assert not user.sees_row(requests["later"])
    assert not Viewer(name="").sees("bob", None)


def test_evidence_that_names_rows_of_others_is_left_out() -> None:
    player = world()
    found = reason("WaitingForReturn", leases=("lent.1",), request="claim", asked=2000)
    mine = views.reason_view(seen_by(player, "ann"), found)
    assert mine["evidence"] == {"asked": 2}
    all_of_it = views.reason_view(seen_by(player, "root"), found)
    assert all_of_it["evidence"] == {"leases": ["lent.1"], "request": "claim", "asked": 2}


def test_use_without_a_quota_is_shown_still() -> None:
    player = world()
    shown = views.tenant_view(player.frame(), "gone")
    assert (shown["quotas"], shown["disabled"]) == ([], True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_reasons_come_in_the_language_of_the_viewer(lang: str) -> None:
    player = world()
    frame = views.Frame(
        state=player.state, now=player.now, wall=player.wall,
        lang=lang,  # type: ignore[arg-type]  # one of the two by the parameters above
    )  # fmt: skip
    text = views.reason_view(frame, reason("GrantsPaused"))["text"]
    assert text.isascii() == (lang == "en")


def test_notices_are_those_of_the_user_soonest_first() -> None:
    player = world()
    [notice] = views.notices_of(seen_by(player, "bob"), "bob")
    assert (notice["kind"], notice["trigger"], notice["step"]) == ("reclaim", "return", "notice")
    assert views.notices_of(seen_by(player, "ann"), "ann") == []


def test_a_device_is_found_by_uuid_or_by_place() -> None:
    player = world()
    frame = player.frame()
    by_place = views.device_view(frame, node="n1", index=3)
    assert by_place == views.device_view(frame, uuid="GPU-n1-3")
    assert by_place is not None
    assert (by_place["state"], by_place["leases"]) == ("in_use", ["small.1"])
    assert views.device_view(frame, uuid="GPU-n9-0") is None
    assert views.pool_view(frame, "none") is None
