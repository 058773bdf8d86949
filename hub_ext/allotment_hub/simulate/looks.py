"""What an ``expect`` looks at, in the shape that REST answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from allotment_hub import views
from allotment_hub.domain.leases import Lease

from .match import MISSING, LeaseName, Mismatch, is_comparison, mismatches
from .scenario import Expect

if TYPE_CHECKING:
    from .player import Player


class CannotLook(ValueError):
    """An expect that names what the scenario does not know: wrong input, not a failed check."""


def look(player: Player, expect: Expect) -> Any:
    """Return what an expect looks at; None where there is no such thing (yet).

    Raises
    ------
    CannotLook
        When it names something unknown or its selector has the wrong form.
    """
    found = _LOOKS[expect.kind](player, expect.which, expect.narrow)
    return _with_lease_names(found, player.past_leases)


def _with_lease_names(found: Any, leases: Mapping[str, Lease]) -> Any:
    """A lease is named by its request: its id, wherever it stands, equals that name too."""
    if isinstance(found, Mapping):
        return {key: _with_lease_names(value, leases) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [_with_lease_names(value, leases) for value in found]
    if type(found) is str and found in leases:
        return LeaseName(found, leases[found].request)
    return found


def compare(expect: Expect, found: Any) -> list[Mismatch]:
    """Return where what was found parts from the pattern.

    A bare mapping against a list means that some element matches it.
    """
    pattern = expect.pattern
    nothing = found is None
    if nothing and isinstance(pattern, list):
        found = MISSING
    if nothing and isinstance(pattern, Mapping) and not is_comparison(pattern):
        found = MISSING
    if isinstance(found, list) and isinstance(pattern, Mapping) and not _compares(pattern):
        pattern = [pattern]
    parted = mismatches(pattern, found)
    return [
        Mismatch(part.path, part.wanted, None) if part.path == "" and nothing else part
        for part in parted
    ]


def _compares(pattern: Mapping[str, Any]) -> bool:
    return any(key in ("==", "not", "in") for key in pattern)


def _request(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    name = player.known_name(which)
    if name in player.rejected:
        return player.rejected[name]
    request = player.request(name)
    return views.request_view(
        player.frame(), request, lease=player.lease_of(name), outlook=player.outlook(request)
    )


def _lease(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    lease = player.lease_of(player.known_name(which))
    return None if lease is None else views.lease_view(player.frame(), lease)


def _job(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    name = player.known_name(which)
    if name in player.rejected:
        return {
            "id": None,
            "state": "failed",
            "detail": player.rejected[name]["reasons"][0]["text"],
        }
    return views.job_view(player.frame(), player.request(name), player.lease_of(name))


def _tenant(player: Player, which: Any, narrow: Mapping[str, Any]) -> Any:
    if isinstance(which, Mapping):
        narrow = {key: which[key] for key in ("pool", "flavor") if key in which} | dict(narrow)
        which = which.get("name", which.get("tenant"))
    if not isinstance(which, str):
        raise CannotLook(f"a tenant is named by text, not {which!r}")
    view = views.tenant_view(player.frame(), which)
    if which not in player.state.policy.tenants and not view["quotas"]:
        raise CannotLook(f"no tenant {which!r}{player.nearest(which, player.state.policy.tenants)}")
    if not narrow:
        return view
    lines = [line for line in view["quotas"] if all(line[k] == v for k, v in narrow.items())]
    return {**view, "quotas": lines, **(lines[0] if len(lines) == 1 else {})}


def _pool(player: Player, which: Any, narrow: Mapping[str, Any]) -> Any:
    if isinstance(which, Mapping):
        narrow = {"flavor": which.get("flavor"), **narrow}
        which = which.get("name", which.get("pool"))
    if not isinstance(which, str):
        raise CannotLook(f"a pool is named by text, not {which!r}")
    view = views.pool_view(player.frame(), which, narrow.get("flavor"))
    if view is None and which not in player.state.policy.pools:
        raise CannotLook(
            f"no pool {which!r}{player.nearest(str(which), player.state.policy.pools)}"
        )
    return view


def _capacity(player: Player, which: Any, narrow: Mapping[str, Any]) -> Any:
    whole = views.capacity_view(player.frame())
    pool, flavor = narrow.get("pool"), narrow.get("flavor")
    if isinstance(which, Mapping):
        pool, flavor = which.get("pool", pool), which.get("flavor", flavor)
    elif isinstance(which, str):
        if which in player.state.policy.pools:
            pool = which
        elif which in player.state.policy.flavors:
            flavor = which
        elif which not in ("all", ""):
            raise CannotLook(f"{which!r} is neither a pool nor a flavor")
    if pool is not None:
        return _pool(player, pool, {} if flavor is None else {"flavor": flavor})
    if flavor is not None:
        return next((line for line in whole["flavors"] if line["flavor"] == flavor), None)
    return whole


def _device(player: Player, which: Any, narrow: Mapping[str, Any]) -> Any:
    node, index = narrow.get("node"), narrow.get("index")
    if isinstance(which, Mapping):
        node, index = which.get("node", node), which.get("index", index)
        which = which.get("uuid", which.get("device"))
    if isinstance(which, int) and index is None:
        which, index = None, which  # `{device: {node: n1, device: 0}}`, as in a reading
    uuid = which if isinstance(which, str) else None
    if uuid is not None and "/" in uuid and node is None:
        host, _, place = uuid.rpartition("/")
        uuid, node, index = None, host, int(place) if place.isdigit() else None
    if uuid is None and (node is None or index is None):
        raise CannotLook("a device is named by its uuid, or by {node: n1, index: 0}")
    found = views.device_view(player.frame(), uuid=uuid, node=node, index=index)
    if found is None:
        raise CannotLook(f"no device {uuid or f'{index} on node {node}'}")
    return found


def _audit(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    return _rows(player, which, player.audit())


def _decisions(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    return _rows(player, which, player.decisions())


def _rows(player: Player, which: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows, or those that name a request (with its leases), a user or whatever is given."""
    if which is None or which is True or which in ("", "all", {}):
        return rows
    if isinstance(which, Mapping):
        return [row for row in rows if not mismatches(which, row)]
    ids = {str(which)}
    if isinstance(which, str) and which in player.names:
        request = player.names[which]
        ids |= {request, *player.leases_of_request(request)}
    keys = ("subject", "request", "lease", "user", "actor", "what", "kind", "tenant")
    return [row for row in rows if any(row.get(key) in ids for key in keys)]


def _notices(player: Player, which: Any, _: Mapping[str, Any]) -> Any:
    if which is None or which is True or which in ("all", {}):
        users = {row.user: None for row in player.past_requests.values()}
        return [row for user in users for row in _notices_of(player, user)]
    if isinstance(which, Mapping):
        keys = ("request", "lease", "user")
        which = next((which[key] for key in keys if key in which), None)
    if isinstance(which, str) and which in player.names:
        request = player.request(which)
        return [row for row in _notices_of(player, request.user) if row["request"] == request.id]
    if not isinstance(which, str):
        raise CannotLook("notices are named by a user or a request")
    return _notices_of(player, which)


def _notices_of(player: Player, user: str) -> list[dict[str, Any]]:
    return views.notices_of(player.frame(), user)


_LOOKS: dict[str, Callable[[Player, Any, Mapping[str, Any]], Any]] = {
    "request": _request,
    "lease": _lease,
    "job": _job,
    "tenant": _tenant,
    "pool": _pool,
    "capacity": _capacity,
    "device": _device,
    "audit": _audit,
    "notices": _notices,
    "decisions": _decisions,
}
