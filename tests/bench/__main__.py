"""Runs benchmarks and prints one JSON line per figure.

``python -m tests.bench [--only B1,B3] [--scale 0.1]``. Each module ``b<number>_<what>.py`` here
offers ``run(scale)``, which yields figures: mappings with at least ``figure`` and ``value``, and
``reference``, ``ratio``, ``target`` and ``met`` where they apply. A benchmark is never a timed
test: figures are reported, and only a benchmark that breaks makes the command fail.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"b(\d+)(_\w+)?")


def available() -> dict[str, str]:
    """The benchmarks there are: their names, like ``B6``, and modules, in the order of number."""
    found = [m for p in Path(__file__).parent.glob("b*.py") if (m := _NAME.fullmatch(p.stem))]
    found.sort(key=lambda m: int(m[1]))
    return {f"B{m[1]}": f"{__package__}.{m[0]}" for m in found}


def chosen(only: str | None, names: Iterable[str]) -> list[str]:
    """Which benchmarks to run: all of `names`, or those listed in `only`, separated by commas.

    Raises
    ------
    ValueError
        When `only` lists one that does not exist.
    """
    names = list(names)
    if not only:
        return names
    wanted = [w.strip().upper() for w in only.split(",") if w.strip()]
    unknown = [w for w in wanted if w not in names]
    if unknown:
        raise ValueError(f"--only: no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    return wanted


def measure(name: str, module: str, scale: float) -> bool:
    """Run one benchmark, print its figures as they come, and tell whether it ran to its end."""
    try:
        figures: Iterable[Mapping[str, Any]] = importlib.import_module(module).run(scale)
        for figure in figures:
            print(json.dumps({"bench": name, **figure}, ensure_ascii=False), flush=True)
    except Exception:  # one broken benchmark must not hide the figures of the others
        traceback.print_exc()
        return False
    return True


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code: 0 done, 1 a benchmark broke, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Run benchmarks.")
    parser.add_argument("--only", help="names separated by commas, like B1,B3")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the work, 0 to 1")
    options = parser.parse_args(argv)
    if not 0 < options.scale <= 1:
        parser.error(f"--scale: {options.scale} is not above 0 and at most 1")
    modules = available()
    try:
        names = chosen(options.only, modules)
    except ValueError as error:
        parser.error(str(error))
    ran = [measure(name, modules[name], options.scale) for name in names]
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
