"""Shares a pool of GPUs among the tenants of a JupyterHub, by rule."""

from __future__ import annotations

from typing import Any


def configure(c: Any, **settings: Any) -> type:
    """Wire Allotment into a JupyterHub; see :func:`allotment_hub.wiring.configure`.

    >>> import allotment_hub
    >>> allotment_hub.configure(c, spawner="simple", policy="policy.yaml")  # doctest: +SKIP
    """
    # Not at the top: most of this package runs without JupyterHub.
    from allotment_hub.wiring import configure as wire

    return wire(c, **settings)
