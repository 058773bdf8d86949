"""The command ``allotment``: what a researcher asks and does from a terminal.

Exit code 0 is done, 1 means that the thing asked about is not so (refused, not found, nothing to
renew, no answer), 2 wrong usage or input; the last two say why in one line on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from .client import AllotmentError, Client, NotConfigured, Refused, Unreachable
from .report import Report, shape
from .words import Times, parse_time, plain

INPUT_STATUS = frozenset({400, 401, 403, 413, 415, 422})
"""What the governor answers where the input, the token or the right is wrong."""


class UsageError(Exception):
    """What was typed cannot be meant; the text says what would be right."""


class Missing(Exception):
    """The thing asked about is not there."""


class _Parser(argparse.ArgumentParser):
    """Wrong usage in one line, not with the whole synopsis before it."""

    def error(self, message: str) -> Any:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = _Parser(
        prog="allotment",
        description="GPUs shared by rule: ask, see your place and why, renew, give back.",
        epilog="Where: ALLOTMENT_URL, ALLOTMENT_TOKEN (inside a session both are known).",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="the governor's answer as JSON")
        sub.add_argument("--url", help="address of the service (default: ALLOTMENT_URL)")
        sub.set_defaults(run=run)
        return sub

    add("status", status, "your sessions, waiting requests and teams")
    add("capacity", capacity, "what there is, what is free, and what is neither and why")
    queue_parser = add("queue", queue, "who waits: yours, your team's if you own it, all if admin")
    queue_parser.add_argument("--all", action="store_true", help="also what is over")
    add("usage", usage, "GPU-hours and what they cost, by team, person and kind of GPU")
    _add_request(add("request", request, "ask for GPUs"))
    for name, run, text in (
        ("cancel", cancel, "leave the line"),
        ("claim", claim, "take what is held for you, or rejoin the line with your age"),
    ):
        sub = add(name, run, text)
        sub.add_argument("id", nargs="?", metavar="REQUEST", help="may be left out if only one")
    for name, run, text in (
        ("renew", renew, "a further term for a session"),
        ("keep", keep, "answer a notice: the session is still wanted"),
        ("release", release, "stop a session and give its GPUs back"),
    ):
        sub = add(name, run, text)
        sub.add_argument("id", nargs="?", metavar="LEASE", help="may be left out if only one")
    return parser


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", required=True, help="how many, such as 2 or 0.25")
    parser.add_argument("--flavor", help="which kind (see: allotment capacity); default any")
    parser.add_argument("--for", dest="duration", metavar="TIME", help="90s, 20m, 4h or 7d")
    parser.add_argument("--tenant", help="for which of your teams")
    parser.add_argument("--class", dest="class_", metavar="CLASS", help="kind of work")
    parser.add_argument("--pool")
    parser.add_argument("--nodes", type=int, help="spread evenly over so many nodes")
    parser.add_argument("--min-memory", metavar="SIZE", help="of each GPU, such as 40GiB")
    parser.add_argument("--nvlink", action="store_true", help="joined by NVLink")
    parser.add_argument("--interruptible", choices=("no", "checkpoint", "stateless"))
    parser.add_argument("--no-borrow", action="store_true", help="only within the guarantee")
    parser.add_argument("--server", help="name of the server to start (default: the default one)")
    parser.add_argument("--start", choices=("present", "always"), help="when your turn comes")
    parser.add_argument("--key", help="idempotency key: the same twice asks once")
    parser.add_argument("--wait", action="store_true", help="follow until it is your turn")
    parser.add_argument("--preview", action="store_true", help="only say what would be decided")


def wants_of(args: argparse.Namespace) -> dict[str, Any]:
    """The request as the interface takes it.

    Raises
    ------
    UsageError
        If ``--gpus`` is no number.
    """
    try:
        gpus = float(args.gpus)
    except ValueError:
        gpus = float("nan")
    if not 0 < gpus < 1e7:
        raise UsageError(f"--gpus {args.gpus}: write a number above 0, such as 2 or 0.25")
    given = {
        "flavor": args.flavor,
        "duration": args.duration,
        "tenant": args.tenant,
        "class": args.class_,
        "pool": args.pool,
        "nodes": args.nodes,
        "min_memory": args.min_memory,
        "interruptible": args.interruptible,
        "server": args.server,
        "start": args.start,
        "nvlink": True if args.nvlink else None,
        "borrow": False if args.no_borrow else None,
    }
    wants: dict[str, Any] = {"gpus": int(gpus) if gpus.is_integer() else gpus}
    wants.update({key: value for key, value in given.items() if value is not None})
    return wants


# --- commands: each prints and returns the exit code


def status(context: Context) -> int:
    """Sessions, waiting requests and teams of the caller."""
    me = context.client.me()
    return context.show(me, lambda report: report.me(me))


def capacity(context: Context) -> int:
    """What there is and what of it serves."""
    there = context.client.capacity()
    return context.show(there, lambda report: report.capacity(there))


def usage(context: Context) -> int:
    """GPU-hours, of which borrowed, and their cost."""
    there = context.client.usage()
    return context.show(there, lambda report: report.usage(there))


def _waits(row: Mapping[str, Any]) -> bool:
    """Whether a request waits: in line, parked, or granted and not fetched yet."""
    if row.get("state") == "granted":
        return bool(row.get("reasons"))
    return row.get("state") in ("queued", "parked")


def queue(context: Context) -> int:
    """Who waits, as far as the caller may see."""
    rows = context.client.requests()
    if not context.args.all:
        rows = [row for row in rows if _waits(row)]
    rows.sort(key=lambda row: (row.get("position") or 1 << 30, str(row.get("submitted_at"))))
    return context.show(rows, lambda report: report.queue(rows))


def request(context: Context) -> int:
    """Ask for GPUs, or only ask what would be decided."""
    args, client = context.args, context.client
    wants = wants_of(args)
    if args.preview:
        preview = client.preview(wants)
        context.show(preview, lambda report: report.preview(wants, preview))
        return 1 if str(preview.get("decision", "")) in ("refused", "rejected") else 0
    asked = client.submit(wants, key=args.key)
    if args.wait and asked.get("state") in ("queued", "parked"):
        for now in client.wait(str(asked["id"])):
            asked = now
            if not args.json:
                context.follow(now)
        if args.json:
            context.show(asked, lambda report: [])
    else:
        context.show(asked, lambda report: report.request(asked))
    return 0 if asked.get("state") in ("queued", "parked", "granted", "done") else 1


def cancel(context: Context) -> int:
    """Leave the line."""
    done = context.client.cancel(context.request_id())
    return context.show(done, lambda report: [f"Left the line: {shape(done)}."])


def claim(context: Context) -> int:
    """Take what is held, or rejoin the line."""
    done = context.client.claim(context.request_id(("granted", "parked")))
    return context.show(done, lambda report: report.request(done))


def renew(context: Context) -> int:
    """Begin a further term."""
    done = context.client.renew(context.lease_id())
    return context.show(done, lambda report: report.renewed(done))


def keep(context: Context) -> int:
    """Answer a notice."""
    done = context.client.keep(context.lease_id())
    return context.show(done, lambda report: report.kept(done))


def release(context: Context) -> int:
    """Give devices back."""
    done = context.client.release(context.lease_id())
    return context.show(done, lambda report: report.released(done))


class Context:
    """One call of the command: its arguments, the client and where to write."""

    def __init__(self, args: argparse.Namespace, client: Client, out: TextIO) -> None:
        self.args, self.client, self.out = args, client, out

    def show(self, answer: Any, lines: Callable[[Report], Sequence[str]]) -> int:
        """Print the answer as JSON or in words; always done, hence 0."""
        if self.args.json:
            text = json.dumps(answer, ensure_ascii=False, indent=2)
        else:
            report = Report(Times(parse_time(self.client.server_time)))
            text = "\n".join(lines(report))
        if text:
            print(text, file=self.out, flush=True)
        return 0

    def follow(self, row: Mapping[str, Any]) -> None:
        """Print what has changed about a request that is followed."""
        self.show(row, lambda report: report.progress(row))

    def request_id(self, states: Sequence[str] = ("queued", "parked", "granted")) -> str:
        """The request meant: as given, by the start of its id, or the only one there is."""
        given: str | None = self.args.id
        rows = [row for row in self.client.me().get("requests", []) if row.get("state") in states]
        return _pick(given, rows, "request", "allotment queue", {})

    def lease_id(self) -> str:
        """The lease meant: by its id, its request's id, the start of either, or the only one."""
        given: str | None = self.args.id
        rows = [row for row in self.client.me().get("leases", []) if row.get("state") != "released"]
        by_request = {str(row.get("request")): str(row.get("id")) for row in rows}
        return _pick(given, rows, "session", "allotment status", by_request)


def _pick(
    given: str | None,
    rows: Sequence[Mapping[str, Any]],
    noun: str,
    look: str,
    other_names: Mapping[str, str],
) -> str:
    ids = [str(row.get("id")) for row in rows]
    if given is None:
        if not ids:
            raise Missing(f"you have no {noun} that this could mean (see: {look})")
        if len(ids) > 1:
            raise UsageError(f"which {noun}? you have {', '.join(map(plain, ids))} (see: {look})")
        return ids[0]
    if given in other_names:
        return other_names[given]
    names = {**{one: one for one in ids}, **other_names}
    starts = {target for name, target in names.items() if name.startswith(given)}
    if given not in ids and len(starts) > 1:
        raise UsageError(f"{plain(given)} could be {', '.join(sorted(map(plain, starts)))}")
    # What is not among one's own may be a team's: the governor knows whether it may be touched.
    return starts.pop() if given not in ids and starts else given


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        context = Context(args, Client(args.url), sys.stdout)
        code: int = args.run(context)
    except (UsageError, NotConfigured, ValueError) as error:
        return _fail(str(error), 2)
    except Refused as refused:
        return _fail(str(refused), 2 if refused.status in INPUT_STATUS else 1)
    except (Missing, Unreachable, AllotmentError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("stopped; a request in the line keeps its place", 1)
    except BrokenPipeError:
        return 0
    return code


def _fail(text: str, code: int) -> int:
    print(f"allotment: {plain(' '.join(text.split()))}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
