"""Recorded demand: the rows of a trace, read strictly from CSV, or not at all.

Columns are those of the public contract: ``submit_s, duration_s, gpus, tenant`` and, optional,
``id, user, class, flavor, declared_s, interruptible, cpus, memory_mib, kind``. Every fault is
named with its file and line, and nothing is used of a file that has one.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from allotment_hub.domain.amounts import MAX_DURATION, AmountError, parse_gpus
from allotment_hub.domain.policy import Interruptible, Policy
from allotment_hub.domain.requests import RequestKind
from allotment_hub.domain.shapes import KIND_OF
from allotment_hub.policyfile.problems import FileError, Problem, nearest, one_of, shown

NEEDED = ("submit_s", "duration_s", "gpus", "tenant")
OPTIONAL = (
    "id", "user", "class", "flavor", "declared_s", "interruptible", "cpus", "memory_mib", "kind",
)  # fmt: skip
COLUMNS = NEEDED + OPTIONAL

MOST_FAULTS = 20
"""Faults that are named before reading stops: a wrong file is wrong in every line."""

_SECONDS = re.compile(r"(\d{1,12})(?:\.(\d{1,3})0*)?")
_COUNT = re.compile(r"(\d{1,9})(?:\.(\d{1,3})0*)?")


class TraceError(FileError):
    """A trace that cannot be replayed, with every fault that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row: what was asked for, when, and how long it really ran.

    Times are milliseconds from the start of the trace, ``gpus`` milli-GPUs, ``cpus`` milli-CPUs,
    ``memory`` bytes; None is not said. ``line`` is the row's place in its file, 0 for none.
    """

    id: str
    submit: int
    duration: int
    gpus: int
    tenant: str
    user: str = ""
    class_: str | None = None
    flavor: str | None = None
    declared: int | None = None
    interruptible: Interruptible | None = None
    cpus: int | None = None
    memory: int | None = None
    kind: RequestKind = "job"
    line: int = 0

    @property
    def order(self) -> tuple[Any, ...]:
        """What puts rows of one moment into an order that does not depend on the file's."""
        return (
            self.submit, self.id, self.tenant, self.user, self.kind, self.class_ or "",
            self.flavor or "", self.gpus, self.duration, self.declared or 0,
            self.interruptible or "", self.cpus or 0, self.memory or 0,
        )  # fmt: skip


def settled(jobs: Iterable[Job]) -> list[Job]:
    """The jobs in the order of replay, those without an id named by their place in it.

    Rows that are alike in all respects may trade places: no answer tells them apart.
    """
    ordered = sorted(jobs, key=lambda job: job.order)
    return [
        job if job.id else replace(job, id=f"job-{number:06d}")
        for number, job in enumerate(ordered, 1)
    ]


def usual_class(policy: Policy, tenant: str, kind: str, *, fits: bool = False) -> str | None:
    """The class of a job that names none: the first of its kind that needs no approval and whose
    pools the tenant has a quota in; where none ``fits``, the first of its kind.
    """
    names = [name for name, class_ in policy.classes.items() if class_.kind == KIND_OF[kind]]
    known = policy.tenants.get(tenant)
    pools = set() if known is None else {quota.pool for quota in known.quotas}
    for name in names:
        if policy.classes[name].approval is None and not pools.isdisjoint(policy.pools_for(name)):
            return name
    return names[0] if names and not fits else None


def load_trace(path: Path, policy: Policy | None = None) -> list[Job]:
    """Read a trace in the contract's own form, plain or compressed (``.gz``).

    Parameters
    ----------
    path : Path
        The file; its rows have to be sorted by ``submit_s``.
    policy : Policy or None
        Where given, tenants, classes and flavors have to be its own.

    Raises
    ------
    TraceError
        With file, line and column of each fault, and what would be right.
    OSError
        Where the file cannot be read.
    """
    with open_text(path) as lines:
        return read_trace(lines, str(path), policy)


