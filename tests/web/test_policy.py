"""The policy over REST: looked at, checked, applied whole or not at all, rolled back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.governed import POLICY, governed


async def test_a_policy_is_applied_whole_and_the_next_grant_names_it(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        shown = await world.call("root", "GET", "/policy")
        assert (shown["version"], shown["by"]) == (1, "file")
        text = shown["text"].replace("ceiling: 4", "ceiling: 3")
        assert text != shown["text"]
        done = await world.call("root", "PUT", "/policy", {"text": text, "note": "less for all"})
        assert (done["version"], done["by"], done["note"]) == (2, "user:root", "less for all")
        lease = await world.active((await world.submit("ann", 1))["id"])
        assert lease.policy_version == 2
        history = (await world.call("root", "GET", "/policy/history"))["versions"]
        assert [one["version"] for one in history] == [2, 1]
        assert {"path", "before", "after"} <= history[0]["changes"][0].keys()
        first = await world.call("root", "GET", "/policy?version=1")
        assert first["text"] == shown["text"]


async def test_an_error_changes_nothing_and_names_path_and_line(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        wrong = POLICY.replace("flavor: l40s, guarantee: 1", "flavor: l40s, guarantee: true", 1)
        answer = await world.client("root").put("api/v1/policy", json={"text": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "BadPolicy")
        error = answer.json()["errors"][0]
        assert error["path"] == "tenants.vision.quotas[1].guarantee"
        assert error["line"] == 12
        assert (await world.call("root", "GET", "/policy"))["version"] == 1
        checked = await world.call("root", "POST", "/policy/check", {"text": wrong})
        assert (checked["ok"], checked["errors"][0]["line"]) == (False, 12)


async def test_a_check_says_what_would_differ_and_who_could_never_start(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        waits = await world.submit("ann", 2)
        text = POLICY.replace(
            "flavor: a100-80g, guarantee: 2, ceiling: 4",
            "flavor: a100-80g, guarantee: 1, ceiling: 1",
            1,
        )
        text = text.replace("ceiling: 1, lend: 2", "ceiling: 1, lend: 1")
        checked = await world.call("root", "POST", "/policy/check", {"text": text})
        assert checked["ok"], checked
        assert "tenants.vision.quotas[0].ceiling" in [one["path"] for one in checked["changes"]]
        assert checked["never"] == [
            {"request": waits["id"], "tenant": "vision", "code": "CeilingReached"}
        ]
        assert world.state.version.number == 1


async def test_going_back_is_a_new_version(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        first = await world.call("root", "GET", "/policy")
        await world.call("root", "PUT", "/policy", {"text": POLICY.replace("4h, max", "2h, max")})
        back = await world.call("root", "POST", "/policy/rollback", {"to": 1})
        assert (back["version"], back["text"]) == (3, first["text"])
        assert back["note"] == "rollback to version 1"
        answer = await world.client("root").post("api/v1/policy/rollback", json={"to": 9})
        assert answer.status_code == 404


async def test_two_admins_who_looked_at_the_same_version_do_not_both_win(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        root = world.client("root")
        tag = (await root.get("api/v1/policy")).headers["etag"]
        assert tag == '"1"'
        answers = await asyncio.gather(
            *(
                root.put("api/v1/policy", json={"text": POLICY}, headers={"If-Match": tag})
                for _ in range(4)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]
        assert world.state.version.number == 2


async def test_a_changed_file_is_applied_by_the_next_governor_and_an_unchanged_one_is_not(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path) as world:
        await world.call("root", "PUT", "/policy", {"text": POLICY.replace("4h, max", "2h, max")})
    async with governed(tmp_path) as world:
        assert world.state.version.number == 2
    async with governed(tmp_path, policy=POLICY.replace("4h, max", "3h, max")) as world:
        assert world.state.version.number == 3
        assert world.state.version.by == "file"


async def test_a_policy_comes_as_text_as_data_or_as_its_file(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        shown = await world.call("root", "GET", "/policy")
        assert shown["policy"]["borrowing"]["term"], "data has every default"
        data = {**shown["policy"], "currency": "CNY"}
        done = await world.call("root", "PUT", "/policy", {"policy": data, "note": "as data"})
        assert (done["version"], done["note"], done["policy"]["currency"]) == (2, "as data", "CNY")
        assert (await world.call("root", "POST", "/policy/check", data))["ok"]
        client = world.client("root")
        sent = await client.put(
            "api/v1/policy", content=POLICY, headers={"Content-Type": "application/yaml"}
        )
        assert (sent.status_code, sent.json()["version"]) == (200, 3)
        wrong = await client.put("api/v1/policy", json={"policy": {**data, "fleet": {}}})
        assert wrong.json()["errors"][0]["path"] == "fleet"
        back = await world.call("root", "POST", "/policy/rollback", {"version": 2})
        assert back["policy"]["currency"] == "CNY"
        both = await client.put("api/v1/policy", json={"policy": data, "text": shown["text"]})
        assert both.status_code == 400
