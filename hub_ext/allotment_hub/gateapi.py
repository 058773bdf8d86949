"""The gate: what JupyterHub's spawner and the governor say to each other.

Both sides import this module, so that paths, keys and shapes are written once. It uses the
standard library only.

Calls
-----
All lie under the service's prefix (``/services/allotment/``), are JSON, and carry
``Authorization: token <gate token>``: one secret shared by the hub process and the governor
(:data:`TOKEN_ENV`), compared in constant time. It is no user's and no role's token. A call that
came through the public proxy (it has ``X-Forwarded-For``) is not from the hub and answers 404.

=====================  ===========================  ==============================================
``POST gate/start``    :class:`StartCall`           200 ``{"lease": LeaseView}``: go on.
``?wait=SECONDS``                                   202 ``{"request": RequestView}``: queued or
                                                    parked; answered at the latest after ``wait``
                                                    seconds, at once when a grant is not in sight.
                                                    4xx problem: refused, nothing waits.
``POST gate/preparing``  :class:`LeaseCall`         the server is being started now
``POST gate/ready``    :class:`LeaseCall`           the server answers
``POST gate/failed``   :class:`LeaseCall`           the start ended without a server; ``detail``
                                                    says why. Devices are *not* free yet.
``POST gate/absent``   :class:`LeaseCall`           the backend confirms that nothing of this
                                                    lease runs; ``proof`` says how. Only this, or
                                                    what the hub shows (below), frees devices.
``POST gate/withdraw`` :class:`ServerCall`          the start was cancelled while it waited:
                                                    cancel the request of this server, if it waits
``GET gate/leases``    ``?user=&server=``           200 ``{"leases": [LeaseView]}``, live ones
``GET gate/requests``  ``?user=&server=``           200 ``{"requests": [RequestView]}``, live ones
``GET gate/form``      ``?user=&group=…&server=``   200 ``{"tenants": [...], "flavors": [...],
                                                    "classes": [...]}`` for the spawn form:
                                                    each ``{"name", "text", …}``
=====================  ===========================  ==============================================

Rules for the governor
----------------------
* ``start`` is idempotent per (user, server): a live lease of that server is answered again (200),
  a waiting request too (202). It never queues a second one. A lease that is ending answers 409.
* ``start`` for more than the lease holds, or another flavor, is a 409: amend or cancel first.
* ``preparing``, ``ready``, ``failed`` and ``absent`` answer 200 for a repeated call and for a
  lease that ended long ago. 409 ``StaleFence`` when ``fence`` is older than the lease's own,
  404 for a lease that never was. Both tell the spawner to stop repeating the call.
* A lease serves one life of its server: the spawner reports ``absent`` and has the answer before
  it asks ``start`` for the same server again.
* 5xx and no answer mean "not done": the spawner repeats the call with back-off.

What the hub shows
------------------
A spawner that holds a lease marks its server: ``user_options[LEASE_OPTION]`` in the hub's server
model is the lease's id from before the start until absence is confirmed, whatever else is written
into the options meanwhile. So a server that the hub
shows as stopped *without* the mark has no process; one *with* the mark may still have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, unquote

SERVICE = "allotment"
"""Name of the JupyterHub service; it lies at ``/services/allotment/``."""

TOKEN_ENV = "ALLOTMENT_GATE_TOKEN"  # noqa: S105 (the name of a variable, not a secret)
"""Environment variable of the governor that holds the shared secret."""

START = "gate/start"
PREPARING = "gate/preparing"
READY = "gate/ready"
FAILED = "gate/failed"
ABSENT = "gate/absent"
WITHDRAW = "gate/withdraw"
LEASES = "gate/leases"
REQUESTS = "gate/requests"
FORM = "gate/form"

WAITING_PAGE = "waiting/{request}"
"""Where a person waits, relative to the service's prefix."""

FORM_PAGE = "spawn"
"""The governor's own form: ``?server=NAME`` names the server to be started."""

OPTION = "allotment"
"""Key of ``user_options`` under which GPUs are asked for (contract of the REST interface)."""

LEASE_OPTION = "allotment_lease"
"""Key of ``user_options`` that only the spawner writes: the lease that the server holds."""


