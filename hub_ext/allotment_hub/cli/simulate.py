"""``allotment-hub simulate``: replay recorded demand under a policy, in virtual time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import CheckFailed, UsageError, print_json

if TYPE_CHECKING:
    from allotment_hub.domain.inventory import Node
    from allotment_hub.domain.policy import Policy
    from allotment_hub.simulate.replay import Options

    from . import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add ``simulate``."""
    text = "replay recorded demand under a policy, by the real decisions, in virtual time"
    parser = subparsers.add_parser("simulate", help=text, description=text)
    parser.add_argument("--policy", metavar="FILE", required=True, help="policy file")
    parser.add_argument("--inventory", metavar="FILE", required=True, help="declared inventory")
    parser.add_argument(
        "--trace", metavar="FILE", required=True, help="CSV of jobs, sorted by submit_s"
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="where summary.json and decisions.jsonl go"
    )
    parser.add_argument(
        "--sample", metavar="SHARE", type=float, default=1.0,
        help="replay a random share of the jobs, 0 to 1 (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="what --sample draws by (default: 0)"
    )
    parser.add_argument(
        "--no-reclaim", action="store_true", help="ask no borrowed lease back for its owner"
    )
    parser.add_argument(
        "--restart-from-zero", action="store_true",
        help="what is taken back begins anew instead of going on from its checkpoint",
    )  # fmt: skip
    parser.add_argument(
        "--placement", choices=("best-fit", "fragmentation-gradient"), default="best-fit"
    )
    parser.add_argument(
        "--anywhere", action="store_true",
        help="let the devices of a job lie on any nodes: count shapes, do not place them",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="check the invariants after every step (slow)"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(handler=simulate)


def simulate(args: argparse.Namespace) -> int:
    """Replay: 0 done, 1 where a checked invariant does not hold, 2 for input that is wrong."""
    from allotment_hub.clock import stopwatch
    from allotment_hub.simulate.replay import Options, replay
    from allotment_hub.simulate.report import summary, writing

    if not 0 < args.sample <= 1:
        raise UsageError(f"--sample {args.sample:g}: has to be above 0 and at most 1")
    policy, nodes, jobs = _read(args)
    options = Options(
        reclaim=not args.no_reclaim,
        restart_from_zero=args.restart_from_zero,
        anywhere=args.anywhere,
        placement=args.placement,
        check=args.check,
    )
    watch = stopwatch()
    try:
        with writing(Path(args.out)) as writer:
            outcome = replay(policy, nodes, jobs, options, writer.line)
            figures = {
                **summary(outcome.account, watch()),
                "options": _options(options, args),
                "violations": [str(one) for one in outcome.violations],
            }
            writer.finish(figures)
    except OSError as error:
        raise UsageError(f"--out {args.out}: cannot be written: {error.strerror}") from None
    if args.json:
        print_json(figures)
    else:
        _print(figures, args.out)
    if outcome.violations:
        raise CheckFailed("\n".join(str(one) for one in outcome.violations))
    return 0


def _read(args: argparse.Namespace) -> tuple[Policy, tuple[Node, ...], list[Any]]:
    """Read all three files; what is wrong in any of them ends the command before it writes."""
    from allotment_hub.policyfile import FileError, load_inventory, load_policy
    from allotment_hub.simulate.replay_sample import sample
    from allotment_hub.simulate.traces import load_trace

    path = args.policy
    try:
        policy = load_policy(Path(path)).policy
        path = args.inventory
        nodes = load_inventory(Path(path), policy)
        path = args.trace
        jobs = load_trace(Path(path), policy)
    except FileError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return policy, nodes, sample(jobs, args.sample, args.seed)


def _options(options: Options, args: argparse.Namespace) -> dict[str, Any]:
    return {
        "reclaim": options.reclaim,
        "restart_from_zero": options.restart_from_zero,
        "anywhere": options.anywhere,
        "placement": options.placement,
        "sample": args.sample,
        "seed": args.seed,
    }


def _print(figures: dict[str, Any], out: str) -> None:
    waits, inside = figures["wait_s"], figures["in_guarantee_wait_s"]
    print(
        f"{figures['jobs']} jobs: {figures['started']} started, {figures['finished']} finished, "
        f"{figures['rejected']} rejected, {figures['never_started']} never started"
    )
    print(f"wait            {_row(waits)}")
    print(f"  in guarantee  {_row(inside)}")
    print(
        f"allocation {figures['allocation']:.1%}, utilisation {figures['utilisation']:.1%}, "
        f"{figures['evictions']} evictions, {figures['lost_gpu_s'] / 3600:.1f} GPU-hours lost"
    )
    print(f"{figures['decisions']} decisions in {figures['wall_s']} s; see {out}/summary.json")


def _row(values: dict[str, float | None]) -> str:
    shown = [(name, value) for name, value in values.items() if value is not None]
    return ", ".join(f"{name} {value:g} s" for name, value in shown) or "nobody started"
