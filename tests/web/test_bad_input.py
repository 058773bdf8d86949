"""Each kind of bad input is refused with what, where and what would be right; or carried safely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allotment_hub.web.limits import Limits, Rate
from tests.support.governed import governed

CASES: list[tuple[str, str | bytes, str, str]] = [
    # name, body, path of the fault, words of its message
    ("unknown key", '{"gpus": 1, "gpu": 2}', "gpu", "no such key"),
    ("boolean for a number", '{"gpus": true}', "gpus", "not a number"),
    ("text for a number", '{"gpus": "2"}', "gpus", "write a number"),
    ("not a number", '{"gpus": NaN}', "", "NaN"),
    ("infinity", '{"gpus": Infinity}', "", "Infinity"),
    ("infinite by overflow", '{"gpus": 1e999}', "gpus", "finite"),
    ("negative", '{"gpus": -1}', "gpus", "from zero up"),
    ("huge", '{"gpus": 1e30}', "gpus", "above the bound"),
    ("huge and exact", '{"gpus": 1' + "0" * 30 + "}", "gpus", "above the bound"),
    ("more digits than a number may have", '{"gpus": 1' + "0" * 5000 + "}", "", "not JSON"),
    ("too many decimals", '{"gpus": 0.12345}', "gpus", "three decimals"),
    ("nothing", "{}", "gpus", "needed"),
    ("null", '{"gpus": null}', "gpus", "not a number"),
    ("a list", "[]", "", "dictionary"),
    ("a word", '"gpus"', "", "dictionary"),
    ("no JSON", "gpus=1", "", "not JSON"),
    ("cut off", '{"gpus": 1', "", "not JSON"),
    ("a key twice", '{"gpus": 1, "gpus": 2}', "", "given twice"),
    ("not UTF-8", b'{"gpus": 1, "tenant": "\xff"}', "", "UTF-8"),
    ("nested without end", "[" * 60_000, "", "nested"),
    ("nested deeply", '{"gpus": ' + "[" * 60 + "]" * 60 + "}", "", "nested"),
    ("another kind", '{"gpus": 1, "kind": "pod"}', "kind", "'session', 'job' or 'service'"),
    ("a boolean for a duration", '{"gpus": 1, "duration": true}', "duration", "not a duration"),
    ("another notation of duration", '{"gpus": 1, "duration": "4 hours"}', "duration", "4h"),
    ("duration beyond all", '{"gpus": 1, "duration": "99999d"}', "duration", "outside"),
    ("memory in words", '{"gpus": 1, "min_memory": "lots"}', "min_memory", "80GiB"),
    ("nodes as a text", '{"gpus": 1, "nodes": "2"}', "nodes", "integer"),
    ("no nodes", '{"gpus": 1, "nodes": 0}', "nodes", "greater than or equal to 1"),
    ("a boolean for nodes", '{"gpus": 1, "nodes": true}', "nodes", "integer"),
    ("a number for a flag", '{"gpus": 1, "borrow": 1}', "borrow", "boolean"),
    ("empty name", '{"gpus": 1, "flavor": ""}', "flavor", "at least 1"),
    ("line break in a name", '{"gpus": 1, "flavor": "a\\nb"}', "flavor", "printable"),
    ("NUL in a name", '{"gpus": 1, "flavor": "a\\u0000b"}', "flavor", "printable"),
    ("half a character", '{"gpus": 1, "flavor": "\\ud800"}', "flavor", ""),
    ("a name without end", json.dumps({"gpus": 1, "flavor": "x" * 300}), "flavor", "at most 255"),
    ("a server that is a path", '{"gpus": 1, "server": "../x"}', "server", "slashes"),
    ("tolerations by a user", '{"gpus": 1, "tolerations": ["x"]}', "tolerations", "no such key"),
    ("somebody else", '{"gpus": 1, "user": "bob"}', "user", "no such key"),
    ("other groups", '{"gpus": 1, "groups": ["nlp"]}', "groups", "no such key"),
    ("no gpus at all", '{"gpus": 0}', "gpus", "above zero"),
    ("no such class", '{"gpus": 1, "class": "holiday"}', "class", "notebook"),
    ("a class of other work", '{"gpus": 1, "class": "training"}', "class", "batch"),
    ("half of a whole GPU", '{"gpus": 0.5, "flavor": "l40s"}', "gpus", "whole number"),
]


async def test_each_fault_is_named_with_its_place_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path) as world:
        client = world.client("ann")
        for name, body, path, words in CASES:
            answer = await client.post("api/v1/requests", content=body)
            told: dict[str, Any] = answer.json()
            assert answer.status_code == 400, (name, told)
            assert answer.headers["content-type"] == "application/problem+json", name
            assert told["errors"][0]["path"] == path, (name, told)
            assert words in told["errors"][0]["message"], (name, told)
            assert {"code", "title", "detail"} <= told.keys(), name
        assert world.state.requests == {}
        assert world.service.phase == "ready"


@pytest.mark.parametrize(
    "name",
    [
        "<img src=x onerror=alert(1)>", "'; DROP TABLE leases; --", '"quoted"', "日本語", "a&b=c",
        "{{7*7}}", "%s%n", "${jndi:x}", "a b", "-rf", "Ünï",
    ],
)  # fmt: skip
async def test_names_that_look_like_something_else_are_carried_as_they_are(
    tmp_path: Path, name: str
) -> None:
    """UI-15: stored unchanged, and never markup in what is sent."""
    async with governed(tmp_path) as world:
        asked = await world.submit("ann", 1, server=name)
        assert asked["server"] == name
        await world.active(asked["id"])
        answer = await world.client("ann").get("api/v1/me")
        assert answer.json()["leases"][0]["server"] == name
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert world.runtime.started == [("ann", name)]


async def test_another_tenants_name_is_only_a_name(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        refused = await world.submit("ann", 1, tenant="nlp")
        assert (refused["state"], refused["reasons"][0]["code"]) == ("rejected", "NoQuota")


async def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        body = json.dumps({"gpus": 1, "flavor": "x" * 70_000})
        answer = await world.client("ann").post("api/v1/requests", content=body)
        assert (answer.status_code, answer.json()["code"]) == (413, "TooLarge")


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("state=waiting", "state"), ("state=queued,", "state"), ("limit=0", "limit"),
        ("limit=1e3", "limit"), ("limit=10001", "limit"), ("limit=5&limit=6", "limit"),
        ("unknown=1", "unknown"), ("tenant=", "tenant"), ("user=%00", "user"),
    ],
)  # fmt: skip
async def test_a_query_is_as_strict_as_a_body(tmp_path: Path, query: str, path: str) -> None:
    async with governed(tmp_path) as world:
        answer = await world.client("ann").get(f"api/v1/requests?{query}")
        assert answer.status_code == 400, answer.text
        assert answer.json()["errors"][0]["path"] == path


async def test_a_time_that_is_none_is_named(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        answer = await world.client("ann").get("api/v1/usage?since=yesterday")
        assert answer.status_code == 400
        assert "2026-03-29T02:30:00Z" in answer.json()["detail"]


async def test_a_key_of_idempotency_is_bounded(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for key in ("", "x" * 201, "a b"):
            answer = await world.client("ann").post(
                "api/v1/requests", json={"gpus": 1}, headers={"Idempotency-Key": key}
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "BadInput"), key


async def test_who_sends_too_much_waits_and_the_others_do_not(tmp_path: Path) -> None:
    limits = Limits(Rate(1, 5), Rate(1000, 1000))
    async with governed(tmp_path, limits=limits) as world:
        answers = [await world.client("ann").get("api/v1/me") for _ in range(8)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert answers[-1].json()["code"] == "TooManyRequests"
        assert (await world.client("bob").get("api/v1/me")).status_code == 200


async def test_made_up_tokens_are_limited_by_where_they_come_from(tmp_path: Path) -> None:
    limits = Limits(Rate(1000, 1000), Rate(0.001, 6))
    async with governed(tmp_path, limits=limits) as world:
        codes = []
        for number in range(8):
            client = world.client(None, Authorization=f"token made-up-{number}")
            codes.append((await client.get("api/v1/me")).status_code)
        assert codes == [401] * 6 + [429] * 2


async def test_one_user_has_so_many_requests_in_line_and_no_more(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        for _ in range(5):
            assert (await world.submit("ann", 2))["state"] == "queued"
        refused = await world.submit("ann", 2)
        assert (refused["state"], refused["reasons"][0]["code"]) == ("rejected", "UserLimitReached")
