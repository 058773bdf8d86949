"""What is looked at, when, and by whom: visibility as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from allotment_hub.domain.amounts import (
    UNLIMITED,
    show_duration,
    show_gpus,
    show_memory,
)
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.policy import Policy
from allotment_hub.domain.requests import Request
from allotment_hub.domain.state import State

Wall = Callable[[int], str]
"""Steady milliseconds as the RFC 3339 text of the wall clock."""

Verdict = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who looks: a person sees its own rows, an owner those of its tenants, an admin all.

    Parameters
    ----------
    name : str
        The user's name.
    admin : bool
        Whether all rows are seen.
    owns : frozenset of str
        Tenants of which all rows are seen.
    """

    name: str
    admin: bool = False
    owns: frozenset[str] = frozenset()

    def sees(self, user: str, tenant: str | None) -> bool:
        """Whether a row of ``user`` under ``tenant`` may be shown to this viewer."""
        return self.admin or user == self.name or (tenant is not None and tenant in self.owns)

    def sees_row(self, row: Request | Lease) -> bool:
        """Whether a request or lease may be shown to this viewer at all."""
        return self.sees(row.user, row.tenant)


EVERYTHING = Viewer(name="", admin=True)
"""The view of scenarios, audits and the governor itself."""


def viewer_of(policy: Policy, name: str, groups: Iterable[str], *, admin: bool = False) -> Viewer:
    """Say what a user may see under a policy.

    >>> from allotment_hub.domain.policy import Tenant
    >>> p = Policy(tenants={"vision": Tenant(owners=("user:lin",))})
    >>> sorted(viewer_of(p, "lin", []).owns)
    ['vision']
    """
    names = {f"user:{name}", *(f"group:{group}" for group in groups)}
    return Viewer(
        name=name,
        admin=admin or not names.isdisjoint(policy.admins),
        owns=frozenset(
            tenant for tenant, rules in policy.tenants.items() if not names.isdisjoint(rules.owners)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One look at a state.

    Parameters
    ----------
    state : State
        What is looked at; never changed.
    now : int
        Steady milliseconds.
    wall : callable
        Makes steady milliseconds RFC 3339 text.
    viewer : Viewer
        Whose eyes: decides which names and ids of others are left out.
    lang : str
        Language of the sentences.
    verdicts : mapping
        Activity verdicts by lease id; a lease without one is ``unknown``.
    """

    state: State
    now: int
    wall: Wall
    viewer: Viewer = EVERYTHING
    lang: Literal["en", "zh"] = "en"
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    def time(self, at: int | None) -> str | None:
        """Show a time, None as it is."""
        return None if at is None else self.wall(at)

    def sees(self, row: Request | Lease | None) -> bool:
        """Whether a row may be named to this viewer; what is unknown may not."""
        return self.viewer.admin or (row is not None and self.viewer.sees_row(row))


def gpus(milli: int, most: int | None = None) -> int | float:
    """Milli-GPUs as a number; ``unlimited`` as ``most``, what there is at all.

    >>> gpus(2500), gpus(UNLIMITED, 8000)
    (2.5, 8)
    """
    return show_gpus(most if most is not None and milli >= UNLIMITED else milli)


def gpus_by_name(pairs: Iterable[tuple[str, int]]) -> dict[str, int | float]:
    """``(name, milli-GPUs)`` pairs as a mapping of numbers."""
    return {name: show_gpus(amount) for name, amount in pairs}


def duration(ms: int | None) -> str | None:
    """Milliseconds as ``4h``, None as it is."""
    return None if ms is None else show_duration(ms)


def memory(size: int | None) -> str | None:
    """Bytes as ``80GiB``, None as it is."""
    return None if size is None else show_memory(size)
