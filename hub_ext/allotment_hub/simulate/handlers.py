"""What each action of a timeline does: one function each, in terms of the real commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from allotment_hub.domain import commands
from allotment_hub.domain.amounts import HOUR, AmountError, parse_duration
from allotment_hub.domain.leases import Lease
from allotment_hub.domain.requests import Reason
from allotment_hub.domain.shapes import Refusal
from allotment_hub.views import rejected_view, request_view

from .actions import ASK_KEYS
from .player import CannotPlay, Handler, Player
from .pool_handlers import (
    change_clock,
    change_device,
    change_node,
    change_policy,
    change_runtime,
    drain,
    names_of,
    pause,
    reading,
    restart,
)
from .wants import read_wants

if TYPE_CHECKING:
    from allotment_hub.domain.requests import RequestKind

Args = Mapping[str, Any]


def request(player: Player, args: Args) -> None:
    """Ask for something. What is refused stays known by its name, in state ``rejected``."""
    name = str(args.get("as", f"r{len(player.names) + len(player.rejected) + 1}"))
    player.last_name = name
    user = _user(args["user"])
    asked = {key: args[key] for key in ASK_KEYS if key in args}
    kind = args.get("kind") or _kind_of(player, args.get("class"))
    server = args.get("server", name if kind == "session" else None)
    if not isinstance(kind, str) or not isinstance(server, (str, type(None))):
        raise CannotPlay("'kind' and 'server' are texts")
    taken = name in player.past_requests
    made = f"{name}~{len(player.past_requests)}" if taken else name
    player.rejected.pop(name, None)
    try:
        row = commands.submit(
            player.state, player.now, id=made, kind=cast("RequestKind", kind), user=user,
            groups=_groups(player, user, args), wants=read_wants(asked), server=server,
            actor=_actor(args, user), options=(),
        )  # fmt: skip
    except (Refusal, AmountError) as error:
        reason = _reason_of(error)
        player.rejected[name] = rejected_view(player.frame(), {**args, "kind": kind}, reason)
        return
    player.names[name] = row.id
    if row.state == "rejected":
        player.rejected[name] = request_view(player.frame(), row)


def _kind_of(player: Player, class_: Any) -> str:
    """The kind of work that a class is for; a session where none is named."""
    known = player.state.policy.classes.get(class_) if isinstance(class_, str) else None
    return {"batch": "job", "service": "service"}.get(known.kind if known else "", "session")


def _reason_of(error: Refusal | AmountError) -> Reason:
    if isinstance(error, AmountError):
        return Reason(code="BadInput", evidence=(("detail", str(error)),))
    return error.reason or Reason(code=error.code, evidence=(("detail", error.detail),))


def amend(player: Player, args: Args) -> None:
    """Change what a waiting request asks for."""
    change = args.get("change", {})
    if not isinstance(change, Mapping) or not set(change) <= ASK_KEYS:
        unknown = sorted(set(change) - ASK_KEYS) if isinstance(change, Mapping) else [change]
        raise CannotPlay(f"'change' may not have {unknown[0]!r}")
    asked = {**{key: args[key] for key in ASK_KEYS if key in args}, **change}
    name = player.known_name(args["request"])
    try:
        wants = read_wants(asked)
    except AmountError as error:
        raise Refusal("BadInput", str(error)) from None
    commands.amend(player.state, player.now, _id(player, name), wants, _owner(player, name, args))


def cancel(player: Player, args: Args) -> None:
    """Leave the line."""
    name = player.known_name(args["request"])
    commands.cancel(player.state, player.now, _id(player, name), _owner(player, name, args))


def claim(player: Player, args: Args) -> None:
    """Come for a granted or parked request."""
    name = player.known_name(args["request"])
    commands.claim(player.state, player.now, _id(player, name), _owner(player, name, args))


def renew(player: Player, args: Args) -> None:
    """Ask for another term."""
    _of_lease(player, args, commands.renew)


def keep(player: Player, args: Args) -> None:
    """Undo a reclaim that may be undone by its owner."""
    _of_lease(player, args, commands.keep)


def _of_lease(player: Player, args: Args, command: Any) -> None:
    name = player.known_name(args["lease"])
    lease = _lease(player, name)
    command(player.state, player.now, lease.id, _owner(player, name, args))


def release(player: Player, args: Args) -> None:
    """Give back. ``force`` releases without proof that nothing runs, by a named person."""
    name = player.known_name(args["lease"])
    lease, actor = _lease(player, name), _owner(player, name, args)
    why = str(args.get("reason") or "released")
    if args.get("force"):
        player.servers.set(lease.id, "away")
        commands.gone(player.state, player.now, lease.id, why, forced_by=actor)
    else:
        commands.release(player.state, player.now, lease.id, actor, why)


def preparing(player: Player, args: Args) -> None:
    """The runtime has begun to start a server."""
    lease = _lease(player, player.known_name(args["lease"]))
    player.servers.set(lease.id, "starting")
    commands.preparing(player.state, player.now, lease.id)


def started(player: Player, args: Args) -> None:
    """A server answers."""
    lease = _lease(player, player.known_name(args["lease"]))
    player.servers.set(lease.id, "up")
    commands.started(player.state, player.now, lease.id)


def gone(player: Player, args: Args) -> None:
    """The backend confirms that nothing of a lease runs any more."""
    lease = _lease(player, player.known_name(args["lease"]))
    player.servers.set(lease.id, "away")
    commands.gone(player.state, player.now, lease.id, str(args.get("detail") or ""))


def ended(player: Player, args: Args) -> None:
    """What ran in a lease has ended by itself, with a code or by a signal."""
    lease = _lease(player, player.known_name(args["lease"]))
    how = f"signal {args['signal']}" if "signal" in args else f"code {args.get('code', 0)}"
    player.servers.set(lease.id, "away")
    detail = args.get("detail") or f"ended with {how}"
    commands.gone(player.state, player.now, lease.id, str(detail))


def start_failed(player: Player, args: Args) -> None:
    """A start has failed; what was half started still has to be gone."""
    lease = _lease(player, player.known_name(args["lease"]))
    detail = str(args.get("detail") or "the server did not start")
    commands.start_failed(
        player.state, player.now, lease.id, detail, retry=args.get("retry") is True
    )


def presence(player: Player, args: Args) -> None:
    """Somebody opens the waiting room (and keeps it open) or, ``visible: false``, leaves it."""
    visible = args.get("visible", True)
    if not isinstance(visible, bool):
        raise CannotPlay(f"'visible' is true or false, not {visible!r}")
    subject = args.get("request", _by_server(player, args) or args.get("user"))
    if subject is None:
        raise CannotPlay("'presence' needs a request or a user")
    known = str(subject) in player.names
    args = args if "server" not in args else {**args, "request": subject}
    if "request" in args and not known and str(subject) not in player.scenario.users:
        player.known_name(subject)  # says which names there are
    watching = player.watching if known and "request" in args else player.watching_users
    who = player.names[str(subject)] if watching is player.watching else str(subject)
    if visible:
        watching.add(who)
    else:
        watching.discard(who)
        _forget(player, who)


def _by_server(player: Player, args: Args) -> str | None:
    """The name of the last request for a user's server."""
    if "server" not in args:
        return None
    for name, request_id in reversed(player.names.items()):
        row = player.past_requests[request_id]
        if row.server == args["server"] and args.get("user") in (None, row.user):
            return name
    raise CannotPlay(f"nobody has asked for a server {args['server']!r}")