class GateError(ValueError):
    """A message of the gate that does not have the shape it must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall:
    """Asks whether this server may start, and with what.

    Parameters
    ----------
    user, server : str
        As JupyterHub knows them; ``server`` is empty for the default server.
    groups : tuple of str
        The user's groups in the hub at this moment. Authority is decided from these.
    wants : mapping
        ``user_options["allotment"]``, checked, in the notation of the REST interface.
    options : mapping
        All of ``user_options``, so that the governor can start the server with them later.
    admin : bool
        Whether the hub counts the user as an admin.
    actor : str or None
        Who pressed the button, where it is not the user.
    """

    user: str
    server: str
    groups: tuple[str, ...]
    wants: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    admin: bool = False
    actor: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the body of ``POST gate/start``."""
        return {**asdict(self), "groups": list(self.groups)}

    @classmethod
    def from_json(cls, body: Any) -> StartCall:
        """Read the body of ``POST gate/start``; raises :class:`GateError`."""
        body = _object(body, set(cls.__slots__))
        groups = body.get("groups")
        if not isinstance(groups, list) or not all(isinstance(name, str) for name in groups):
            raise GateError("groups: write a list of strings")
        admin = body.get("admin", False)
        if not isinstance(admin, bool):
            raise GateError("admin: write true or false")
        actor = body.get("actor")
        return cls(
            user=_text(body, "user"),
            server=_text(body, "server", empty=True),
            groups=tuple(groups),
            wants=_mapping(body, "wants"),
            options=_mapping(body, "options"),
            admin=admin,
            actor=None if actor is None else _text(body, "actor"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCall:
    """What happened to the server of a lease.

    Parameters
    ----------
    lease : str
    fence : int
        The lease's fencing number, as the spawner got it.
    proof : str
        For ``absent``: ``process`` (no process carries the lease), ``api`` (the backend's own
        record is gone), ``exit`` (the child was waited for), ``poll`` (two agreeing answers some
        time apart) or ``never-started``.
    detail : str
        For people: an exit code, an error message. At most 2,000 characters.
    """

    lease: str
    fence: int
    proof: str = ""
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the body of the call."""
        return {**asdict(self), "detail": self.detail[:2000]}

    @classmethod
    def from_json(cls, body: Any) -> LeaseCall:
        """Read the body of a call about a lease; raises :class:`GateError`."""
        body = _object(body, set(cls.__slots__))
        fence = body.get("fence")
        if not isinstance(fence, int) or isinstance(fence, bool) or fence < 0:
            raise GateError("fence: write a whole number from 0 up")
        return cls(
            lease=_text(body, "lease"),
            fence=fence,
            proof=_text(body, "proof", empty=True, optional=True),
            detail=_text(body, "detail", empty=True, optional=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCall:
    """A server, by its owner and name."""

    user: str
    server: str

    def to_json(self) -> dict[str, Any]:
        """Return the body of the call."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> ServerCall:
        """Read the body of a call about a server; raises :class:`GateError`."""
        body = _object(body, set(cls.__slots__))
        return cls(user=_text(body, "user"), server=_text(body, "server", empty=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A device of a lease, or ``share`` of one."""

    node: str
    uuid: str
    index: int
    flavor: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """What the spawner keeps of a lease: enough to start its server and to give it back."""

    id: str
    fence: int
    flavor: str = ""
    gpus: float = 0
    devices: tuple[HeldDevice, ...] = ()
    tenant: str = ""
    pool: str = ""
    class_: str = ""
    term_ends_at: str | None = None

    @classmethod
    def from_view(cls, view: Any) -> HeldLease:
        """Read a lease as REST shows it (further keys are ignored); raises :class:`GateError`."""
        if not isinstance(view, Mapping):
            raise GateError("lease: write an object")
        fence = view.get("fence")
        if not isinstance(fence, int) or isinstance(fence, bool):
            raise GateError("lease.fence: write a whole number")
        devices = view.get("devices") or ()
        try:
            held = tuple(
                HeldDevice(
                    node=str(device["node"]),
                    uuid=str(device["uuid"]),
                    index=int(device["index"]),
                    flavor=str(device.get("flavor", view.get("flavor", ""))),
                    share=float(device.get("share", 1)),
                )
                for device in devices
            )
            gpus = float(view.get("gpus", sum(device.share for device in held)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GateError(f"lease.devices: not the shape of a lease: {error!r}") from None
        return cls(
            id=_text(view, "id"),
            fence=fence,
            flavor=str(view.get("flavor") or (held[0].flavor if held else "")),
            gpus=gpus,
            devices=held,
            tenant=str(view.get("tenant") or ""),
            pool=str(view.get("pool") or ""),
            class_=str(view.get("class") or ""),
            term_ends_at=view.get("term_ends_at"),
        )

    def to_state(self) -> dict[str, Any]:
        """Return the JSON that the hub stores with the server."""
        state = asdict(self)
        state["devices"] = [asdict(device) for device in self.devices]
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> HeldLease:
        """Read what :meth:`to_state` wrote."""
        devices = tuple(HeldDevice(**device) for device in state.get("devices", ()))
        return cls(**{**state, "devices": devices})


def server_key(user: str, server: str) -> str:
    """Name a server by one string that no other server has.

    >>> server_key("a", "b-c"), server_key("a-b", "c"), server_key("ä/b", "")
    ('a/b-c', 'a-b/c', '%C3%A4%2Fb/')
    """
    return f"{quote(user, safe='')}/{quote(server, safe='')}"


def split_server_key(key: str) -> tuple[str, str]:
    """Give back the user and server that :func:`server_key` was made of.

    >>> split_server_key("%C3%A4%2Fb/")
    ('ä/b', '')
    """
    user, slash, server = key.partition("/")
    if not slash or "/" in server:
        raise GateError(f"{key!r} is not the key of a server: it has exactly one slash")
    return unquote(user), unquote(server)


def server_label(user: str, server: str) -> str:
    """Name a server by 32 letters and digits, for places that allow little else.

    Two servers have the same label only if SHA-256 collides in its first 128 bits.

    >>> len(server_label("ann", "")), server_label("a", "b-c") == server_label("a-b", "c")
    (32, False)
    """
    text = json.dumps([user, server], ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _object(body: Any, allowed: set[str]) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise GateError("write a JSON object")
    unknown = sorted(str(key) for key in set(body) - allowed)
    if unknown:
        raise GateError(f"unknown keys {unknown}; known are {sorted(allowed)}")
    return body


def _text(body: Mapping[str, Any], key: str, *, empty: bool = False, optional: bool = False) -> str:
    value = body.get(key, "" if optional else None)
    if not isinstance(value, str) or (not value and not empty):
        raise GateError(f"{key}: write {'a' if empty else 'a non-empty'} string")
    return value


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key, {})
    if not isinstance(value, Mapping):
        raise GateError(f"{key}: write an object")
    return value
