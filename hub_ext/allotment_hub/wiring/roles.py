"""Roles and scopes: the smallest with which everything works."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import jupyterhub
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from allotment_hub.gateapi import SERVICE

from .lists import ConfigureError, append, listed
from .spawners import ACCESS

ADMIN_SCOPE = "custom:allotment:admin"


def service_scopes() -> list[str]:
    """Return the smallest set of scopes with which the governor can do its work."""
    start = "start:servers" if jupyterhub.version_info[0] >= 6 else "servers"
    return ["list:users", "read:users:groups", "read:servers", start, "delete:servers"]


def add_roles(c: Config, admins: Iterable[str] | None) -> None:
    """Add the roles of the service, its users and its admins."""
    scopes = dict(c.JupyterHub.get("custom_scopes", {}))
    scopes[ADMIN_SCOPE] = {"description": "Administer the shared GPUs: policy, leases, nodes."}
    c.JupyterHub.custom_scopes = scopes
    append(
        c.JupyterHub,
        "load_roles",
        {"name": "allotment-service", "scopes": service_scopes(), "services": [SERVICE]},
    )
    _extend_role(c, "user", [ACCESS])
    users, groups = _hub_admins(c) if admins is None else _people(admins)
    role = {"name": "allotment-admin", "scopes": [ADMIN_SCOPE], "users": users, "groups": groups}
    append(c.JupyterHub, "load_roles", role)


def _people(admins: Iterable[str]) -> tuple[list[str], list[str]]:
    if isinstance(admins, str):
        raise ConfigureError("admins: give a list such as ['user:ann', 'group:gpu-admins']")
    users: list[str] = []
    groups: list[str] = []
    for name in admins:
        kind, _, rest = str(name).partition(":")
        if kind not in ("user", "group") or not rest:
            raise ConfigureError(f"admins: {name!r} has to be 'user:NAME' or 'group:NAME'")
        (users if kind == "user" else groups).append(rest)
    return users, groups


def _hub_admins(c: Config) -> tuple[list[str], list[str]]:
    """Find whom the configuration so far makes an admin: that role itself cannot be extended."""
    users: set[str] = set()
    groups: set[str] = set()
    for section in list(c.values()):
        if isinstance(section, Config) and "admin_users" in section:
            value = section.admin_users
            users |= set(value.get_value(set()) if isinstance(value, LazyConfigValue) else value)
    for role in listed(c.JupyterHub, "load_roles"):
        if role.get("name") == "admin":
            users |= set(role.get("users", ()))
            groups |= set(role.get("groups", ()))
    if not users and not groups:
        warnings.warn(
            "nobody administers the shared GPUs: set c.Authenticator.admin_users before "
            "allotment_hub.configure(), or give it admins=['user:…', 'group:…']",
            stacklevel=4,
        )
    return sorted(users), sorted(groups)


def _extend_role(c: Config, name: str, scopes: list[str]) -> None:
    """Add scopes to one of the hub's own roles, as configured so far or else by default."""
    roles = listed(c.JupyterHub, "load_roles")
    for role in roles:
        if role.get("name") == name:
            have = role.get("scopes", _default_scopes(name))
            role["scopes"] = list(dict.fromkeys([*have, *scopes]))
            c.JupyterHub.load_roles = roles
            return
    extra = c.JupyterHub.get("extra_user_scopes")
    if isinstance(extra, LazyConfigValue):
        extra = extra.get_value(set())
    if name == "user" and jupyterhub.version_info[0] >= 6:
        # Redefining the role would switch this setting off for whoever uses it.
        c.JupyterHub.extra_user_scopes = {*(extra or ()), *scopes}
        return
    append(c.JupyterHub, "load_roles", {"name": name, "scopes": [*_default_scopes(name), *scopes]})


def _default_scopes(name: str) -> list[str]:
    from jupyterhub.roles import get_default_roles

    return next(list(role["scopes"]) for role in get_default_roles() if role["name"] == name)