def _forget(player: Player, who: str) -> None:
    """Whoever leaves is not looking from this moment on."""
    for user, request_id in list(player.state.presence):
        if who in (user, request_id):
            del player.state.presence[user, request_id]


def report(player: Player, args: Args) -> None:
    """A user's server says what it is doing; kept until its next report."""
    name = player.known_name(args["lease"])
    player.reports[player.names[name]] = (player.now, args)


def stage(player: Player, args: Args) -> None:
    """A user's server declares what it is about."""
    name = player.known_name(args["lease"])
    player.stages[player.names[name]] = (player.now, args)


def approve(player: Player, args: Args) -> None:
    """Approve the use of a class by a request, or by all that a user has waiting."""
    valid_for = _valid_for(player, args)
    for request_id in _to_approve(player, args):
        commands.approve(
            player.state,
            player.now,
            request_id,
            _actor(args, "root"),
            str(args.get("reason") or ""),
            valid_for,
        )


def _to_approve(player: Player, args: Args) -> list[str]:
    if "request" in args:
        return [_id(player, player.known_name(args["request"]))]
    if "user" not in args and "class" not in args:
        raise CannotPlay("'approve' needs a request, or a user and a class")
    return [
        row.id
        for row in player.state.requests.values()
        if row.state in ("queued", "parked")
        and args.get("user") in (None, row.user)
        and args.get("class") in (None, row.class_)
    ]


