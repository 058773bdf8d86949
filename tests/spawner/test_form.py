"""The GPU fields in the spawn form."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from tornado import web

from allotment_hub.spawner.form import render
from tests.support.boxes import BoxSpawner, Site
from tests.support.gatepeer import GatePeer


class Fields(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[str] = []
        self.values: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names += [v or "" for k, v in attrs if k == "name"]
        self.values += [v or "" for k, v in attrs if k == "value"]


async def test_the_form_offers_what_the_governor_offers(site: Site) -> None:
    html = await site.user("ann").spawner.get_options_form()
    fields = Fields(html)
    assert {"allotment_gpus", "allotment_flavor", "allotment_tenant"} <= set(fields.names)
    assert "allotment_class" not in fields.names  # none is offered
    assert "Team &lt;t&gt;" in html
    assert 'href="/services/allotment/spawn?server="' in html
    assert "script" not in fields.tags


async def test_the_form_without_a_governor_says_so(site: Site, peer: GatePeer) -> None:
    peer.down()
    html = await site.user("ann").spawner.get_options_form()
    assert "cannot be started just now" in html
    assert Fields(html).names == []


async def test_the_childs_own_form_stays(make_site: type, peer: GatePeer) -> None:
    class Formed(BoxSpawner):
        options_form = '<select name="image"></select>'

    site = make_site(Formed)
    spawner = site.user("ann").spawner
    assert "image" in Fields(await spawner.get_options_form()).names
    options = spawner.run_options_from_form({"allotment_gpus": ["1"], "image": ["x"]})
    assert options == {"image": ["x"], "allotment": {"gpus": 1}}
    plain = spawner.run_options_from_form({"image": ["x"], "allotment_gpus": ["0"]})
    assert plain == {"image": ["x"], "allotment": {"gpus": 0}}
    site.config[site.spawner_class.__name__].spawn_form = False
    assert await site.user("bob").spawner.get_options_form() == '<select name="image"></select>'


@pytest.mark.parametrize("key", ["allotment", "allotment_gpus"])
async def test_a_link_starts_no_gpus(site: Site, key: str) -> None:
    spawner = site.user("ann").spawner
    with pytest.raises(web.HTTPError, match="A link cannot"):
        spawner.options_from_query({key: ["1"]})
    assert spawner.options_from_query({"image": ["x"]}) == {"image": ["x"]}


def test_hostile_names_stay_text() -> None:
    bad = '"><script>alert(1)</script>'
    offers = {"flavors": [{"name": bad, "text": bad}], "tenants": [None, {"x": 1}], "classes": 3}
    offers["classes"] = []
    html = render(offers, planner="/p", server=bad, chosen={"gpus": bad, "duration": bad})
    assert "script" not in Fields(html).tags
    assert bad in Fields(html).values


def test_who_has_no_gpus_is_offered_none() -> None:
    """SPAWN-14: an option that can never be met is not there to choose."""
    html = render({"flavors": [], "tenants": []}, planner="/p", server="", chosen={"gpus": 1})
    assert Fields(html).names == []
    assert "None of your groups has GPUs" in html
