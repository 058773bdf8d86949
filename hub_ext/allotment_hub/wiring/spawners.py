"""Which spawner is governed, and what its servers' tokens may do."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

import jupyterhub.spawner
from jupyterhub.spawner import Spawner
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from allotment_hub.gateapi import SERVICE
from allotment_hub.spawner import Governed, governed

from .lists import ConfigureError

ACCESS = f"access:services!service={SERVICE}"
SERVER_SCOPES = ("access:servers!server", "users:activity!user", ACCESS)
SHORT_NAMES = {"local": "LocalProcessSpawner", "simple": "SimpleLocalProcessSpawner"}


def spawner_class(spawner: type | str) -> type:
    """Return the governed version of what was named."""
    found: Any = spawner
    if isinstance(spawner, str):
        found = _named(spawner)
    try:
        return governed(found)
    except TypeError as error:
        raise ConfigureError(f"spawner: {error}") from None


def _named(name: str) -> Any:
    if name in SHORT_NAMES:
        return getattr(jupyterhub.spawner, SHORT_NAMES[name])
    if name in ("kube", "kubespawner"):
        name = "kubespawner.KubeSpawner"
    for entry in entry_points(group="jupyterhub.spawners"):
        if entry.name == name:
            return entry.load()
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        known = sorted(entry.name for entry in entry_points(group="jupyterhub.spawners"))
        raise ConfigureError(
            f"spawner: {name!r} is not found ({error}); give a class, 'module.Class', or one of "
            f"{', '.join([*SHORT_NAMES, 'kube', *known])}"
        ) from None


def check_traits(made: type, traits: Mapping[str, Any]) -> None:
    """Refuse settings that the class does not have."""
    ours = Governed.class_traits(config=True)
    known = made.class_traits(config=True)  # type: ignore[attr-defined]  # made by traitlets' metaclass
    for name in traits:
        if name not in known:
            raise ConfigureError(
                f"{name!r} is no setting of {made.__name__}; Allotment's own are "
                f"{', '.join(sorted(ours))}"
            )


def server_scopes(c: Config, made: type) -> None:
    """Complete the scopes of servers' tokens: a value replaces the hub's default altogether."""
    for name in [cls.__name__ for cls in made.__mro__ if issubclass(cls, Spawner | Governed)]:
        if "server_token_scopes" in c.get(name, {}):
            value = c[name].server_token_scopes
            if isinstance(value, LazyConfigValue):
                value = value.get_value([])
            if callable(value):
                warnings.warn(
                    f"c.{name}.server_token_scopes is a function: it has to return {ACCESS} too, "
                    "or users' servers cannot reach Allotment",
                    stacklevel=3,
                )
                return
            c[name].server_token_scopes = list(dict.fromkeys([*value, *SERVER_SCOPES]))
            return
    c[made.__name__].server_token_scopes = list(SERVER_SCOPES)
