"""Codes and numbers become the same words in Python and in the browser's script."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from allotment_hub import sentences
from allotment_hub.domain.reasons import CATEGORY

from .messages import PAGES, found_messages

NOW = "2026-11-30T14:00:00Z"
SCRIPT = Path(__file__).with_name("sentences_peer.mjs")

FULL: dict[str, Any] = {
    "asked": 4, "per_node": 2, "free": 6, "largest": 3, "returns": 1, "largest_island": 2,
    "in_use": 2, "in_service": 8, "out_of_service": 1, "ceiling": 4, "guarantee": 4, "used": 3.5,
    "held": 1, "free_guarantee": 0, "lend": 4, "lent": 2, "lendable": 0.25, "limit": 4,
    "spent": 1999.5, "budget": 2000, "per": "month",
    "free_by_node": {"n1": 2, "n2": 3, "n4": 1}, "from": {"nlp": 2}, "drivers": {"n1": "550.1"},
    "until": "2026-11-30T15:10:00Z", "returns_at": "2026-12-01T09:05:30Z",
    "starts_at": "2026-11-30T16:00:00+01:00", "renews_at": "2026-12-01T00:00:00Z",
    "elapsed": "90s", "fits_within": "5400s", "min_memory": "40GiB", "largest_memory": 51539607552,
    "ahead": 2, "priority": 1000, "own_priority": 100, "running_at_once": 1,
    "flavor": "a100-80g", "pool": "interactive", "tenant": "vision", "class": "notebook",
    "node": "n1", "image": "a/b:1", "data": "corpus", "who": "lin", "what": "read",
    "min_driver": "570", "known": ["a100-80g", "l40s"], "offered": ["l40s"],
    "nodes": ["n1", "n2"], "taints": ["train"], "devices": ["0", "1"], "by": ["group:gpu-admins"],
}  # fmt: skip
NASTY = dict.fromkeys(FULL, "<img src=x onerror=alert(1)>\n {tenant} $& $1")
GUARDED = [
    {"note": "parked"}, {"free": 0, "in_service": 8, "flavor": "l40s"}, {"ahead": 0},
    {"note": "the request does not want to borrow", "tenant": "nlp", "free_guarantee": 1,
     "flavor": "l40s"}, {"detail": "asked twice", "tenant": "nlp"}, {"used": 0, "tenant": "nlp",
     "ceiling": 1, "flavor": "l40s-shared"},
]  # fmt: skip
CODES = [*CATEGORY, "SomethingNew", "constructor", "__proto__"]


def cases() -> list[dict[str, Any]]:
    evidences = [FULL, {}, NASTY, *GUARDED]
    return [
        {"code": code, "evidence": evidence, "lang": lang}
        for code in CODES
        for evidence in evidences
        for lang in sentences.LANGUAGES
    ]


def test_the_browser_says_what_rest_says() -> None:
    asked = cases()
    answer = subprocess.run(
        ["node", str(SCRIPT)],
        input=json.dumps({"now": NOW, "cases": asked}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    for case, text in zip(asked, told, strict=True):
        mine = sentences.reason(case["code"], case["evidence"], case["lang"], now=NOW)
        assert text == mine, case


@pytest.mark.parametrize("lang", sentences.LANGUAGES)
@pytest.mark.parametrize("code", list(CATEGORY))
def test_every_code_of_the_public_list_has_a_sentence(code: str, lang: str) -> None:
    entry = sentences.catalogue(lang)["reasons"][code]
    bare = sentences.reason(code, {}, lang)
    assert len(bare) > 4
    assert "?" not in bare, "the last head needs no numbers"
    assert "{" not in sentences.reason(code, FULL, lang, now=NOW)
    assert entry["head"]


@pytest.mark.parametrize("lang", sentences.LANGUAGES)
def test_every_key_of_a_template_is_documented_with_its_kind(lang: str) -> None:
    for code, entry in sentences.catalogue(lang)["reasons"].items():
        for template in [*entry["head"], *entry["more"]]:
            for key in re.findall(r"\{([a-z_]+)", template):
                assert key in sentences.EVIDENCE, f"{code}: {key} in {template!r}"


def test_the_catalogues_have_the_same_entries() -> None:
    english, chinese = sentences.catalogue("en"), sentences.catalogue("zh")
    for part in ("reasons", "triggers", "units", "words"):
        assert set(english[part]) == set(chinese[part])
    for noun, steps in english["steps"].items():
        assert set(steps) == set(chinese["steps"][noun])
    for code, entry in english["reasons"].items():
        other = chinese["reasons"][code]
        assert len(entry["head"]) == len(other["head"]), code
        assert len(entry["more"]) == len(other["more"]), code


def test_every_message_of_the_pages_is_translated_and_none_is_left_over() -> None:
    assert found_messages() == set(sentences.catalogue("zh")["messages"])


def test_translations_use_the_values_of_their_message() -> None:
    for message, text in sentences.catalogue("zh")["messages"].items():
        keys = set(re.findall(r"\{([a-z_]+)", message))
        assert set(re.findall(r"\{([a-z_]+)", text)) <= keys, message


@pytest.mark.parametrize(
    ("header", "lang"),
    [
        (None, "en"), ("", "en"), ("zh-CN", "zh"), ("de, zh;q=0.3, en;q=0.8", "en"),
        ("zh;q=0", "en"), ("zh;q=x", "en"), ("*" * 10_000, "en"),
    ],
)  # fmt: skip
def test_the_language_follows_the_browser(header: str | None, lang: str) -> None:
    assert sentences.choose_language(header) == lang


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (1, "1 second"), ("90s", "90 seconds"), (120, "2 minutes"), ("60m", "1 hour"),
        (7140, "1 hour 59 minutes"), ("4h", "4 hours"), (90000, "1 day 1 hour"),
        ("7d", "7 days"), (0, "0 seconds"),
    ],
)  # fmt: skip
def test_spans_read_as_people_say_them(span: int | str, text: str) -> None:
    told = sentences.reason("ImagePulling", {"node": "n1", "elapsed": span})
    assert f"On n1, for {text} so far." in told


def test_missing_evidence_never_fails_and_never_reads_as_zero() -> None:
    for key in FULL:
        for wrong in (None, True, [], {}, "", -1, float("1e30")):
            for code in CATEGORY:
                assert sentences.reason(code, {**FULL, key: wrong}, now=NOW)
    text = sentences.reason("AllInUse", {"in_service": None, "free": None, "asked": 2})
    assert "0" not in text


def test_no_script_makes_markup_of_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    )
    for script in (PAGES / "static" / "js").glob("*.js"):
        assert not forbidden.search(script.read_text(encoding="utf-8")), script.name
    for template in (PAGES / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert "| safe" not in text, template.name
        assert "|safe" not in text, template.name
        inline = re.compile(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=")
        assert not inline.search(text), template.name
