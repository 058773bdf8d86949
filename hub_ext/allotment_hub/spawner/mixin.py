"""The mixin that makes any spawner a governed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allotment_hub import gateapi
from allotment_hub.gateapi import OPTION

from .environment import apply_environment, lease_environment
from .form import render
from .gate import GateRefused, GovernorDown
from .options import FIELD, wants_from_form
from .refusal import StartRefused
from .starting import Starting

FORM_TIMEOUT_S = 2.0


class Governed(Starting):
    """Lets sessions with GPUs start only under a lease, and gives it back when they are gone.

    Laid over a spawner class by :func:`allotment_hub.spawner.governed`. All traits of that class
    keep working; those of this one are set as ``c.Governed.…``. Sessions that ask for no GPU do
    not depend on the governor in any way.
    """

    def get_env(self) -> dict[str, str]:
        """The wrapped class's environment with the lease laid over it."""
        env: dict[str, str] = super().get_env()  # type: ignore[misc]  # of the wrapped class
        return apply_environment(env, self.lease_environment())

    def lease_environment(self) -> dict[str, str]:
        """The variables that are ours."""
        held = self._lease if self._parting is None else None
        return lease_environment(
            held,
            url=self._url_for_servers(),
            name_devices=self.device_environment == "uuid",
            hide=self.hide_gpus,
        )

    def _url_for_servers(self) -> str:
        if self.allotment_url:
            return str(self.allotment_url)
        public = self.public_hub_url
        if public:
            return public.rstrip("/").removesuffix("hub") + f"services/{gateapi.SERVICE}"
        return self.governor_base

    # -- the spawn form ----------------------------------------------------------------------

    async def get_options_form(self) -> str:
        """Our fields above the wrapped class's form."""
        inner: str = await super().get_options_form() or ""  # type: ignore[misc]  # of the wrapped class
        if not self.spawn_form:
            return inner
        stored = (self.user_options or {}).get(OPTION)
        fields = render(
            await self._offers(),
            planner=self.page(gateapi.FORM_PAGE),
            server=self.name,
            chosen=stored if isinstance(stored, Mapping) else {},
        )
        return f"{fields}\n{inner}"

    async def _offers(self) -> Mapping[str, Any] | None:
        query = {
            "user": self.user.name,
            "server": self.name,
            "group": [group.name for group in self.user.groups],
        }
        try:
            reply = await self.gate.get(gateapi.FORM, query, timeout=FORM_TIMEOUT_S)
        except (GovernorDown, GateRefused) as error:
            self.log.warning("allotment: %s: no offers for the spawn form: %s", self.key, error)
            return None
        return reply.body

    def run_options_from_form(self, form_data: dict[str, Any]) -> Any:
        """Read our fields, and let the wrapped class read the rest as if ours were not there."""
        wants, rest = wants_from_form(form_data)
        options = super().run_options_from_form(rest)  # type: ignore[misc]  # of JupyterHub's class
        if not wants:
            return options
        return _with_wants(options, wants)

    def options_from_query(self, query_data: dict[str, Any]) -> Any:
        """Read options from a link, but never GPUs: a link may come from anybody."""
        if OPTION in query_data or any(key.startswith(FIELD) for key in query_data):
            raise StartRefused(
                "A link cannot start a session with GPUs. Choose them in the form below.",
                reason="gpus-by-link", status_code=400,
            )  # fmt: skip
        return super().options_from_query(query_data)  # type: ignore[misc]  # of the wrapped class


async def _merged(options: Any, wants: dict[str, Any]) -> dict[str, Any]:
    return {**await options, OPTION: wants}


def _with_wants(options: Any, wants: dict[str, Any]) -> Any:
    """Add our part; a wrapped class may read its form in a coroutine."""
    if hasattr(options, "__await__"):
        return _merged(options, wants)
    return {**options, OPTION: wants}