def _valid_for(player: Player, args: Args) -> int | None:
    """``for`` so long, or ``until`` a moment of the timeline; None where neither is said."""
    if "until" in args:
        return player.base + _duration(args["until"]) - player.now
    return _duration(args["for"]) if "for" in args else None


def exempt(player: Player, args: Args) -> None:
    """Except a lease or a user from reclaim, with a reason and an end."""
    if "lease" in args:
        subject = f"lease:{_lease(player, player.known_name(args['lease'])).id}"
    elif "user" in args:
        subject = f"user:{args['user']}"
    elif "class" in args:
        subject = f"class:{args['class']}"
    else:
        raise CannotPlay("'exempt' needs a lease, a user or a class")
    valid_for = _valid_for(player, args)
    ends_at = player.now + (HOUR if valid_for is None else valid_for)
    number = len(player.state.people) + 1
    commands.exempt(
        player.state, player.now, subject, _actor(args, "root"),
        str(args.get("reason") or ""), ends_at, f"exemption-{number}",
    )  # fmt: skip


def confirm(player: Player, args: Args) -> None:
    """A person confirms that a lease may be stopped."""
    lease = _lease(player, player.known_name(args["lease"]))
    commands.confirm(player.state, player.now, lease.id, _actor(args, "root"))


# -- reading -----------------------------------------------------------------------------------


def _duration(value: Any) -> int:
    try:
        return parse_duration(value)
    except AmountError as error:
        raise CannotPlay(str(error)) from None


def _user(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise CannotPlay(f"a user is named by text, not {value!r}")
    return value.removeprefix("user:")


def _groups(player: Player, user: str, args: Args) -> tuple[str, ...]:
    if "groups" in args:
        return names_of("groups", args["groups"])
    if user not in player.scenario.users:
        remark = f"{player.scenario.file}: user {user!r} is not in 'users' and has no groups"
        if remark not in player.outcome.remarks:
            player.outcome.remarks.append(remark)
    return player.scenario.users.get(user, ())


def _actor(args: Args, default: str) -> str:
    name = str(args.get("by") or default)
    return name if ":" in name else f"user:{name}"


def _owner(player: Player, name: str, args: Args) -> str:
    """Who acts: ``by`` where it is given, else whose request it is."""
    return _actor(args, player.request(name).user)


def _id(player: Player, name: str) -> str:
    return player.request(name).id


def _lease(player: Player, name: str) -> Lease:
    lease = player.lease_of(name)
    if lease is None:
        raise Refusal("NotFound", f"request {name} has no lease")
    return lease


HANDLERS: dict[str, Handler] = {
    "request": request,
    "amend": amend,
    "cancel": cancel,
    "claim": claim,
    "renew": renew,
    "keep": keep,
    "release": release,
    "report": report,
    "reading": reading,
    "presence": presence,
    "stage": stage,
    "started": started,
    "preparing": preparing,
    "gone": gone,
    "start_failed": start_failed,
    "exit": ended,
    "approve": approve,
    "exempt": exempt,
    "confirm": confirm,
    "policy": change_policy,
    "node": change_node,
    "device": change_device,
    "drain": drain,
    "pause": pause,
    "runtime": change_runtime,
    "restart": restart,
    "clock": change_clock,
}
