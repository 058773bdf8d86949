"""What a replay leaves: ``summary.json`` and ``decisions.jsonl``, both whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .replay import Line
from .replay_account import Account, Run

SHARES = (("p50", 50), ("p95", 95), ("p99", 99))


def summary(account: Account, wall_s: float) -> dict[str, Any]:
    """The figures of a replay, in seconds and GPU-seconds.

    Parameters
    ----------
    account : Account
        A closed account.
    wall_s : float
        Real seconds that the replay took: the only figures that differ between two runs are this
        one and the events per second of it.
    """
    runs = list(account.runs.values())
    span = account.ended - account.began
    whole = account.capacity * span
    return {
        **figures(runs),
        "by_tenant": grouped(runs, lambda run: run.job.tenant),
        "by_class": grouped(runs, lambda run: run.job.class_ or f"default of {run.job.kind}"),
        "by_shape": grouped(runs, shape),
        "span_s": span / 1000,
        "capacity_gpus": account.capacity / 1000,
        "allocation": _share(account.allocated, whole),
        "utilisation": _share(account.allocated - account.lost, whole),
        "allocated_gpu_s": account.allocated / 1_000_000,
        "borrowed_gpu_s": account.borrowed / 1_000_000,
        "lost_gpu_s": account.lost / 1_000_000,
        "evictions": account.evictions,
        "evictions_per_day": round(account.evictions * 86_400_000 / span, 3) if span else 0,
        "decisions": account.decisions,
        "events": account.events,
        "wall_s": round(wall_s, 3),
        "events_per_s": round(account.events / wall_s) if wall_s > 0 else 0,
    }


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Counts and waits of some jobs. ``unfinished`` has started and was not done at the end."""
    started = [run for run in runs if run.first_start is not None]
    waits = sorted(run.wait for run in started if run.wait is not None)
    ends = [run.end for run in runs]
    finished = [run for run in runs if run.end == "finished"]
    done = sorted(run.ended_at - run.job.submit for run in finished if run.ended_at is not None)
    return {
        "jobs": len(runs),
        "started": len(started),
        "finished": len(finished),
        "rejected": ends.count("rejected"),
        "expired": ends.count("expired"),
        "never_started": sum(1 for run in runs if run.first_start is None and run.end is None),
        "unfinished": sum(1 for run in started if run.end is None),
        "ended_by_term": ends.count("term"),
        "ended_early": ends.count("taken"),
        "evicted_jobs": sum(1 for run in runs if run.evictions),
        "wait_s": spread(waits),
        "in_guarantee_wait_s": spread(sorted(run.inside for run in started)),
        "completion_s": spread(done),
    }


def grouped(runs: Iterable[Run], by: Callable[[Run], str]) -> dict[str, Any]:
    """The same figures for each group, in the order of its name."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(by(run), []).append(run)
    return {name: figures(groups[name]) for name in sorted(groups, key=_natural)}


def shape(run: Run) -> str:
    """How many GPUs of which flavor: ``8`` or ``8 a100``."""
    job = run.job
    gpus = f"{job.gpus / 1000:g}"
    return f"{gpus} {job.flavor}" if job.flavor is not None else gpus


def _natural(name: str) -> tuple[float, str]:
    head = name.split(" ")[0]
    with suppress(ValueError):
        return (float(head), name)
    return (float("inf"), name)


def spread(values: Sequence[int]) -> dict[str, float | None]:
    """Mean and percentiles (nearest rank) of sorted milliseconds, in seconds.

    >>> spread([1000, 2000, 3000, 10000])
    {'mean': 4.0, 'p50': 2.0, 'p95': 10.0, 'p99': 10.0, 'max': 10.0}
    >>> spread([])["max"] is None
    True
    """
    if not values:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    result: dict[str, float | None] = {"mean": round(sum(values) / len(values) / 1000, 3)}
    for name, percent in SHARES:
        rank = max(0, -(-len(values) * percent // 100) - 1)
        result[name] = values[rank] / 1000
    result["max"] = values[-1] / 1000
    return result


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


class Writer:
    """Writes the two files of a replay into a folder, under their names only at the very end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = (folder / ".decisions.jsonl.part").open("w", encoding="utf-8", newline="\n")

    def line(self, line: Line) -> None:
        self._log.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
        self._log.write("\n")

    def finish(self, figures: dict[str, Any]) -> None:
        """Put both files in place."""
        self._log.close()
        part = self.folder / ".summary.json.part"
        part.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (self.folder / ".decisions.jsonl.part").replace(self.folder / "decisions.jsonl")
        part.replace(self.folder / "summary.json")

    def abandon(self) -> None:
        """Take away what was begun."""
        self._log.close()
        for name in (".decisions.jsonl.part", ".summary.json.part"):
            with suppress(FileNotFoundError):
                (self.folder / name).unlink()


@contextmanager
def writing(folder: Path) -> Iterator[Writer]:
    """A writer whose files appear only if all went well.

    Raises
    ------
    OSError
        When the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise
