from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from allotment_hub.spawner.parting import PARTINGS
from allotment_hub.spawner.traits import _background
from tests.support.boxes import BoxSpawner, Site
from tests.support.gatepeer import GatePeer


@pytest.fixture
def peer() -> Iterator[GatePeer]:
    peer = GatePeer(devices=2).up()
    yield peer
    peer.down()


@pytest.fixture
async def make_site(peer: GatePeer) -> AsyncIterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(spawner_class: type = BoxSpawner, **more: Any) -> Site:
        made.append(Site(peer, spawner_class, **more))
        return made[-1]

    yield make
    if _background:
        await asyncio.wait(set(_background), timeout=1)  # a report half sent leaves its socket open
    for task in list(_background):
        task.cancel()
    if _background:
        await asyncio.wait(set(_background))
    PARTINGS.clear()
    for site in made:
        await site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
