"""Samples of a period, each told step by step from the record: the longest waited, the longest
held and the hardest to fit, and why they did not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from allotment_hub.domain.amounts import show_gpus
from allotment_hub.domain.events import Claim, Event, Reservation, Switch
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State
from allotment_hub.domain.waiting import BEHIND, Wait

from .frame import Frame, Wall
from .requests import ask_view, reason_view

MOST_STEPS = 200
"""Steps of one sample; a longer story is cut in the middle and says so."""


@dataclass(slots=True)
class _Story:
    """Steps of one sample, and what is known of the pool while it is told."""

    wall: Wall
    steps: list[dict[str, Any]] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    last_holders: str = ""

    def say(self, at: int, text: str, **more: Any) -> None:
        self.steps.append({"at": self.wall(at), "text": text, **more})

    def follow(self, event: Event) -> None:
        record = event.record
        if isinstance(record, Lease):
            if record.live:
                self.leases[record.id] = record
            else:
                self.leases.pop(record.id, None)

    def holders(self, request: Request) -> tuple[str, dict[str, float]]:
        """Who holds devices of the kind that is asked for: in words, and by tenant."""
        flavor, pool = request.ask.flavor, request.ask.pool
        held: dict[str, int] = {}
        borrowed: dict[str, int] = {}
        for lease in self.leases.values():
            if (flavor is None or lease.flavor == flavor) and (pool is None or lease.pool == pool):
                held[lease.tenant] = held.get(lease.tenant, 0) + lease.gpus
                borrowed[lease.tenant] = borrowed.get(lease.tenant, 0) + lease.borrowed
        parts = [
            f"{tenant} {show_gpus(amount):g}"
            + (f" ({show_gpus(borrowed[tenant]):g} of them borrowed)" if borrowed[tenant] else "")
            for tenant, amount in sorted(held.items())
        ]
        text = f"held by {', '.join(parts)}" if parts else "held by nobody"
        return text, {tenant: show_gpus(amount) for tenant, amount in sorted(held.items())}


def wait_story(events: Iterable[Event], wait: Wait, wall: Wall) -> dict[str, Any]:
    """Why a request did not move: who held what, the reasons over their spans, who passed.

    ``events`` begin with the history, so that who held what is known when the wait begins.
    """
    story = _Story(wall)
    request = wait.request
    begun = False
    for event in events:
        if event.at > wait.ends:
            break
        story.follow(event)
        if event.at >= wait.begins:
            if not begun and _about(event, request) and isinstance(event.record, Request):
                begun = True
                _begin(story, event.record, wait)
            elif begun:
                _step(story, event, request)
    text = "still waits" if wait.ending == "waiting" else wait.ending
    story.say(wait.ends, f"{text} after {_span(wait.length)}")
    return {
        "request": request.id, "tenant": request.tenant, "user": request.user,
        "class": request.class_, "asked": ask_view(request.ask), "waited_s": wait.length / 1000,
        "ending": wait.ending, "spans": _spans(wait, wall), "steps": _cut(story.steps),
    }  # fmt: skip


def _spans(wait: Wait, wall: Wall) -> list[dict[str, Any]]:
    return [
        {
            "code": span.reason.code, "rule": span.reason.rule, "from": wall(span.begins),
            "to": wall(span.ends), "seconds": (span.ends - span.begins) / 1000,
        }
        for span in wait.spans
    ]  # fmt: skip


def _about(event: Event, request: Request) -> bool:
    return isinstance(event.record, Request) and event.record.id == request.id


def _begin(story: _Story, request: Request, wait: Wait) -> None:
    again = "waits again with its age" if request.grants else "asks"
    text, held = story.holders(request)
    story.last_holders = text
    where = request.ask.flavor or "any kind"
    story.say(
        wait.begins,
        f"{request.user} of {request.tenant} {again}: {show_gpus(request.ask.gpus):g} GPUs of "
        f"{where}, class {request.class_}; {text}",
        held=held,
    )
    if request.reasons:
        _reason(story, wait.begins, request)


def _reason(story: _Story, at: int, request: Request) -> None:
    frame = Frame(state=State(), now=at, wall=story.wall)
    shown = reason_view(frame, request.reasons[0] if request.reasons else BEHIND)
    text, held = story.holders(request)
    who = "" if text == story.last_holders else f" Now {text}."
    story.last_holders = text
    story.say(at, f"{shown['text']}{who}", code=shown["code"], rule=shown["rule"], held=held)


def _step(story: _Story, event: Event, request: Request) -> None:
    record = event.record
    if isinstance(record, Request) and record.id == request.id:
        if event.what == "request.waiting":
            _reason(story, event.at, record)
        elif event.what not in ("request.granted", "request.queued"):
            story.say(
                event.at, f"{event.what.split('.')[1]} by {event.actor}: {event.why}".rstrip(": ")
            )
    elif isinstance(record, Claim) and record.request == request.id:
        _claim(story, event, record)
    elif isinstance(record, Reservation) and record.request == request.id:
        _reservation(story, event, record)
    elif isinstance(record, Lease):
        _lease(story, event, record, request)
    elif event.what == "device.changed" or isinstance(record, Switch):
        story.say(event.at, f"{event.what.replace('.', ' ')}: {event.why}".rstrip(": "))


def _claim(story: _Story, event: Event, claim: Claim) -> None:
    if claim.active:
        story.say(
            event.at, f"asked back for it: {', '.join(claim.victims)}; there at the latest at "
            f"{story.wall(claim.until)}", victims=list(claim.victims),
        )  # fmt: skip
    else:
        story.say(event.at, f"no longer asked back: {event.why}")


def _reservation(story: _Story, event: Event, kept: Reservation) -> None:
    if kept.active:
        what = f"{len(kept.devices)} devices" if kept.devices else "room below the ceiling"
        story.say(event.at, f"{what} kept for it from {story.wall(kept.starts_at)} on")
    else:
        story.say(event.at, f"nothing is kept for it any more: {event.why}")


def _lease(story: _Story, event: Event, lease: Lease, request: Request) -> None:
    if event.what == "lease.granted" and request.id in lease.passed:
        story.say(
            event.at, f"{lease.request} of {lease.tenant} ({show_gpus(lease.gpus):g} GPUs) went "
            f"first: {lease.passed_why}", passed_by=lease.request,
        )  # fmt: skip
    elif event.what == "lease.released" and lease.flavor == request.ask.flavor:
        story.say(
            event.at, f"{lease.request} of {lease.tenant} gave {show_gpus(lease.gpus):g} back"
        )


def held_story(events: Iterable[Event], lease: Lease, until: int, wall: Wall) -> dict[str, Any]:
    """Why a lease stayed as long as it did: its basis, its terms, and who asked for it."""
    story = _Story(wall)
    asked = False
    for event in events:
        record = event.record
        if isinstance(record, Lease) and record.id == lease.id:
            _held_step(story, event, record)
        elif isinstance(record, Claim) and record.active and lease.id in record.victims:
            asked = True
            story.say(event.at, f"asked back for {record.request} of {record.tenant}")
    ends = lease.released_at if lease.released_at is not None else until
    if not asked:
        story.say(ends, "nobody whose guarantee covers it asked for these devices meanwhile")
    return {
        "lease": lease.id, "tenant": lease.tenant, "user": lease.user, "class": lease.class_,
        "gpus": show_gpus(lease.gpus), "flavor": lease.flavor, "basis": lease.basis,
        "held_s": (ends - lease.granted_at) / 1000, "running": lease.live,
        "steps": _cut(story.steps),
    }  # fmt: skip


def _held_step(story: _Story, event: Event, lease: Lease) -> None:
    verb = event.what.split(".")[1].replace("_", " ")
    if event.what == "lease.granted":
        text = f"granted {lease.basis} by {lease.rule}, for a term of {_span(lease.term)}"
    elif event.what in ("lease.active", "lease.renewed", "lease.kept"):
        text = f"{verb}; the term ends at {story.wall(lease.term_ends_at)}"
    else:
        text = f"{verb} by {event.actor}: {event.why}".rstrip(": ")
    story.say(event.at, text)


def _cut(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(steps) <= MOST_STEPS:
        return list(steps)
    half = MOST_STEPS // 2
    gap = {"at": steps[half]["at"], "text": f"… {len(steps) - 2 * half} more steps …"}
    return [*steps[:half], gap, *steps[-half:]]


def _span(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
