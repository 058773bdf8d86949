"""The user side of Allotment: Jupyter Server extension, notebook client and commands."""

from __future__ import annotations

from typing import Any

from .client import AllotmentError, Client, NotConfigured, Refused, Unreachable

__all__ = ["AllotmentError", "Client", "NotConfigured", "Refused", "Unreachable"]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Where JupyterLab finds the built extension in a development install."""
    return [{"src": "labextension", "dest": "jupyter-allotment"}]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "allotment"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Nothing is served from here yet; loading must not disturb the user's server."""
    server_app.log.debug("allotment: loaded")
