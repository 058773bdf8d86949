"""The command ``allotment-hub``: what an operator asks and does.

Each module of this package that has ``register(subparsers)`` adds its commands; a command sets
``handler``, a function from the parsed arguments to the exit code::

    def register(subparsers: Subparsers) -> None:
        parser = subparsers.add_parser("backup", help="…")
        parser.set_defaults(handler=backup)

Exit codes: 0 done; 1 the thing asked about is not so (a check failed, refused, no answer); 2 wrong
usage or input. The last two say why on stderr, one line for each fault.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from .output import CheckFailed, UsageError

PROGRAM = "allotment-hub"

if TYPE_CHECKING:
    # argparse has no public name for this type.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - see above

__all__ = ["CheckFailed", "UsageError", "build_parser", "main"]


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the usage in one line, not after the whole synopsis."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _modules() -> Iterator[ModuleType]:
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if found.name == "__main__":
            continue  # importing it runs the command once more
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "register"):
            yield module


def _version() -> str:
    try:
        return version("jupyter-allotment")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown version"


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = Parser(
        prog=PROGRAM,
        description="Shares a pool of GPUs among the tenants of a JupyterHub, by rule.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {_version()}")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=Parser
    )
    for module in _modules():
        module.register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the name of the program; those of the process by default.

    Returns
    -------
    int
        The exit code: 0, 1 or 2, and 130 after an interrupt.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show is spelt out
            stream.reconfigure(errors="backslashreplace")
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:  # help, version and wrong usage end the process otherwise
        return stop.code if isinstance(stop.code, int) else 2
    try:
        code: int = args.handler(args)
        sys.stdout.flush()
    except UsageError as error:
        return _say(str(error), 2)
    except CheckFailed as error:
        return _say(str(error), 1)
    except BrokenPipeError:  # `| head` has seen enough; nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _say(message: str, code: int) -> int:
    for line in message.splitlines():
        print(line, file=sys.stderr)
    return code
