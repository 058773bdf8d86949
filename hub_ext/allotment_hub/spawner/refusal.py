"""How a start ends that policy does not let go on: with a sentence, not as a malfunction.

JupyterHub 6 tells a refusal from a fault by its class; JupyterHub 5 counts every failed start
towards ``consecutive_failure_limit``; there the mixin takes its refusals off that count.
"""

from __future__ import annotations

from html import escape
from typing import Any

import jupyterhub.spawner
from tornado import web

_SpawnException: Any = getattr(jupyterhub.spawner, "SpawnException", None)
HAS_SPAWN_EXCEPTION = _SpawnException is not None
"""Whether this JupyterHub (6 and later) knows refusals."""


class _Refusal5(web.HTTPError):
    """The same for JupyterHub 5, with what its pages read."""

    def __init__(
        self, message: str, *, reason: str, message_html: str = "", status_code: int = 403
    ) -> None:
        super().__init__(status_code, message, reason=reason)


_Base: Any = _SpawnException if HAS_SPAWN_EXCEPTION else _Refusal5


class StartRefused(_Base):
    """A start that does not go on.

    Parameters
    ----------
    message : str
        Plain text for people; it is escaped before it becomes HTML.
    reason : str
        A short label in letters, digits and dashes, for metrics and the status line.
    status_code : int
        4xx, or 503 where the governor does not answer.
    link : (str, str) or None
        Path and text of where to go on; appended to the message. The path must be one that this
        program made, as everything else in the HTML is escaped.
    forward : bool
        Let a browser go to the link by itself. Programs ignore it.
    retry_after : int or None
        Seconds after which asking again is sensible.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        status_code: int = 403,
        link: tuple[str, str] | None = None,
        forward: bool = False,
        retry_after: int | None = None,
    ) -> None:
        html = escape(message)
        text = message
        if link is not None:
            path, name = link
            mark = ' data-allotment-forward="true"' if forward else ""
            html += f' <a href="{escape(path)}"{mark}>{escape(name)}</a>'
            text += f" {name}: {path}"
        super().__init__(text, reason=reason, message_html=html, status_code=status_code)
        # JupyterHub 5 writes over `reason`.
        self.label = reason
        self.jupyterhub_message = text
        self.jupyterhub_html_message = html
        self.headers: dict[str, str] = {}
        if link is not None and forward:
            self.headers["Refresh"] = f"0; url={link[0]}"
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
