"""One run of the demonstration from its first file to its last process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment_hub.clock import stopwatch

from . import demand
from .calls import SERVICE
from .folder import ADMIN, Setup, make_setup, write_files
from .hub import DemoHub
from .story import walk
from .waiting import DemoError, Interrupted, Patience, interruptible

Print = Callable[[str], None]


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """The folder that was named, which stays, or one that vanishes afterwards."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="allotment-demo-", ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = given.expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if any(folder.iterdir()) and not (folder / "settings.json").exists():
        raise DemoError(f"{folder} holds something else; name a new folder or an earlier demo's")
    yield folder


def run(
    *, check: bool = False, port: int | None = None, folder: Path | None = None, say: Print = print
) -> None:
    """Start the demonstration; walk its story and end it, or leave it until it is interrupted.

    Raises
    ------
    DemoError
        It cannot be started, or a step of the story does not hold.
    """
    patience = Patience()
    since = stopwatch()
    with interruptible(patience), _folder(folder) as place:
        setup = make_setup(place, port)
        write_files(setup)
        hub = DemoHub(setup, patience)
        try:
            say("Starting a hub, its governor and some sessions …")
            hub.start()
            hub.make_people()
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
    pages = f"{setup.url}/{SERVICE}"
    where = f"kept in {setup.folder}" if kept else f"in {setup.folder}, until the end"
    return f"""
  {setup.url}        two nodes with 4 A100 and 4 L40S, declared: no real GPU is needed

  log in as      team        password     now
  ann, vera      vision      {setup.password}     nothing runs; 2 A100 of its guarantee are lent to nlp
  bob, ned       nlp         {setup.password}     bob runs within the guarantee, ned on the borrowed GPUs
  rita, rob      robotics    {setup.password}     rita runs, rob waits in the queue
  guest          none        {setup.password}     has no quota: may start sessions without GPUs
  {ADMIN}          administers {setup.admin_password}

  Try
  1  As ann, open {pages}new and ask for 1 l40s: it is free, and starts at once.
     Open which-gpus.ipynb there to see what the session got.
  2  As ann, ask for 2 a100-80g under another server name. They are lent out, so you land in the waiting
     room: from whom they come back, and when. After 30 seconds your session starts by itself.
  3  As rob, in a private window: {pages} shows his place, why he waits and what would help.
  4  As {ADMIN}: {pages}console shows all devices, the queue, the policy and the audit trail.
  5  Kill the hub or its governor (kill -9) and look again: nothing is lost. The hub brings its governor back.

  Files and logs are {where}. End everything with Ctrl-C.
"""
