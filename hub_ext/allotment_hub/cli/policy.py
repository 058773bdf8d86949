"""``allotment-hub policy``: check, show, compare and apply policies."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import CheckFailed, UsageError, print_json, table
from .rest import Governor, add_connection

if TYPE_CHECKING:
    from allotment_hub.domain.policy import Policy
    from allotment_hub.policyfile import Change, Loaded, Problem

    from . import Subparsers

# The modules that read policies are loaded by the commands that need them: they bring libraries
# whose loading would slow down every other command.


def register(subparsers: Subparsers) -> None:
    """Add ``policy`` and its commands."""
    policy = subparsers.add_parser("policy", help="check, show, compare and apply policies")
    commands = policy.add_subparsers(title="commands", metavar="COMMAND", required=True)

    check_ = _command(commands, "check", check, "find everything that is wrong with a policy file")
    check_.add_argument("file", metavar="FILE", help="policy file, - for standard input")
    check_.add_argument("--inventory", metavar="FILE", help="declared inventory to check against")

    show_ = _command(commands, "show", show, "show a policy with every value that is in force")
    show_.add_argument("file", metavar="FILE", nargs="?", help="default: that of the governor")
    show_.add_argument(
        "--db", "--database", dest="db", metavar="URL", help="show what the ledger there holds"
    )
    show_.add_argument("--origins", action="store_true", help="with where each value comes from")
    show_.add_argument("--brief", action="store_true", help="only what differs from the defaults")
    add_connection(show_)

    diff_ = _command(commands, "diff", diff, "show what differs between two policies")
    diff_.add_argument("old", metavar="A")
    diff_.add_argument("new", metavar="B", nargs="?", help="left out: A against the governor's")
    add_connection(diff_)

    apply_ = _command(commands, "apply", apply, "put a policy in force, whole or not at all")
    apply_.add_argument("file", metavar="FILE")
    apply_.add_argument("--note", default="", help="why, for the history")
    add_connection(apply_)

    dry = _command(
        commands, "dry-run", dry_run, "what a policy would have changed, on the governor"
    )
    dry.add_argument("file", metavar="FILE")
    dry.add_argument("--since", metavar="TIME", help="how far back, such as 7d")
    add_connection(dry)

    history_ = _command(commands, "history", history, "list the versions of the policy")
    add_connection(history_)

    back = _command(commands, "rollback", rollback, "put an earlier version in force again")
    back.add_argument("version", metavar="VERSION", type=int, help="number as in history")
    back.add_argument("--note", default="", help="why, for the history")
    add_connection(back)


def _command(commands: Subparsers, name: str, handler: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=handler)
    return parser


def check(args: argparse.Namespace) -> int:
    """Check a file: 0 where it is fit for use, 1 where not, each fault on a line of stderr."""
    from allotment_hub.policyfile import PolicyError

    nodes = None if args.inventory is None else _inventory(args.inventory)
    try:
        loaded = _load(args.file, nodes)
    except PolicyError as error:
        if args.json:
            print_json({"ok": False, "errors": error.errors, "warnings": []})
        print(error, file=sys.stderr)
        return 1
    if args.json:
        warnings = [one.as_dict() for one in loaded.warnings]
        print_json({"ok": True, "errors": [], "warnings": warnings})
        return 0
    _tell(loaded)
    print(f"{loaded.source}: valid: {_counts(loaded.policy)}")
    return 0


def _tell(loaded: Loaded) -> None:
    for one in loaded.warnings:
        print(_remark(one).text(loaded.source), file=sys.stderr)


def _remark(problem: Problem) -> Problem:
    return dataclasses.replace(problem, path=f"{problem.severity}: {problem.path}")


def _counts(policy: Policy) -> str:
    parts = {
        "tenant": policy.tenants, "pool": policy.pools, "flavor": policy.flavors,
        "class": policy.classes,
    }  # fmt: skip
    return ", ".join(
        f"{len(named)} {name if len(named) == 1 else name + ('es' if name == 'class' else 's')}"
        for name, named in parts.items()
    )


def show(args: argparse.Namespace) -> int:
    """Show a policy in full, from a file, a ledger or the governor."""
    from allotment_hub.policyfile import effective, policy_data, to_yaml

    if args.file is not None and args.db is not None:
        raise UsageError("give a FILE or --db, not both")
    loaded = _from_file_or_governor(args) if args.db is None else _from_ledger(args.db)
    if args.origins:
        settings = effective(loaded)
        if args.json:
            print_json([one.as_dict() for one in settings])
        else:
            rows = [(one.path, _written(one.value), one.origin) for one in settings]
            print(table(["path", "value", "origin"], rows))
        return 0
    data = policy_data(loaded.policy, full=not args.brief)
    if args.json:
        print_json(data)
    else:
        print(to_yaml(data), end="")
    return 0


def _from_file_or_governor(args: argparse.Namespace) -> Loaded:
    if args.file is not None:
        return _usable(args.file)
    return _governor_policy(Governor.from_args(args))


def _governor_policy(governor: Governor) -> Loaded:
    from allotment_hub.policyfile import PolicyError, load_policy

    answer = governor.call("GET", "/policy")
    source = answer.get("text") or answer.get("policy") if isinstance(answer, dict) else None
    if not isinstance(source, (str, dict)):
        raise CheckFailed(f"{governor.url}/policy answers with no policy")
    try:
        return load_policy(source, name=f"{governor.url}/policy")
    except PolicyError as error:
        raise CheckFailed(
            f"the governor's answer is not a policy this release reads: {error}"
        ) from None


def _from_ledger(address: str) -> Loaded:
    from allotment_hub.domain.events import PolicyVersion
    from allotment_hub.ledger import CannotOpen, Ledger, LedgerError
    from allotment_hub.policyfile import dump_policy, load_policy

    try:
        with Ledger.open(address, create=False, allow_network=True) as ledger:
            records = ledger.load().records
    except CannotOpen as error:
        raise UsageError(str(error)) from None
    except LedgerError as error:
        raise CheckFailed(str(error)) from None
    versions = [one for one in records if isinstance(one, PolicyVersion)]
    if not versions:
        raise CheckFailed("the ledger holds no policy yet")
    newest = max(versions, key=lambda one: one.number)
    return load_policy(dump_policy(newest.policy), name=f"version {newest.number}")


def diff(args: argparse.Namespace) -> int:
    """Show what differs; 0 whether or not anything does."""
    from allotment_hub.policyfile import diff_policies

    if args.new is None:
        old = _governor_policy(Governor.from_args(args)).policy
        new = _usable(args.old).policy
    else:
        old, new = _usable(args.old).policy, _usable(args.new).policy
    changes = diff_policies(old, new)
    if args.json:
        print_json(changes)
    else:
        print(_changes(changes))
    return 0


def _changes(changes: list[Change]) -> str:
    if not changes:
        return "no difference"
    return "\n".join(
        f"{one['path']}: {_written(one['before'])} → {_written(one['after'])}" for one in changes
    )


def _written(value: Any) -> str:
    if value is None:
        return "(nothing)"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def apply(args: argparse.Namespace) -> int:
    """Check a file here, then hand it to the governor, which takes it whole or not at all."""
    loaded = _usable(args.file)
    _tell(loaded)
    governor = Governor.from_args(args)
    text = _text(loaded)
    looked_at = governor.call("POST", "/policy/check", {"text": text})
    answer = governor.call("PUT", "/policy", {"text": text, "note": args.note})
    if not args.json and isinstance(looked_at, dict):
        print(_changes(looked_at.get("changes") or []))
        for one in looked_at.get("never") or []:
            print(f"request {one.get('request')} can never start under it: {one.get('code')}",
                  file=sys.stderr)  # fmt: skip
    return _told(args, answer, "applied")


def dry_run(args: argparse.Namespace) -> int:
    """Ask the governor what a policy would have changed."""
    loaded = _usable(args.file)
    body = {"text": _text(loaded)}
    if args.since is not None:
        body["since"] = args.since
    answer = Governor.from_args(args).call("POST", "/policy/dry-run", body)
    if args.json or not isinstance(answer, dict):
        print_json(answer)
    else:
        _print_dry_run(answer)
    return 0


def _print_dry_run(report: dict[str, Any]) -> None:
    """Who would have waited more or less, by tenant and class, and what else would differ."""
    hours = report["span_s"] / 3600
    print(f"{report['requests']} requests of {hours:.1f} hours, replayed under both policies")
    rows = [("all", *_compared(report))]
    for by in ("tenant", "class"):
        rows += [(f"{by} {name}", *_compared(row)) for name, row in report[f"by_{by}"].items()]
    head = ["", "longer", "shorter", "mean wait s", "p95 wait s", "asked back", "refused"]
    print(table(head, rows))
    for row in report["most_changed"][:10]:
        waits = row["wait_s"]
        print(f"{row['request']} ({row['tenant']}, {row['gpus']:g} GPUs): "
              f"waits {waits['old']:g} s → {waits['new']:g} s")  # fmt: skip
    for row in report["refused"][:10]:
        print(f"{row['request']} ({row['tenant']}) would be refused: {row['refused']['new']}")
    if report["left_out"]:
        print(f"left out: {report['left_out']} requests that never ran")
    for one in report["not_replayed"]:
        print(f"not replayed: {one}")


def _compared(row: dict[str, Any]) -> list[Any]:
    def both(values: dict[str, Any], key: str | None = None) -> str:
        shown = [values[side] if key is None else values[side][key] for side in ("old", "new")]
        return " → ".join("-" if one is None else f"{one:g}" for one in shown)

    return [
        row["longer"], row["shorter"], both(row["wait_s"], "mean"), both(row["wait_s"], "p95"),
        both(row["returns"]), both(row["rejected"]),
    ]  # fmt: skip


def history(args: argparse.Namespace) -> int:
    """List the versions, newest last, as the governor has them."""
    answer = Governor.from_args(args).call("GET", "/policy/history")
    if args.json:
        print_json(answer)
        return 0
    versions = answer.get("versions", []) if isinstance(answer, dict) else answer
    rows = [
        (
            one.get("version", one.get("number")),
            one.get("at"),
            one.get("by"),
            one.get("note") or None,
        )
        for one in versions or []
        if isinstance(one, dict)
    ]
    print(table(["version", "since", "by", "note"], rows))
    return 0


def rollback(args: argparse.Namespace) -> int:
    """Put an earlier version in force again, as a new version."""
    if args.version < 1:
        raise UsageError(f"{args.version} is not a version; see 'allotment-hub policy history'")
    body = {"to": args.version, "note": args.note}
    answer = Governor.from_args(args).call("POST", "/policy/rollback", body)
    return _told(args, answer, f"rolled back to version {args.version}")


def _told(args: argparse.Namespace, answer: Any, done: str) -> int:
    if args.json:
        print_json(answer)
        return 0
    number = None
    if isinstance(answer, dict):
        number = answer.get("version", answer.get("number"))
    print(done if number is None else f"{done}; version {number} is in force")
    return 0


_LARGEST_TEXT = 60_000
"""Longest text that the governor takes; a longer file is sent without its comments."""


def _text(loaded: Loaded) -> str:
    from allotment_hub.policyfile import dump_policy

    text = loaded.document.text
    if text is None or len(text) > _LARGEST_TEXT:
        return dump_policy(loaded.policy)
    return text


def _load(file: str, nodes: Any = None) -> Loaded:
    from allotment_hub.policyfile import load_policy

    try:
        if file == "-":
            return load_policy(sys.stdin.buffer.read(), inventory=nodes, name="<stdin>")
        return load_policy(Path(file), inventory=nodes)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def _usable(file: str) -> Loaded:
    """Load a file for a command that needs a good one: a bad one is wrong input."""
    from allotment_hub.policyfile import PolicyError

    try:
        return _load(file)
    except PolicyError as error:
        raise UsageError(str(error)) from None


def _inventory(file: str) -> Any:
    from allotment_hub.policyfile import InventoryError, load_inventory

    try:
        return load_inventory(Path(file))
    except InventoryError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
