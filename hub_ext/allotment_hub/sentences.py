"""What a code and its numbers mean, in words: one sentence from a code and its evidence.

Every reason is stored and sent as a code with evidence; the words are made here for REST, mail
and the command line, and by ``web/pages/static/js/sentences.js`` in the browser. Both read the
same catalogues (``locale/en.json``, ``locale/zh.json``) and give the same text, so that a language
is one file. The functions are pure: evidence in, text out. They never fail on evidence that is
unknown or missing: each code has several heads, the first whose keys are all there is taken, and
the last needs none.

Evidence is in the shape of REST: GPUs as numbers, times as RFC 3339 text, durations as ``90s``,
``20m``, ``4h`` or seconds, memory as ``80GiB`` or bytes. :data:`EVIDENCE` lists the known keys
and the kind of each, so that a view can turn the domain's integers into that shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from .domain.reasons import CATEGORY

Language = Literal["en", "zh"]
__all__ = [
    "CATEGORY", "EVIDENCE", "LANGUAGES", "Language", "catalogue", "choose_language", "flavor_name",
    "reason", "reason_parts", "say",
]  # fmt: skip

LANGUAGES: tuple[Language, ...] = ("en", "zh")

EVIDENCE: Mapping[str, str] = {
    # GPUs: milli-GPUs in the domain, numbers in REST
    "asked": "gpus", "per_node": "gpus", "free": "gpus", "largest": "gpus", "returns": "gpus",
    "largest_island": "gpus", "in_use": "gpus", "in_service": "gpus", "out_of_service": "gpus",
    "total": "gpus", "ceiling": "gpus", "guarantee": "gpus", "used": "gpus", "held": "gpus",
    "free_guarantee": "gpus", "lend": "gpus", "lent": "gpus", "lendable": "gpus",
    "limit": "gpus", "larger": "gpus", "first_asked": "gpus",
    # GPUs by node or tenant: mappings of name to GPUs
    "free_by_node": "gpus_by_name", "from": "gpus_by_name",
    # GPU-hours
    "spent": "gpus", "budget": "gpus",
    # points in time: milliseconds of the steady clock in the domain, RFC 3339 in REST
    "until": "time", "since": "time", "returns_at": "time", "starts_at": "time",
    "renews_at": "time",
    # spans: milliseconds in the domain
    "elapsed": "duration", "fits_within": "duration",
    # bytes
    "min_memory": "memory", "largest_memory": "memory", "memory": "memory",
    # counts
    "ahead": "count", "priority": "count", "own_priority": "count", "running_at_once": "count",
    "nodes_needed": "count",
    # words and names
    "flavor": "text", "pool": "text", "tenant": "text", "class": "text", "lender": "text",
    "node": "text", "returns_node": "text", "detail": "text", "note": "text", "why": "text",
    "per": "text", "image": "text", "data": "text", "who": "text", "what": "text",
    "min_driver": "text", "newest_driver": "text", "backend": "text", "request": "text",
    # several names
    "known": "list", "offered": "list", "nodes": "list", "taints": "list", "devices": "list",
    "by": "list", "drivers": "text_by_name", "leases": "list",
}  # fmt: skip
"""Kind of each key of evidence that the catalogues use. Any other key is carried, never shown."""

_PLACE = re.compile(r"\{([a-z_]+)(?::([a-z_]+)((?:/[^/{}]*){0,2}))?\}")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)?")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_SPAN_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
_MEMORY_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class _Missing(Exception):
    """A value that a template needs is not there or not of the kind it is written for."""


@lru_cache(maxsize=len(LANGUAGES))
def catalogue(lang: str = "en") -> Mapping[str, Any]:
    """The catalogue of a language; English for one that is not known."""
    name = lang if lang in LANGUAGES else "en"
    text = (resources.files("allotment_hub") / "locale" / f"{name}.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def choose_language(accept: str | None) -> Language:
    """The language that an ``Accept-Language`` header (or a plain tag) prefers.

    >>> choose_language("zh-CN,zh;q=0.9,en;q=0.8"), choose_language("fr, en;q=0.5")
    ('zh', 'en')
    """
    best: tuple[float, Language] = (0.0, "en")
    for part in (accept or "")[:400].split(","):
        tag, _, rest = part.strip().partition(";")
        match = re.fullmatch(r"\s*q=([01](?:\.\d{0,3})?)\s*", rest or "q=1")
        weight = float(match[1]) if match else 0.0
        for lang in LANGUAGES:
            if tag.lower().split("-")[0] == lang and weight > best[0]:
                best = (weight, lang)
    return best[1]


def reason_parts(
    code: str,
    evidence: Mapping[str, Any] | None = None,
    lang: str = "en",
    *,
    until: str | None = None,
    now: datetime | str | None = None,
    zone: tzinfo = timezone.utc,
) -> tuple[str, str]:
    """The first sentence of a reason and what follows it (empty where nothing is known).

    Parameters
    ----------
    code : str
        A code of the public list; any other gives a sentence that names it.
    evidence : mapping
        In the shape of REST; unknown keys are ignored, unfit values count as missing.
    until : str or None
        RFC 3339; when the reason ends at the latest, for texts that name it.
    now : datetime, str or None
        Lets times of the same day be written without the date.
    zone : tzinfo
        In which times are written; UTC is named in the text.

    >>> reason_parts("CeilingReached", {"tenant": "nlp", "ceiling": 4, "flavor": "a100-80g",
    ...                                 "used": 4, "asked": 2})
    ('nlp may use at most 4 GPUs of A100 80 GB and uses 4.', 'You ask for 2.')
    >>> reason_parts("CeilingReached", {"ceiling": "??"})
    ('The team is at its ceiling.', '')
    """
    words = catalogue(lang)
    values = dict(evidence or {})
    if until is not None:
        values.setdefault("until", until)
    writer = _Writer(words, values, _as_datetime(now), zone)
    entry = words["reasons"].get(code)
    if entry is None:
        return str(words["unknown_reason"]).replace("{code}", str(code)[:80]), ""
    head, index = writer.first(entry["head"])
    # A sentence repeats nothing that the head has said already.
    said = _keys(entry["head"][index])
    more = [
        text
        for template in entry["more"]
        if not (_keys(template) and _keys(template) <= said)
        and (text := writer.fill(template)) is not None
    ]
    return head, str(words["join"]).join(more)


def reason(
    code: str,
    evidence: Mapping[str, Any] | None = None,
    lang: str = "en",
    *,
    until: str | None = None,
    now: datetime | str | None = None,
    zone: tzinfo = timezone.utc,
) -> str:
    """A reason as one text: see :func:`reason_parts`."""
    head, more = reason_parts(code, evidence, lang, until=until, now=now, zone=zone)
    return f"{head}{catalogue(lang)['join']}{more}" if more else head


def say(
    key: str,
    values: Mapping[str, Any] | None = None,
    lang: str = "en",
    *,
    now: datetime | str | None = None,
    zone: tzinfo = timezone.utc,
) -> str:
    """A sentence of the catalogue that is not a reason, by a dotted key such as ``ended.return``.

    Where the key is unknown, the last part of it is given back as words: a code that the
    catalogues have not learnt yet still reads as something.
    """
    words = catalogue(lang)
    node: Any = words
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    if node is None:
        return _spaced(key.rsplit(".", 1)[-1])
    templates = [node] if isinstance(node, str) else list(node)
    return _Writer(words, dict(values or {}), _as_datetime(now), zone).first(templates)[0]


def flavor_name(name: str) -> str:
    """A flavor as people write it; names of other forms stay as they are.

    >>> flavor_name("a100-80g"), flavor_name("l40s-shared"), flavor_name("Big <GPU>")
    ('A100 80 GB', 'L40S shared', 'Big <GPU>')
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        return name
    words = []
    for part in name.split("-"):
        memory = re.fullmatch(r"(\d+)gb?", part)
        if memory:
            words.append(f"{memory[1]} GB")
        else:
            words.append(part.upper() if re.search(r"\d", part) else part)
    return " ".join(words)


