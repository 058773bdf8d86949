"""The stream of changes: private, resumable, alive, closed when it must be."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.governed import World, governed


@dataclass
class Event:
    name: str
    data: Any
    id: str | None


class Reader:
    """Events of an open stream, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Event:
        name, data, id_ = "message", "", None
        async for line in self._lines:
            if not line:
                if data:
                    return Event(name, json.loads(data), id_)
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data += value
            elif field == "id":
                id_ = value
        raise EOFError

    async def find(self, name: str, **wanted: Any) -> Event:
        while True:
            event = await self.next()
            if event.name == name and all(event.data.get(k) == v for k, v in wanted.items()):
                return event


@contextlib.asynccontextmanager
async def following(world: World, who: str, last_id: str | None = None) -> AsyncIterator[Reader]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    async with world.client(who).stream("GET", "api/v1/events", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        reader = Reader(answer)
        hello = await reader.next()
        assert hello.name == "hello"
        reader.hello = hello  # type: ignore[attr-defined]  # kept for the test to look at
        yield reader


async def test_changes_arrive_whole_and_in_order(tmp_path: Path) -> None:
    async with governed(tmp_path) as world, following(world, "ann") as stream:
        headers = stream.answer.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["x-accel-buffering"] == "no"
        assert stream.hello.data["reset"] is True  # type: ignore[attr-defined]  # set above
        asked = await world.submit("ann", 1)
        request = await stream.find("request", id=asked["id"])
        assert request.data["state"] == "granted"
        lease = await stream.find("lease", state="active")
        assert lease.data["request"] == asked["id"]
        ids = [int(e.id.rpartition(".")[2]) for e in (request, lease) if e.id]
        assert ids == sorted(ids)


async def test_no_stream_holds_what_is_anothers(tmp_path: Path) -> None:
    async with (
        governed(tmp_path) as world, following(world, "ann") as ann, following(world, "bob") as bob,
        following(world, "lin") as lin, following(world, "root") as root,
    ):  # fmt: skip
        asked = await world.submit("ann", 1)
        marker = await world.submit("bob", 1)
        for stream in (ann, lin, root):
            await stream.find("request", id=asked["id"])
        seen = []
        while not seen or seen[-1].data.get("id") != marker["id"]:
            seen.append(await bob.next())
        text = json.dumps([event.data for event in seen])
        assert asked["id"] not in text
        assert "ann" not in text


async def test_a_stream_takes_up_where_it_broke_off(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        async with following(world, "ann") as stream:
            first = await world.submit("ann", 1)
            last = await stream.find("lease", state="active")
        second = await world.submit("ann", 1)
        lease = await world.active(second["id"])
        async with following(world, "ann", last.id) as stream:
            assert stream.hello.data["reset"] is False  # type: ignore[attr-defined]  # set above
            missed = await stream.find("request", id=second["id"])
            assert first["id"] != missed.data["id"]
            await stream.find("lease", id=lease.id, state="active")
        for unknown in ("0-aaaaaa.1", "nonsense", f"{last.id}9", "", "x" * 70):
            async with following(world, "ann", unknown or None) as stream:
                assert stream.hello.data["reset"] is True, unknown  # type: ignore[attr-defined]  # set above


async def test_who_waits_is_told_the_place_as_it_changes(tmp_path: Path) -> None:
    async with governed(tmp_path) as world:
        for who in ("ann", "bob"):
            await world.active((await world.submit(who, 2))["id"])
        first, second = await world.submit("ann", 2), await world.submit("ann", 2)
        async with following(world, "ann") as stream:
            places = {(await stream.find("place")).data["id"] for _ in range(2)}
            assert places == {first["id"], second["id"]}
            await world.call("ann", "DELETE", f"/requests/{first['id']}")
            moved = await stream.find("place", id=second["id"])
            assert (moved.data["position"], moved.data["ahead"]) == (1, 0)


async def test_everybody_hears_of_capacity_without_names(tmp_path: Path) -> None:
    async with governed(tmp_path) as world, following(world, "eve") as stream:
        await world.submit("ann", 1)
        event = await stream.find("capacity")
        assert "ann" not in json.dumps(event.data)
        assert (event.data["free"], event.data["in_service"]) == (5, 6)
        assert [line["flavor"] for line in event.data["flavors"]] == ["a100-80g", "l40s"]


async def test_a_silent_stream_beats(tmp_path: Path, monkeypatch: Any) -> None:
    """UI-13: at least every 20 s."""
    from allotment_hub.governor import service

    assert service.HEARTBEAT_S < 20
    monkeypatch.setattr(service, "HEARTBEAT_S", 0.01)
    async with governed(tmp_path) as world, following(world, "eve") as stream:
        assert (await stream.find("heartbeat")).data["now"].endswith("Z")


async def test_a_stream_ends_when_its_token_does(tmp_path: Path, monkeypatch: Any) -> None:
    from allotment_hub.web import stream as module

    monkeypatch.setattr(module, "RECHECK_MS", 10)
    async with governed(tmp_path) as world, following(world, "ann") as stream:
        path = tmp_path / "tokens.yaml"
        path.write_text(path.read_text().replace("ann-token-", "ann-token-of-yesterday-"))
        event = await stream.find("bye")
        assert event.data == {"why": "credential"}
        await world.until(lambda: len(world.service.life.feed) == 0)


async def test_who_stops_being_an_owner_stops_seeing_the_tenant(
    tmp_path: Path,
) -> None:
    async with governed(tmp_path) as world, following(world, "lin") as stream:
        await world.submit("ann", 1)
        await stream.find("lease", user="ann", state="active")
        text = (await world.call("root", "GET", "/policy"))["text"]
        applied = await world.client("root").put(
            "api/v1/policy", json={"text": text.replace("user:lin", "user:nobody")}
        )
        assert applied.status_code == 200, applied.text
        await world.submit("ann", 1)
        marker = await world.submit("lin", 1)
        seen = []
        while not seen or seen[-1].data.get("id") != marker["id"]:
            seen.append(await stream.next())
        assert not [event for event in seen if event.data.get("user") == "ann"]


async def test_a_user_has_so_many_streams_and_no_more(tmp_path: Path) -> None:
    async with governed(tmp_path, streams_per_user=2) as world:
        async with following(world, "ann"), following(world, "ann"):
            answer = await world.client("ann").get("api/v1/events")
            assert (answer.status_code, answer.json()["code"]) == (429, "TooManyStreams")
            async with following(world, "bob"):
                pass
        await world.until(lambda: len(world.service.life.feed) == 0)


async def test_the_end_of_the_governor_is_said_goodbye_to(tmp_path: Path) -> None:
    async with governed(tmp_path) as world, following(world, "ann") as stream:
        world.service.begin_closing()
        assert (await stream.find("bye")).data["why"] == "the governor closes"
        with contextlib.suppress(httpx.RemoteProtocolError):
            async for _ in stream._lines:
                pass


async def test_a_listener_that_cannot_keep_up_is_let_go(tmp_path: Path, monkeypatch: Any) -> None:
    from allotment_hub.web import stream as module

    monkeypatch.setattr(module, "MOST_UNSENT", 1024)
    async with governed(tmp_path) as world, following(world, "ann"):
        feed = world.service.life.feed
        for _ in range(400):
            feed.publish("notice", lambda: {"filler": "x" * 50_000}, user="ann")
            await asyncio.sleep(0)
        await world.until(lambda: len(feed) == 0)
        assert world.service.phase == "ready"
