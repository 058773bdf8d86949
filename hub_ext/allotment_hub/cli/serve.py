"""``allotment-hub serve``: run the governor."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import CheckFailed, UsageError

if TYPE_CHECKING:
    from allotment_hub.web.early import Early

    from . import Subparsers

SETTINGS = (
    "policy", "inventory", "ip", "port", "prefix", "tokens", "guest", "start_after", "stop_after",
    "parallel_starts", "log_level",
)  # fmt: skip


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="run the governor",
        description="Run the governor: as the hub's service, or with --standalone without a hub.",
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="configuration file (c.GovernorApp.… = …)")
    add("--policy", metavar="FILE", help="policy file; applied when its content has changed")
    add(
        "--db", dest="database", metavar="URL", help="ledger: a path, sqlite:///… or postgresql://…"
    )
    add("--inventory", metavar="FILE", help="declared inventory (default: this machine, by NVML)")
    add("--ip", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen on (default: that of the hub's service)")
    add("--prefix", metavar="PATH", help="where the service is mounted")
    add("--standalone", action="store_true", default=None, help="without a hub")
    add("--tokens", metavar="FILE", help="standalone: whose each token is")
    add("--guest", metavar="NAME", help="standalone: as whom a request without a token counts")
    add("--start-after", metavar="TIME", help="standalone: how long a start takes (default: 2s)")
    add("--stop-after", metavar="TIME", help="standalone: how long a stop takes (default: 1s)")
    add("--parallel-starts", type=int, metavar="N", help="servers coming up at the same time")
    add("--open-metrics", action="store_true", default=None, help="metrics for whoever asks")
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default: INFO")
    parser.set_defaults(handler=serve)


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line."""
    names = (*SETTINGS, "standalone", "open_metrics")
    found = {name: getattr(args, name) for name in names}
    if args.database is not None:
        found["database"] = (
            args.database if "://" in args.database else f"sqlite:///{args.database}"
        )
    return {name: value for name, value in found.items() if value is not None}


def take_port(args: argparse.Namespace) -> Early | None:
    """Take the port before anything large is loaded, where it is known so early; None elsewhere."""
    from urllib.parse import urlsplit

    from allotment_hub.web.early import Early

    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
    host, port = args.ip or "127.0.0.1", args.port
    if port is None and args.config is None and url.hostname and url.port:
        host, port = url.hostname, url.port
    if not port or (args.ip is None and args.config is not None):
        return None
    prefix = args.prefix or os.environ.get("JUPYTERHUB_SERVICE_PREFIX") or "/services/allotment/"
    try:
        return Early(host, port, prefix if prefix.endswith("/") else f"{prefix}/")
    except (OSError, OverflowError):
        return None  # taken still, perhaps by the governor before us: the application waits for it


def serve(args: argparse.Namespace) -> int:
    """Run the governor until it is told to end."""
    early = take_port(args)
    # Brings tornado, SQLAlchemy and the hub's client, which other commands do without.
    from traitlets import TraitError
    from traitlets.config import Config

    from allotment_hub.app import GovernorApp, PortTaken, StartError

    app = GovernorApp(log_level="INFO")
    app.early = early
    try:
        if args.config is not None:
            # traitlets passes over a file that is missing or broken, with a line in the log.
            if not Path(args.config).is_file():
                raise UsageError(f"{args.config}: there is no such file")
            app.raise_config_file_errors = True
            app.load_config_file(args.config)
        # After the file: what was typed wins.
        app.update_config(Config({"GovernorApp": settings_of(args)}))
    except (TraitError, OSError) as error:
        raise UsageError(str(error)) from None
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{args.config}: {error}") from None
    try:
        return app.start()
    except StartError as error:
        raise UsageError(str(error)) from None
    except PortTaken as error:
        raise CheckFailed(str(error)) from None