def _keys(template: str) -> set[str]:
    return {match[1] for match in _PLACE.finditer(template)}


def _spaced(code: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).replace("_", " ")


def _as_datetime(value: datetime | str | None) -> datetime | None:
    if not isinstance(value, str):
        return value
    match = _TIME.fullmatch(value)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        plain = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    offset = match[7]
    if offset in (None, "Z"):
        return plain
    sign = 1 if offset[0] == "+" else -1
    return plain - sign * timedelta(hours=int(offset[1:3]), minutes=int(offset[4:6]))


class _Writer:
    """Fills templates of one language from one set of values."""

    def __init__(
        self, words: Mapping[str, Any], values: dict[str, Any], now: datetime | None, zone: tzinfo
    ) -> None:
        self.words, self.values, self.now, self.zone = words, values, now, zone

    def first(self, templates: Sequence[str]) -> tuple[str, int]:
        """The first template that can be filled, and its place; the last needs no value."""
        for index, template in enumerate(templates):
            text = self.fill(template)
            if text is not None:
                return text, index
        return _PLACE.sub("?", templates[-1]), len(templates) - 1

    def fill(self, template: str) -> str | None:
        try:
            return _PLACE.sub(self._place, template)
        except _Missing:
            return None

    def _place(self, match: re.Match[str]) -> str:
        key, kind, choice = match[1], match[2] or "text", match[3] or ""
        value = self.values.get(key)
        if value is None:
            raise _Missing
        if kind == "plural":
            one, other = choice[1:].split("/", 1)
            return one if self._amount(value) == 1 else other
        if kind in ("given", "is", "not"):
            # Guards write nothing: they say for which values a template is meant.
            same = str(value) == choice[1:]
            if (kind == "is" and not same) or (kind == "not" and same):
                raise _Missing
            return ""
        writer = getattr(self, f"_as_{kind}")
        return str(writer(value))

    @staticmethod
    def _amount(value: Any) -> float:
        if isinstance(value, (list, tuple, Mapping)):
            return float(len(value))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _Missing
        return float(value)

    def _as_n(self, value: Any) -> str:
        amount = self._amount(value)
        return str(int(amount)) if amount == int(amount) else f"{amount:.3f}".rstrip("0")

    def _as_gpus(self, value: Any) -> str:
        return self._unit("gpu", self._amount(value))

    def _unit(self, unit: str, amount: float) -> str:
        forms = self.words["units"][unit]
        # Up to one GPU is singular: "0.25 GPU".
        form = forms[0] if 0 < amount <= 1 else forms[1]
        return str(form).replace("{n}", self._as_n(amount))

    def _as_text(self, value: Any) -> str:
        if isinstance(value, (list, tuple, Mapping)):
            raise _Missing
        return " ".join(str(value).split())[:200]

    def _as_word(self, value: Any) -> str:
        text = self._as_text(value)
        return str(self.words.get("words", {}).get(text, text))

    def _as_flavor(self, value: Any) -> str:
        return flavor_name(self._as_text(value))

    def _as_list(self, value: Any) -> str:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items:
            raise _Missing
        return self._joined([self._as_text(item) for item in items])

    def _joined(self, items: list[str]) -> str:
        if len(items) == 1:
            return items[0]
        return f"{str(self.words['comma']).join(items[:-1])}{self.words['and']}{items[-1]}"

    def _by(self, value: Any, form: str) -> str:
        if not isinstance(value, Mapping) or not value:
            raise _Missing
        template = str(self.words["units"][form])
        return str(self.words["comma"]).join(
            template.replace("{n}", self._as_n(amount)).replace("{name}", self._as_text(name))
            for name, amount in value.items()
        )

    def _as_by_node(self, value: Any) -> str:
        return self._by(value, "on_node")

    def _as_by_tenant(self, value: Any) -> str:
        return self._by(value, "of_tenant")

    def _as_by_name(self, value: Any) -> str:
        if not isinstance(value, Mapping) or not value:
            raise _Missing
        return str(self.words["comma"]).join(
            f"{self._as_text(name)}: {self._as_text(item)}" for name, item in value.items()
        )

    def _as_time(self, value: Any) -> str:
        moment = _as_datetime(value if isinstance(value, (str, datetime)) else None)
        if moment is None:
            raise _Missing
        local = moment.astimezone(self.zone)
        clock = f"{local:%H:%M}"
        if self.now is None or local.date() != self.now.astimezone(self.zone).date():
            clock = f"{local:%Y-%m-%d} {clock}"
        return f"{clock} UTC" if self.zone is timezone.utc else clock

    def _as_duration(self, value: Any) -> str:
        match = _SPAN.fullmatch(str(value)) if not isinstance(value, bool) else None
        if match is None:
            raise _Missing
        seconds = round(float(match[1]) * _SPAN_SECONDS[match[2]])
        for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
            # 90 s stays "90 seconds": in minutes alone it would lose half of one.
            if seconds >= (2 * size if size == 60 and seconds % 60 else size):
                whole, rest = divmod(seconds, size)
                text = self._unit(unit, whole)
                smaller = {"day": (3600, "hour"), "hour": (60, "minute")}.get(unit)
                if smaller and rest >= smaller[0]:
                    return f"{text} {self._unit(smaller[1], rest // smaller[0])}"
                return text
        return self._unit("second", seconds)

    def _as_memory(self, value: Any) -> str:
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s?([KMGT]i?B|B)", value)
            if match is None:
                raise _Missing
            return f"{match[1]} {match[2]}"
        size = self._amount(value)
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if size >= _MEMORY_UNITS[unit]:
                return f"{self._as_n(round(size / _MEMORY_UNITS[unit], 1))} {unit}"
        return f"{self._as_n(size)} B"
