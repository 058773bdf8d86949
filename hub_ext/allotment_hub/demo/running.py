"""One run of the demonstration from its first file to its last process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from allotment_hub.clock import stopwatch

from . import demand
from .calls import SERVICE
from .folder import Setup, make_setup, write_files
from .hub import DemoHub
from .story import walk
from .waiting import Interrupted, Patience, WrongUse, interruptible

Print = Callable[[str], None]


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """The folder that was named, which stays, or one that vanishes afterwards."""
    if given is None:
        with tempfile.TemporaryDirectory(
            prefix="allotment-demo-", ignore_cleanup_errors=True
        ) as made:
            yield Path(made)
        return
    folder = given.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise WrongUse(f"{folder}: cannot be made: {error.strerror}") from None
    if any(folder.iterdir()) and not (folder / "settings.json").exists():
        raise WrongUse(f"{folder} holds something else; name a new folder or an earlier demo's")
    yield folder


def run(
    *, check: bool = False, port: int | None = None, folder: Path | None = None, say: Print = print
) -> None:
    """Start the demonstration; walk its story and end it, or leave it until it is interrupted.

    Raises
    ------
    DemoError
        It cannot be started, or a step of the story does not hold.
    WrongUse
        The port is taken, or the folder holds something else or, for the story, an earlier one.
    """
    patience = Patience()
    since = stopwatch()
    with interruptible(patience), _folder(folder) as place:
        used = (place / "allotment.sqlite").exists()
        if check and used:
            raise WrongUse(f"{place} has a story already; --check begins one in a new folder")
        setup = make_setup(place, port)
        write_files(setup)
        hub = DemoHub(setup, patience)
        try:
            say("Starting a hub, its governor and some sessions …")
            hub.start()
            hub.make_people()
            if used:
                say(f"Going on where {place} was left; what runs may differ from the list below.")
            else:
                demand.begin(hub)
            say(f"Up after {since():.0f} s.")
            if check:
                walk(hub, say)
                say(f"\nEverything holds, after {since():.0f} s.")
            else:
                say(_welcome(setup, kept=folder is not None))
                patience.until_told()
        except Interrupted:
            pass
        finally:
            say("Ending everything that was started …")
            hub.close()
    say("Done; nothing is left running.")


def _welcome(setup: Setup, *, kept: bool) -> str:
    text = (files("allotment_hub.demo") / "files" / "welcome.txt").read_text(encoding="utf-8")
    return text.format(
        url=setup.url,
        pages=f"{setup.url}/{SERVICE}",
        password=setup.password,
        admin_password=setup.admin_password,
        folder=setup.folder,
        kept="kept" if kept else "removed at the end",
    )
