"""What is wrong, why people waited, what another policy would do: asked over REST."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.clock import ManualClock
from tests.support.governed import POLICY, World, governed

HOUR = 3_600_000


async def busy(world: World) -> None:
    """Two hours in which bob borrows, and ann gets hers back after the notice."""
    await world.active((await world.submit("bob", 4, start="always"))["id"])
    await world.advance(HOUR)
    asked = await world.submit("ann", 2, start="always")
    await world.advance(16 * 60_000)
    await world.active(asked["id"])
    await world.advance(HOUR)


async def test_a_dry_run_tells_and_never_touches_the_live_state(tmp_path: Path) -> None:
    async with governed(tmp_path, clock=ManualClock(10 * HOUR)) as world:
        await busy(world)
        state = world.state
        before = (state.version, dict(state.requests), dict(state.leases), state.sequence)
        head = await world.service.query(lambda ledger: ledger.head())
        text = POLICY.replace("ceiling: 4", "ceiling: 2")
        assert text != POLICY
        report = await world.call("root", "POST", "/policy/dry-run", {"text": text, "since": "1d"})
        assert [row["tenant"] for row in report["refused"]] == ["nlp"], report
        assert report["by_tenant"]["vision"]["shorter"] == 1
        assert report["returns"] == {"old": 1, "new": 0}
        assert before == (state.version, state.requests, state.leases, state.sequence)
        assert head == await world.service.query(lambda ledger: ledger.head())


async def test_a_dry_run_names_what_is_wrong(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        bad = {"text": POLICY.replace("guarantee: 1", "guarantee: true", 1)}
        answer = await world.client("root").post("api/v1/policy/dry-run", json=bad)
        assert (answer.status_code, answer.json()["code"]) == (400, "BadPolicy")
        for since in ("soon", "2999-01-01T00:00:00Z"):
            body = {"text": POLICY, "since": since}
            answer = await world.client("root").post("api/v1/policy/dry-run", json=body)
            assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, "since")
        answer = await world.client("ann").post("api/v1/policy/dry-run", json={"text": POLICY})
        assert answer.status_code == 403


async def test_the_report_on_waits_tells_samples_step_by_step(tmp_path: Path) -> None:
    async with governed(tmp_path, clock=ManualClock(10 * HOUR)) as world:
        await busy(world)
        report = await world.call("root", "GET", "/waits/report?samples=true")
        assert report["by_tenant"]["vision"]["max_s"] >= 15 * 60
        told = report["samples"]["longest_waited"]
        assert told["tenant"] == "vision"
        text = " ".join(step["text"] for step in told["steps"])
        assert "held by nlp 4 (2 of them borrowed)" in text
        assert "asked back for it" in text
        answer = await world.client("ann").get("api/v1/waits/report")
        assert answer.status_code == 403


async def test_findings_are_for_admins(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        assert (await world.call("root", "GET", "/findings")) == {"findings": []}
        assert (await world.call("root", "GET", "/capacity"))["findings"] == []
        assert "findings" not in await world.call("ann", "GET", "/capacity")
        assert (await world.client("ann").get("api/v1/findings")).status_code == 403
