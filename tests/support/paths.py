"""Where things lie, so that no test spells a path."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROXY = ROOT / "node_modules" / ".bin" / "configurable-http-proxy"
CHROMIUM = Path("/usr/bin/chromium")


def proxy_command() -> list[str]:
    """The value of ``c.ConfigurableHTTPProxy.command`` for hubs that tests start.

    Raises
    ------
    FileNotFoundError
        When `make setup` has not been run.
    """
    if not PROXY.exists():
        raise FileNotFoundError(f"{PROXY} is missing: run `make setup`")
    return [str(PROXY)]


def traces_dir() -> Path | None:
    """The folder of public traces that benchmarks replay, or None where there is none.

    ``ALLOTMENT_TRACES`` names it; else a folder ``shared/traces`` beside the checkout is used.
    """
    folder = Path(os.environ.get("ALLOTMENT_TRACES") or ROOT.parent / "shared" / "traces")
    return folder if folder.is_dir() else None


def in_ci() -> bool:
    """Whether a missing tool is a failure rather than a reason to skip."""
    return bool(os.environ.get("CI"))
