"""Actions on the pool itself: policy, nodes, devices, the runtime, the governor, the clock."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from allotment_hub.domain import commands
from allotment_hub.domain.amounts import AmountError, parse_duration
from allotment_hub.domain.inventory import Health, Node
from allotment_hub.domain.policy import Policy
from allotment_hub.domain.shapes import Refusal
from allotment_hub.policyfile import FileError, load_inventory, load_policy, policy_data

from .actions import STATES
from .opening import parse_path
from .player import CannotPlay, Player
from .scenario import signed_duration

Args = Mapping[str, Any]

NODE_KEYS = frozenset({"labels", "cpus", "memory", "driver", "taints", "devices"})
"""Keys by which an action on a node is an entry of the inventory."""


def change_policy(player: Player, args: Args) -> None:
    """Put a policy in force, whole or not at all: given in place, as a path, or as changes.

    ``{set: {PATH: VALUE}}`` changes single values of the present one; ``{rollback: N}`` goes back
    to a version.
    """
    by, note = _by(args), str(args.get("note") or "")
    raw = {key: value for key, value in args.items() if key not in ("by", "note")}
    if set(raw) == {"rollback"}:
        _roll_back(player, raw["rollback"], by, note)
        return
    if set(raw) in ({"policy"}, {"file"}):
        (inner,) = raw.values()
        raw = dict(inner) if isinstance(inner, Mapping) else {"path": inner}
    if set(raw) == {"set"}:
        raw = _with_changes(player.state.policy, raw["set"])
    source: Any = player.scenario.base / str(raw["path"]) if set(raw) == {"path"} else raw
    try:
        loaded = load_policy(source, inventory=player.state.nodes.values())
    except FileError as error:
        first = error.problems[0]
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        raise Refusal("BadPolicy", f"{first.path}: {first.message}{more}") from None
    except OSError as error:
        raise CannotPlay(f"{source} cannot be read: {error.strerror}") from None
    commands.set_policy(player.state, player.now, loaded.policy, by, note)


def _roll_back(player: Player, to: Any, by: str, note: str) -> None:
    if isinstance(to, Mapping):
        to = to.get("to", to.get("version"))
    number = max(player.past_policies) - 1 if to is True else to
    version = player.past_policies.get(number) if isinstance(number, int) else None
    if version is None:
        known = ", ".join(map(str, player.past_policies))
        raise CannotPlay(f"there is no version {to!r} of the policy; there is {known}")
    why = note or f"rollback to version {version.number}"
    commands.set_policy(player.state, player.now, version.policy, by, why)


def _with_changes(policy: Policy, changes: Any) -> Any:
    if not isinstance(changes, Mapping):
        raise CannotPlay("'set' is a mapping such as {tenants.vision.quotas[0].guarantee: 2}")
    data = copy.deepcopy(policy_data(policy))
    for text, value in changes.items():
        path = parse_path(text)
        here: Any = data
        for part, following in pairwise(path):
            here = _inside(here, part, following, text)
        if value is None and isinstance(here, dict):
            here.pop(path[-1], None)
        elif isinstance(here, list) and path[-1] == len(here):
            here.append(value)
        else:
            here[path[-1]] = value
    return data


def _inside(here: Any, part: str | int, following: str | int, text: str) -> Any:
    """The part of a policy inside another; what was left out as default is begun."""
    empty: Any = [] if isinstance(following, int) else {}
    if isinstance(here, dict):
        return here.setdefault(part, empty)
    if isinstance(here, list) and isinstance(part, int):
        if part == len(here):
            here.append(empty)
        if part < len(here):
            return here[part]
    raise CannotPlay(f"the policy has nothing at {text!r}")


def change_node(player: Player, args: Args) -> None:
    """Add or replace a node, remove it, or say what it is."""
    name, by = str(args["node"]), _by(args, "inventory")
    if args.get("remove"):
        rest = [node for node in player.state.nodes.values() if node.name != name]
        if len(rest) == len(player.state.nodes):
            raise CannotPlay(f"no node {name!r}{player.nearest(name, player.state.nodes)}")
        commands.set_nodes(player.state, player.now, rest)
        return
    if name not in player.state.nodes or NODE_KEYS & set(args) - {"taints", "labels"}:
        _put_node(player, name, args)
        return
    changes: dict[str, Any] = {}
    if "labels" in args:
        if not isinstance(args["labels"], Mapping):
            raise CannotPlay("'labels' is a mapping of names to texts")
        changes["labels"] = {str(key): str(value) for key, value in args["labels"].items()}
    if "taints" in args:
        changes["taints"] = names_of("taints", args["taints"])
    if "draining" in args:
        changes["draining"] = bool(args["draining"])
    for said, value in _said(args).items():
        changes |= _node_changes(player, name, said, value)
    if changes:
        commands.set_node(player.state, player.now, name, by, **changes)


def _node_changes(player: Player, name: str, said: str, value: Any) -> dict[str, Any]:
    if said == "lost":
        return {"health": "lost" if value is not False else "ok"}
    if said == "restored":
        return {"health": "ok", "taints": (), "draining": False, "detail": ""}
    if said == "tainted":
        if value is False:
            return {"taints": ()}
        taints = value if isinstance(value, list) else ["tainted" if value is True else str(value)]
        return {"taints": tuple(str(taint) for taint in taints)}
    for device in player.state.nodes[name].devices:
        commands.set_device(player.state, player.now, device.uuid, "dirty" if value else "ok")
    return {}


def _put_node(player: Player, name: str, args: Args) -> None:
    entry = {key: args[key] for key in NODE_KEYS if key in args}
    try:
        (node,) = load_inventory([{"node": name, **entry}])
    except FileError as error:
        first = error.problems[0]
        raise CannotPlay(f"{first.path}: {first.message}") from None
    others = [known for known in player.state.nodes.values() if known.name != name]
    nodes: list[Node] = [*others, node]
    commands.set_nodes(player.state, player.now, nodes)


_HEALTH: dict[str, Health] = {
    "lost": "lost",
    "restored": "ok",
    "ok": "ok",
    "dirty": "dirty",
    "tainted": "degraded",
    "degraded": "degraded",
    "unknown": "unknown",
}


def change_device(player: Player, args: Args) -> None:
    """Say what a device is: lost, restored, dirty or tainted (it answers with errors)."""
    uuid = _uuid(player, args)
    for said, value in _said(args).items():
        health = _HEALTH[said] if value is not False else "ok"
        detail = str(args.get("detail") or ("" if health == "ok" else said))
        commands.set_device(player.state, player.now, uuid, health, detail)


def _uuid(player: Player, args: Args) -> str:
    uuid, name, index = args.get("device"), args.get("node"), args.get("index")
    if isinstance(uuid, int) and index is None:
        uuid, index = None, uuid
    for node in player.state.nodes.values():
        for device in node.devices:
            if device.uuid == uuid or (
                uuid is None and node.name == name and device.index == index
            ):
                return device.uuid
    known = [device.uuid for node in player.state.nodes.values() for device in node.devices]
    if uuid is None:
        raise CannotPlay(f"no device {index!r} on node {name!r}; name it by node and index")
    raise CannotPlay(f"no device {uuid!r}{player.nearest(str(uuid), known)}")


def _said(args: Args) -> dict[str, Any]:
    """``{lost: true}``, ``{is: lost}`` and ``{state: lost}`` as one mapping."""
    said = {state: args[state] for state in STATES if state in args}
    for key in ("is", "state", "health"):
        if key in args:
            word = str(args[key])
            if word not in _HEALTH:
                raise CannotPlay(f"{word!r} is none of {', '.join(_HEALTH)}")
            said["restored" if word == "ok" else word] = True
    return said


def drain(player: Player, args: Args) -> None:
    """Put nothing new on a node, or again."""
    name = str(args["node"])
    if name not in player.state.nodes:
        raise CannotPlay(f"no node {name!r}{player.nearest(name, player.state.nodes)}")
    commands.drain(player.state, player.now, name, args.get("on", True) is True, _by(args))


def pause(player: Player, args: Args) -> None:
    """Grant nothing for a while, or again."""
    on = args.get("on", True)
    words = {"on": True, "off": False, "grants": True}
    on = words.get(on, on) if isinstance(on, str) else on
    if not isinstance(on, bool):
        raise CannotPlay(f"'pause' is true or false, not {on!r}")
    text = str(args.get("text") or "")
    commands.switch(player.state, player.now, "paused", on, _by(args), text)


def change_runtime(player: Player, args: Args) -> None:
    """Make the runtime unreachable or reachable, slower, faster or manual."""
    rules = player.servers.rules
    if "start_after" in args:
        rules = replace(rules, start_after=_duration(args["start_after"]))
    if "stop_after" in args:
        rules = replace(rules, stop_after=_duration(args["stop_after"]))
    if "manual" in args:
        rules = replace(rules, manual=args["manual"] is True)
    player.servers.rules = rules
    if "unreachable" in args or "reachable" in args:
        on = args["unreachable"] is True if "unreachable" in args else not args["reachable"]
        player.servers.unreachable = on
        text = str(args.get("text") or "")
        commands.switch(player.state, player.now, "unreachable", on, "governor", text)


def restart(player: Player, args: Args) -> None:
    """Kill the governor and start it again from what it had committed.

    ``down_for``: nobody decides meanwhile, servers come and go. ``ended``: servers that are found
    gone afterwards. Nothing is granted before the state has been compared with the servers.
    """
    for name in names_of("ended", args.get("ended")):
        lease = player.lease_of(player.known_name(name))
        if lease is not None:
            player.servers.set(lease.id, "away")
    if "down_for" in args:
        player.clock.advance(_duration(args["down_for"]))
    player.state = player.store.reload()
    state, now = player.state, player.now
    commands.switch(state, now, "reconciling", True, "governor", "comparing with what runs")
    player.commit()
    for lease in list(state.leases.values()):
        was_started = lease.state not in ("granted", "stopping")
        if was_started and player.servers.phase.get(lease.id) == "away":
            commands.gone(state, now, lease.id, "ended while the hub was down")
    commands.switch(state, now, "reconciling", False, "governor")


def change_clock(player: Player, args: Args) -> None:
    """Set the wall clock forwards or backwards; steady time does not notice."""
    try:
        player.clock.set_wall_forward(signed_duration(args["wall"]))
    except AmountError as error:
        raise CannotPlay(str(error)) from None


def reading(player: Player, args: Args) -> None:
    """A trusted reading of a device; kept until its next."""
    where: dict[str, Any] = {"node": args.get("node")}
    where |= {"index": args["index"]} if "index" in args else {}
    if isinstance(args.get("device"), Mapping):
        where |= args["device"]
    elif isinstance(args.get("device"), int):
        where["index"] = args["device"]
    elif args.get("device", args.get("uuid")) is not None:
        where["device"] = args.get("device", args.get("uuid"))
    player.readings[_uuid(player, where)] = (player.now, args)


def names_of(key: str, value: Any) -> tuple[str, ...]:
    """Read a list of names; one name alone may stand for the list of it."""
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise CannotPlay(f"{key!r} is a list of names, not {value!r}")
    return tuple(listed)


def _by(args: Args, default: str = "root") -> str:
    name = str(args.get("by") or default)
    return name if ":" in name or name in ("inventory", "governor") else f"user:{name}"


def _duration(value: Any) -> int:
    try:
        return parse_duration(value)
    except AmountError as error:
        raise CannotPlay(str(error)) from None
