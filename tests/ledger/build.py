"""Small records with everything that a test does not care about filled in."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any, get_type_hints

from sqlalchemy import create_engine, text

from allotment_hub.domain.events import Event, PolicyVersion, Record
from allotment_hub.domain.inventory import Device, Node
from allotment_hub.domain.leases import Lease, LeasedDevice
from allotment_hub.domain.policy import Flavor, Policy, Quota, Sharing, Tenant
from allotment_hub.domain.requests import Ask, Request
from allotment_hub.ledger.tables import GENESIS, NAMES

OFFSET = 1_700_000_000_000
"""UTC minus steady time in these tests."""


def request(number: int, state: Any = "queued", **changes: Any) -> Request:
    made = Request(
        id=f"r{number}", sequence=number, kind="session", user="ann", tenant="vision",
        class_="notebook", ask=Ask(gpus=1000, devices=1), state="queued", submitted_at=number,
        asked_at=number,
    )  # fmt: skip
    return replace(made, state=state, **changes)


def lease(number: int, state: str = "granted", *, shares: dict[str, int] | None = None,
          **changes: Any) -> Lease:  # fmt: skip
    shares = shares or {f"GPU-{number}": 1000}
    devices = tuple(
        LeasedDevice(node="n1", uuid=uuid, index=place, flavor="a100", share=share)
        for place, (uuid, share) in enumerate(shares.items())
    )
    values: dict[str, Any] = {
        "id": f"l{number}", "request": f"r{number}", "fence": number, "kind": "session",
        "class_kind": "interactive", "user": "ann", "tenant": "vision", "class_": "notebook",
        "pool": "default", "flavor": "a100", "gpus": sum(shares.values()), "devices": devices,
        "rule": "guarantee", "policy_version": 1, "granted_at": number, "term": 3_600_000,
        "term_ends_at": number + 3_600_000, "interruptible": "stateless", "state": state,
    }  # fmt: skip
    if state == "released":
        values["released_at"] = number + 10
    return Lease(**(values | changes))


def policy(share: int | None = None, number: int = 1) -> PolicyVersion:
    sharing = None if share is None else Sharing(mode="time-slice", share=share)
    return PolicyVersion(
        number=number,
        policy=Policy(
            flavors={"a100": Flavor(model="A100", sharing=sharing)},
            tenants={"vision": Tenant(quotas=(Quota(flavor="a100", guarantee=4000),))},
        ),
        by="user:root",
        at=1,
    )  # fmt: skip


def node(name: str = "n1", count: int = 2) -> Node:
    devices = tuple(
        Device(uuid=f"GPU-{i}", index=i, model="A100", memory=1 << 36) for i in range(count)
    )
    return Node(name=name, devices=devices, labels={"pool": "interactive"})


def sample(cls: type[Any], **changes: Any) -> Any:
    """A record of any class, with its needed fields filled by their types."""
    hints = get_type_hints(cls)
    fill: dict[Any, Any] = {str: "x", int: 1, bool: True}
    values = {
        field.name: fill.get(hints[field.name], ())
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }
    return cls(**(values | changes))


def events(*records: Record, at: int = 1) -> list[Event]:
    return [Event(at, f"{type(record).__name__.lower()}.changed", record) for record in records]


def granted(number: int, **changes: Any) -> list[Event]:
    """A request and its lease, as one grant leaves them."""
    return events(request(number, "granted", lease=f"l{number}"), lease(number, **changes))


def empty_postgres(url: str) -> None:
    """Make the tables of a database those of a new ledger, faster than by making them anew."""
    engine = create_engine(url)
    names = ", ".join(f'"{name}"' for name in NAMES.tables if name != "leader")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE leader DISABLE TRIGGER USER"))
        connection.execute(text(f"TRUNCATE {names}"))
        connection.execute(text(f"UPDATE leader SET epoch = 0, position = 0, head = '{GENESIS}'"))  # noqa: S608  # a constant
        connection.execute(text("ALTER TABLE leader ENABLE TRIGGER USER"))
    engine.dispose()
