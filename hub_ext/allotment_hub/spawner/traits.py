"""What an operator can set, and what the parts of the mixin share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from jupyterhub.utils import url_path_join
from traitlets import Bool, Dict, Enum, Float, Unicode, default
from traitlets.config import Configurable

from allotment_hub.gateapi import SERVICE, TOKEN_ENV, HeldLease, server_key

from .gate import Gate

if TYPE_CHECKING:
    from .parting import Parting

_inside: ContextVar[frozenset[int]] = ContextVar("allotment_inside", default=frozenset())


class GateTraits(Configurable):
    """Traits of every governed spawner, set as ``c.Governed.…`` for all of them."""

    governor_url = Unicode(
        "http://127.0.0.1:10101",
        help="""Where the hub reaches the governor. Without a path, the service's own is added.""",
    ).tag(config=True)

    gate_token = Unicode(
        help=f"""The secret that the hub and the governor share; by default from {TOKEN_ENV}.""",
    ).tag(config=True)

    allotment_url = Unicode(
        help="""Where users' servers reach the governor, set as ALLOTMENT_URL in them. Empty takes
        the hub's public address where JupyterHub knows it, else `governor_url`.""",
    ).tag(config=True)

    gate_wait = Float(
        3.0,
        help="""Seconds that a start waits for a grant before it leads to the waiting room.""",
    ).tag(config=True)

    gate_timeout = Float(
        10.0, help="""Seconds after which the governor counts as not answering."""
    ).tag(config=True)

    poll_limit = Float(
        10.0, help="""Seconds that the wrapped spawner may take to say whether a server runs."""
    ).tag(config=True)

    absence_interval = Float(
        5.0,
        help="""Seconds that must lie between two answers "does not run" before a lease is given
        back, where the spawner has no second source to ask.""",
    ).tag(config=True)

    start_watch = Float(
        1.0, help="""Seconds between two looks at a server that is coming up."""
    ).tag(config=True)

    hide_gpus = Bool(True, help="""Let sessions without a lease see no GPU.""").tag(config=True)

    device_environment = Enum(
        ["uuid", "plugin"],
        default_value="uuid",
        help="""`uuid`: name the leased devices in CUDA_VISIBLE_DEVICES and
        NVIDIA_VISIBLE_DEVICES. `plugin`: a device plugin does that, leave them alone.""",
    ).tag(config=True)

    end_leftovers = Bool(
        True,
        help="""End processes that a local server leaves behind, such as those sent to the
        background; until they are gone its GPUs are not free.""",
    ).tag(config=True)

    spawn_form = Bool(
        True, help="""Show the GPU fields in the spawn form, above the wrapped spawner's."""
    ).tag(config=True)

    lease_labels = Dict(
        help="""Further labels for whatever carries a lease (Kubernetes only)."""
    ).tag(config=True)

    @default("gate_token")
    def _default_gate_token(self) -> str:
        return os.environ.get(TOKEN_ENV, "")

    # What the spawner that this is laid over brings along.
    if TYPE_CHECKING:
        log: Any
        user: Any
        hub: Any
        name: str
        server: Any
        handler: Any
        user_options: dict[str, Any]
        orm_spawner: Any
        internal_ssl: bool
        active: bool
        pending: Any
        start_timeout: int
        http_timeout: int
        public_hub_url: str

    # State of this session; the class attributes are what a fresh spawner has.
    _lease: HeldLease | None = None
    _parting: Parting | None = None
    _gate: Gate | None = None

    @property
    def service_prefix(self) -> str:
        """Path of the governor's pages as browsers see it, ending in a slash."""
        base = self.hub.base_url if self.hub is not None else "/hub/"
        return (
            str(url_path_join(base.removesuffix("/").removesuffix("hub"), "services", SERVICE))
            + "/"
        )

    def page(self, path: str) -> str:
        """Path of one of the governor's pages."""
        return self.service_prefix + path

    @property
    def governor_base(self) -> str:
        """URL of the governor's service as the hub reaches it, without a slash at its end."""
        url = self.governor_url.rstrip("/")
        if url.partition("://")[2].count("/") == 0:
            url += self.service_prefix.rstrip("/")
        return url

    @property
    def gate(self) -> Gate:
        """The client to the governor."""
        if self._gate is None:
            self._gate = Gate(self.governor_base, self.gate_token, self.gate_timeout)
        return self._gate

    @property
    def key(self) -> str:
        """Name this server in logs as no other is named."""
        return server_key(self.user.name, self.name)

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Mark calls that the wrapped spawner makes to its own methods.

        Wrapped classes call ``self.poll()``, ``self.stop()`` and ``self.clear_state()`` from
        within one another and mean their own: these must not end a lease, nor wait for a call
        that waits for them. Tasks that are made inside inherit the mark.
        """
        token = _inside.set(_inside.get() | {id(self)})
        try:
            yield
        finally:
            _inside.reset(token)

    @property
    def _is_within(self) -> bool:
        return id(self) in _inside.get()


_background: set[asyncio.Task[Any]] = set()


def detach(work: Any) -> asyncio.Task[Any]:
    """Run something to its end whatever becomes of the caller.

    The loop keeps only weak references to tasks: an unreferenced one may vanish half done.
    """
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task
