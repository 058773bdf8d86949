"""Who asks, and what that lets them do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..domain.policy import Policy
from ..views.frame import Viewer, viewer_of

Role = Literal["anyone", "user", "owner", "admin", "server", "hub"]
"""What a route asks for, from least to most. ``server`` is a single-user server's own token,
``hub`` the hub itself at the spawner gate."""

ADMIN_SCOPE = "custom:allotment:admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Somebody known to the hub (or, standalone, to the token file).

    Parameters
    ----------
    name : str
        The user's name.
    groups : frozenset of str
        Hub groups as of the last check.
    admin : bool
        Holds the admin scope. Never true for a server's own token: whatever runs in the server
        could use it.
    server : str or None
        The name of the one server that the token belongs to (``""`` is the default server);
        None when it is a person's token or browser.
    via : {"token", "cookie"}
    credential : str
        A hash of the credential: names it in caches and logs without giving it away.
    checked_at : int
        Steady milliseconds when the hub last confirmed it.
    """

    name: str
    groups: frozenset[str] = frozenset()
    admin: bool = False
    server: str | None = None
    via: Literal["token", "cookie"] = "token"
    credential: str = ""
    checked_at: int = 0

    @property
    def bound(self) -> bool:
        """Whether this is a single-user server's own token."""
        return self.server is not None

    @property
    def actor(self) -> str:
        """The name in the audit."""
        return f"user:{self.name}"


def named(identity: Identity, names: tuple[str, ...]) -> bool:
    """Whether one of ``user:NAME`` and ``group:NAME`` means this identity. Exact match only."""
    return f"user:{identity.name}" in names or any(f"group:{g}" in names for g in identity.groups)


def viewer(identity: Identity, policy: Policy | None) -> Viewer:
    """What an identity may see under a policy.

    A server's own token stays an ordinary user's, whoever owns the server: whatever runs in the
    server could use it.
    """
    if identity.bound:
        return Viewer(name=identity.name)
    if policy is None:  # no ledger yet: nothing that a policy says is known
        return Viewer(name=identity.name, admin=identity.admin)
    return viewer_of(policy, identity.name, identity.groups, admin=identity.admin)
