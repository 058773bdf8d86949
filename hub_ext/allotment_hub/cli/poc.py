"""``allotment-hub poc``: the acceptance kit, played, proved and told on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .output import CheckFailed, UsageError, print_json

if TYPE_CHECKING:
    from allotment_hub.poc.running import Verdict

    from . import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add ``poc``."""
    text = "play the acceptance kit and write a report for people who choose a platform"
    parser = subparsers.add_parser("poc", help=text, description=text)
    parser.add_argument("--out", metavar="DIR", required=True, help="where report.html goes")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--live", metavar="URL", help="run what can be run over REST against this governor instead"
    )
    parser.add_argument(
        "--token", help="token for --live (default: ALLOTMENT_TOKEN, which no process list shows)"
    )
    parser.set_defaults(handler=poc)


def poc(args: argparse.Namespace) -> int:
    """Run the kit: 0 where every must that is built holds, 1 where not."""
    from allotment_hub.poc.json_report import as_json
    from allotment_hub.poc.report import write
    from allotment_hub.poc.running import run_kit

    if args.token is not None and args.live is None:
        raise UsageError("--token goes with --live URL")
    verdict = run_kit() if args.live is None else _live(args)
    try:
        write(verdict, Path(args.out))
    except OSError as error:
        raise UsageError(f"--out {args.out}: cannot be written: {error.strerror}") from None
    if args.json:
        print_json(as_json(verdict))
    else:
        _print(verdict, args.out)
    if not verdict.ok:
        raise CheckFailed("\n".join(_wrong(verdict)))
    return 0


def _live(args: argparse.Namespace) -> Verdict:
    from allotment_hub.poc.live import run_live

    from .rest import Governor

    args.url = args.live
    return run_live(Governor.from_args(args).call)


def _print(verdict: Verdict, out: str) -> None:
    for result in verdict.results:
        print(f"{result.status:<10}  {result.item.mark:<10}  {result.item.title}")
    for line in verdict.lines:
        print(f"{'not crossed' if line.holds else 'CROSSED'}: {line.title} ({line.looked_at})")
    passed, whole = verdict.score
    print(f"score {passed} of {whole}; see {out}/report.html")


def _wrong(verdict: Verdict) -> list[str]:
    lines = [
        f"{result.item.id}: {failure}"
        for result in verdict.results
        for failure in result.failures or ()
        if result.status == "failed"
    ]
    return lines + [
        f"red line {line.title!r}: {one}" for line in verdict.lines for one in line.crossed
    ]
