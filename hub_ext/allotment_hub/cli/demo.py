"""``allotment-hub demo``: a hub to try everything on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .output import CheckFailed, UsageError

if TYPE_CHECKING:
    from . import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add ``demo``."""
    parser = subparsers.add_parser(
        "demo",
        help="start a demonstration hub on loopback",
        description="Start a JupyterHub on loopback with two declared nodes, three teams and some "
        "demand, say where to go, and end it all with Ctrl-C. No GPU is needed.",
    )
    add = parser.add_argument
    add(
        "--check", action="store_true", help="walk through the main story, print its evidence, exit"
    )
    add("--port", type=int, metavar="N", help="port of the hub (default: 8000, or a free one)")
    add(
        "--dir",
        type=Path,
        metavar="DIR",
        help="keep everything there (default: a temporary folder)",
    )
    parser.set_defaults(handler=demo)


def demo(args: argparse.Namespace) -> int:
    """Run it until the story or somebody ends it."""
    from allotment_hub.demo.running import run
    from allotment_hub.demo.waiting import DemoError, WrongUse

    try:
        run(
            check=args.check,
            port=args.port,
            folder=args.dir,
            say=lambda text: print(text, flush=True),
        )
    except WrongUse as error:
        raise UsageError(f"demo: {error}") from None
    except DemoError as error:
        raise CheckFailed(f"demo: {error}") from None
    return 0
