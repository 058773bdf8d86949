"""Looks through the eyes of people who are no administrators: neither too little nor too much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request

from .observing import Observer


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One question about what a person sees, and the answer that was found."""

    user: str
    question: str
    ok: bool
    found: str


def looks(player: Observer, eyes: Mapping[str, str]) -> list[Look]:
    """Look with each pair of eyes; ``eyes`` names the waiting request that each has to see."""
    return [look for user, name in eyes.items() for look in _one(player, user, name)]


def _one(player: Observer, user: str, name: str) -> list[Look]:
    seen = player.seen_by(user)
    capacity = seen["capacity"]
    shares = (
        "free", "in_use", "out_of_service", "free_wrong_shape", "free_quota_blocked",
        "held_not_used", "held_preparing",
    )  # fmt: skip
    own = next((row for row in seen["requests"] if row["id"] == name), None)
    reason = own["reasons"][0] if own and own["reasons"] else None
    foreign = sorted(_foreign(player, seen, user))
    tenants = [line["name"] for line in seen["me"]["tenants"]]

    def look(question: str, ok: bool, found: str) -> Look:
        return Look(user=user, question=question, ok=ok, found=found)

    return [
        look(
            f"sees {name}, which waits, with its place", bool(own and own["position"]),
            f"{name}, number {own['position']} in line" if own else "not there",
        ),
        look(
            "reads why it waits", bool(reason and reason["text"]),
            reason["text"] if reason else "nothing",
        ),
        look(
            "sees the whole pool, by cause",
            sum(capacity[share] for share in shares) == capacity["total"] > 0,
            f"{capacity['total']:g} GPUs: "
            + ", ".join(f"{capacity[s]:g} {s.replace('_', ' ')}" for s in shares if capacity[s]),
        ),
        look("sees what its team has", bool(tenants), ", ".join(tenants) or "no team"),
        look(
            "sees nothing that is somebody else's", not foreign,
            ", ".join(foreign) or "nobody else's name, request or lease",
        ),
    ]  # fmt: skip


def _foreign(player: Observer, seen: Any, user: str) -> set[str]:
    """Names of people, requests and leases in a view that its viewer may not see."""
    owns = set(seen["me"]["owns"])
    rows: list[Request | Lease] = [
        *player.past_requests.values(), *player.past_leases.values(),
    ]  # fmt: skip
    mine = {row.id for row in rows if row.user == user or row.tenant in owns}
    people = {row.user for row in rows if row.tenant in owns} | {user}
    names = {row.id for row in rows} - mine
    names |= {row.user for row in rows} - people
    texts = set(_texts(seen))
    return {name for name in names if any(_names(name, text) for text in texts)}


def _names(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
