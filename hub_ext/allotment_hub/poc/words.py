"""Events and amounts in words, for somebody who has seen nothing else of the product."""

from __future__ import annotations

import re

from allotment_hub.domain.amounts import show_gpus
from allotment_hub.domain.events import Claim, Event, Reservation
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Ask, Request

from .records import QuotaChange, subject

WHAT = {
    "request.queued": "asked", "request.waiting": "waits", "request.granted": "has its turn",
    "request.cancelled": "left the line", "request.rejected": "was refused",
    "request.parked": "was set aside", "request.expired": "waited too long",
    "request.amended": "was changed", "request.approved": "was approved",
    "lease.granted": "got GPUs", "lease.active": "runs", "lease.noticed": "was given notice",
    "lease.frozen": "was frozen", "lease.stopping": "is being stopped",
    "lease.released": "gave its GPUs back", "lease.guaranteed": "is guaranteed from now on",
    "lease.loan_reduced": "borrows less from now on", "lease.loan_moved": "borrows from others now",
    "lease.renewed": "got another term", "lease.kept": "was kept", "lease.claimed": "was fetched",
    "lease.confirmed": "was confirmed for stopping", "claim.made": "gets GPUs that were asked back",
    "claim.ended": "no longer needs GPUs asked back",
    "reservation.made": "has GPUs kept for it", "reservation.moved": "has other GPUs kept",
    "reservation.ended": "no longer needs GPUs kept", "policy.applied": "were put in force",
    "approval.given": "is an approval", "exemption.given": "is an exception",
    "node.added": "is in service", "node.changed": "has changed", "device.changed": "has changed",
}  # fmt: skip
"""What each event says of its subject."""


STATES = {
    "queued": "waits", "parked": "set aside", "granted": "has its GPUs", "done": "done",
    "cancelled": "left the line", "rejected": "refused", "expired": "waited too long",
}  # fmt: skip


def plain(code: str) -> str:
    """A reason's code as words.

    >>> plain("NothingToBorrow"), plain("parked")
    ('nothing to borrow', 'parked')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).lower()


def gpus(milli: int) -> str:
    """Milli-GPUs as people say them.

    >>> gpus(1000), gpus(2500), gpus(0)
    ('1 GPU', '2.5 GPUs', '0 GPUs')
    """
    amount = show_gpus(milli)
    return f"{amount:g} GPU" if amount == 1 else f"{amount:g} GPUs"


def asked(ask: Ask) -> str:
    """The shape that was asked for."""
    text = gpus(ask.gpus)
    if ask.nodes > 1:
        return f"{text}, spread evenly over {ask.nodes} machines"
    if ask.devices > 1:
        return f"{text} on one machine" if ask.same_node else f"{text} on any machines"
    return text


def saying(event: Event, told: str = "") -> str:
    """An event as a sentence without its end: who or what, and what of it."""
    name = subject(event)
    record = event.record
    text = f"{name} {WHAT.get(event.what, event.what.replace('.', ' ').replace('_', ' '))}"
    if isinstance(record, Lease) and event.what == "lease.granted":
        text += f": {gpus(record.gpus)}, {basis(record)}, by rule {record.rule}"
        if record.passed:
            text += f"; went past {', '.join(record.passed)}: {record.passed_why}"
    elif isinstance(record, Claim) and record.active:
        text += f": {gpus(record.gpus)} from {', '.join(record.victims)}"
    elif isinstance(record, Reservation) and record.active:
        text += f": {gpus(record.gpus)}" if record.devices else ": room under its limit"
    elif event.what == "request.waiting":
        text += f": {told or event.why}"
    elif isinstance(record, Request) and event.what == "request.queued" and record.grants:
        text = f"{name} waits again, with its age"
    elif event.why and event.why not in ("cancelled", "released", getattr(record, "rule", "")):
        text += f": {event.why}"
    return text


def basis(lease: Lease) -> str:
    """Guaranteed, or borrowed from whom."""
    if not lease.borrowed_at_grant and not lease.lenders:
        return "guaranteed"
    lenders = ", ".join(
        f"{show_gpus(amount):g} from {'nobody in particular' if name == 'unassigned' else name}"
        for name, amount in lease.lenders
    )
    return f"borrowed ({lenders})" if lenders else "borrowed at first"


def change(row: QuotaChange) -> str:
    """What changed for a team, by the part of its use."""
    names = ("of its own", "borrowed", "lent")
    parts = [
        f"{name} {show_gpus(before):g} → {show_gpus(after):g}"
        for name, before, after in zip(names, row.before, row.after, strict=True)
        if before != after
    ]
    return ", ".join(parts)