def open_text(path: Path) -> Any:
    """Open a text file, compressed where its name ends in ``.gz``."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def read_trace(lines: Iterable[str], name: str, policy: Policy | None = None) -> list[Job]:
    """As :func:`load_trace`, from lines of text that ``name`` is called by."""
    reading = _Reading(name, policy)
    try:
        jobs = list(reading.rows(csv.reader(lines, strict=True)))
    except csv.Error as error:
        raise TraceError([Problem("", f"is not CSV: {error}")], name) from None
    except UnicodeDecodeError as error:
        raise TraceError([Problem("", f"is not UTF-8 text: {error.reason}")], name) from None
    except EOFError:
        raise TraceError([Problem("", "ends in the middle: the file is cut off")], name) from None
    reading.check()
    return settled(jobs)


class _Reading:
    """One pass over a trace; faults are collected, and raised together at the end."""

    def __init__(self, name: str, policy: Policy | None) -> None:
        self.name, self.policy = name, policy
        self.found: list[Problem] = []
        self.ids: dict[str, int] = {}
        self.last = 0

    def fault(self, line: int, column: str, message: str) -> None:
        self.found.append(Problem(column, message, line))
        if len(self.found) >= MOST_FAULTS:
            self.found.append(Problem("", f"reading stopped after {MOST_FAULTS} faults"))
            self.check()

    def check(self) -> None:
        if self.found:
            raise TraceError(self.found, self.name)

    def rows(self, table: Any) -> Iterator[Job]:
        header = next(table, None)
        if not header:
            hint = f"write {','.join(NEEDED)} and a row for each job"
            raise TraceError([Problem("", f"has no header; {hint}", 1)], self.name)
        self._header(header)
        self.check()
        for cells in table:
            if not cells:
                continue
            if len(cells) != len(header):
                wrong = f"has {len(cells)} columns, the header has {len(header)}"
                self.fault(table.line_num, "", wrong)
                continue
            job = self._job(dict(zip(header, cells, strict=True)), table.line_num)
            if job is not None:
                yield job

    def _header(self, header: Sequence[str]) -> None:
        for column in NEEDED:
            if column not in header:
                self.fault(1, column, f"is missing; the columns are {', '.join(COLUMNS)}")
        for place, column in enumerate(header):
            if column in header[:place]:
                self.fault(1, column, "is there twice")
            elif column not in COLUMNS:
                close = nearest(column, COLUMNS)
                hint = f"did you mean {close}?" if close else f"right are {', '.join(COLUMNS)}"
                self.fault(1, shown(column, quotes=False), f"is not a column of a trace; {hint}")

    def _job(self, row: Mapping[str, str], line: int) -> Job | None:
        before = len(self.found)
        submit = self._seconds(row, "submit_s", line)
        duration = self._seconds(row, "duration_s", line)
        declared = self._seconds(row, "declared_s", line) if row.get("declared_s") else None
        kind = self._word(row, "kind", line, tuple(KIND_OF)) or self._kind(row)
        job = Job(
            id=self._id(row, line),
            submit=submit,
            duration=duration,
            gpus=self._gpus(row, line),
            tenant=self._tenant(row, line),
            user=row.get("user") or "",
            class_=self._class(row, line, kind),
            flavor=self._known(row, "flavor", line, self.policy and self.policy.flavors),
            declared=declared,
            interruptible=cast(
                "Interruptible | None",
                self._word(row, "interruptible", line, get_args(Interruptible)),
            ),
            cpus=self._amount(row, "cpus", line),
            memory=self._amount(row, "memory_mib", line, 1 << 20, 1000),
            kind=cast("RequestKind", kind),
            line=line,
        )
        if len(self.found) > before:
            return None
        if submit < self.last:
            self.fault(
                line, "submit_s",
                f"is {row['submit_s']}, before the row above it; sort the rows by submit_s",
            )  # fmt: skip
        self.last = max(self.last, submit)
        return job

    def _seconds(self, row: Mapping[str, str], column: str, line: int) -> int:
        text = row[column].strip()
        match = _SECONDS.fullmatch(text)
        if match is None:
            right = "write seconds from zero up, with at most three decimals"
            self.fault(line, column, f"is {shown(text)}; {right}")
            return 0
        value = int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
        if value > MAX_DURATION:
            self.fault(line, column, f"is {shown(text)}, more than {MAX_DURATION // 1000} seconds")
        elif column != "submit_s" and value == 0:
            self.fault(line, column, "is zero; a job runs for at least a millisecond: 0.001")
        return value

    def _gpus(self, row: Mapping[str, str], line: int) -> int:
        try:
            gpus = parse_gpus(row["gpus"].strip())
        except AmountError as error:
            self.fault(line, "gpus", str(error))
            return 0
        if gpus == 0:
            self.fault(line, "gpus", "is zero; work without GPUs is not queued: leave it out")
        return gpus

    def _tenant(self, row: Mapping[str, str], line: int) -> str:
        name = row["tenant"]
        if self.policy is None:
            if not name:
                self.fault(line, "tenant", "is empty")
            return name
        known = self._known(row, "tenant", line, self.policy.tenants, needed=True)
        if known is not None and not self.policy.tenants[known].groups:
            self.fault(line, "tenant", f"{shown(name)} has no groups: nobody can ask for it")
        return known or ""

    def _known(
        self, row: Mapping[str, str], column: str, line: int, names: Any, *, needed: bool = False
    ) -> str | None:
        value = row.get(column) or ""
        if not value and not needed:
            return None
        if names is not None and value not in names:
            self.fault(line, column, f"{shown(value)} is not in the policy: {one_of(names)}")
            return None
        return value

    def _kind(self, row: Mapping[str, str]) -> str:
        """The kind of a row that does not say it: that of its class; else a job where the policy
        has a class of jobs that the tenant can use, and what it can use where it has none.
        """
        if self.policy is None:
            return "job"
        named = self.policy.classes.get(row.get("class") or "")
        usable = (kind for kind in ("job", "session", "service") if self._usable(row, kind))
        kinds = [kind for kind, of in KIND_OF.items() if named is not None and of == named.kind]
        return kinds[0] if kinds else next(usable, "job")

    def _usable(self, row: Mapping[str, str], kind: str) -> bool:
        assert self.policy is not None  # noqa: S101 - the caller has looked; for the type checker
        return usual_class(self.policy, row["tenant"], kind, fits=True) is not None

    def _class(self, row: Mapping[str, str], line: int, kind: str) -> str | None:
        names = None
        if self.policy is not None:
            classes = self.policy.classes
            names = [name for name in classes if classes[name].kind == KIND_OF[kind]]
            if not names:
                self.fault(line, "kind", f"the policy has no class for a {kind}")
        return self._known(row, "class", line, names)

    def _word(
        self, row: Mapping[str, str], column: str, line: int, words: tuple[str, ...]
    ) -> str | None:
        value = row.get(column) or None
        if value is not None and value not in words:
            self.fault(line, column, f"is {shown(value)}; right is {one_of(words)}")
            return None
        return value

    def _amount(
        self, row: Mapping[str, str], column: str, line: int, unit: int = 1000, per: int = 1000
    ) -> int | None:
        text = (row.get(column) or "").strip()
        if not text:
            return None
        match = _COUNT.fullmatch(text)
        if match is None:
            self.fault(line, column, f"is {shown(text)}; write a number from zero up")
            return None
        thousandths = int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
        return thousandths * unit // per

    def _id(self, row: Mapping[str, str], line: int) -> str:
        name = row.get("id") or ""
        if not name:
            return ""
        if name in self.ids:
            self.fault(line, "id", f"{shown(name)} is also that of line {self.ids[name]}")
        elif not name.isprintable() or len(name) > 100:
            self.fault(line, "id", f"{shown(name)} is no id; use up to 100 printable characters")
        self.ids[name] = line
        return name
