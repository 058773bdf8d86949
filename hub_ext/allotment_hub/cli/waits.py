"""``allotment-hub waits``: how long people wait, when it surged, and why samples did not move."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from allotment_hub.clock import parse_time, show_time

from .output import CheckFailed, UsageError, print_json, table
from .rest import Governor, add_connection

if TYPE_CHECKING:
    from . import Subparsers

COLUMNS = ("granted", "waiting", "gave_up", "mean_s", "p50_s", "p95_s", "p99_s", "max_s")


def register(subparsers: Subparsers) -> None:
    """Add ``waits``."""
    text = "show how long requests wait, and tell from the record why samples did not move"
    parser = subparsers.add_parser("waits", help=text, description=text)
    parser.add_argument(
        "--samples", action="store_true",
        help="tell the longest waited, longest held and hardest to fit step by step",
    )  # fmt: skip
    parser.add_argument("--since", metavar="TIME", help="as 2026-03-29T02:30:00Z (default: all)")
    parser.add_argument(
        "--until", metavar="TIME", help="up to, not including (default: the end of the record)"
    )
    parser.add_argument(
        "--database", "--db", metavar="URL", help="read this ledger instead of asking the governor"
    )
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=waits)


def waits(args: argparse.Namespace) -> int:
    """Show the waits of a period, from a ledger or from the governor."""
    since, until = (_time(name, getattr(args, name)) for name in ("since", "until"))
    if since is not None and until is not None and since >= until:
        raise UsageError(f"--since {args.since} is not before --until {args.until}")
    if args.database is not None and args.url is not None:
        raise UsageError("give --database or --url, not both")
    report = (
        _asked(args) if args.database is None
        else _read(args.database, since, until, samples=args.samples)
    )  # fmt: skip
    if args.json:
        print_json(report)
    else:
        _print(report)
    return 0


def _time(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_time(text)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}") from None


def _asked(args: argparse.Namespace) -> Any:
    given = {"since": args.since, "until": args.until, "samples": "true" if args.samples else None}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return Governor.from_args(args).call("GET", f"/waits/report{'?' if query else ''}{query}")


def _read(address: str, since: int | None, until: int | None, *, samples: bool) -> Any:
    from allotment_hub.domain.findings import findings
    from allotment_hub.domain.state import State
    from allotment_hub.ledger import CannotOpen, Ledger, LedgerError
    from allotment_hub.ledger.past import history_of
    from allotment_hub.views.waits import waits_report

    try:
        with Ledger.open(address, create=False, allow_network=True) as ledger:
            events, offset = history_of(ledger)
            state = State()
            state.load(ledger.load().records)
    except CannotOpen as error:
        raise UsageError(str(error)) from None
    except LedgerError as error:
        raise CheckFailed(str(error)) from None
    first = events[0].at if events else 0
    last = events[-1].at + 1 if events else 0
    return waits_report(
        events, first if since is None else since - offset,
        last if until is None else min(last, until - offset),
        lambda at: show_time(at + offset), samples=samples,
        present=findings(state, last) if until is None else (),
    )  # fmt: skip


def _print(report: Any) -> None:
    print(f"{report['since']} to {report['until']}")
    rows = [("all", *_figures(report["all"]))]
    for by in ("tenant", "class", "shape"):
        rows += [(f"{by} {n}", *_figures(r)) for n, r in report[f"by_{by}"].items()]
    print(table(["", *COLUMNS], rows))
    for surge in report["surges"]:
        by = ", ".join(
            f"{one['tenant']} {one['class']} asked for {one['asked_gpus']:g} GPUs "
            f"(usually {one['usual_gpus']:g})"
            for one in surge["by"]
        )
        print(f"surge {surge['since']} to {surge['until']}: {by or 'no more was asked for'}")
    for finding in report["findings"]:
        print(f"{finding['kind']}: {finding['text']}")
    for name, sample in report.get("samples", {}).items():
        _print_sample(name.replace("_", " "), sample)


def _figures(row: Any) -> list[Any]:
    return [row[name] for name in COLUMNS]


def _print_sample(name: str, sample: Any) -> None:
    if sample is None:
        print(f"{name}: none")
        return
    which = sample.get("request") or sample["lease"]
    print(f"{name}: {which} ({sample['tenant']}, {sample['class']})")
    for step in sample["steps"]:
        print(f"  {step['at']}  {step['text']}")
