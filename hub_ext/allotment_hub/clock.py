"""The only place that reads a clock.

Two times are kept apart, because they answer different questions (see the time cases):

* the **steady time** of the governor, in milliseconds, never goes back and is not moved by
  setting the wall clock: all terms, ages and timers are differences of it;
* the **wall time**, UTC in milliseconds since 1970, is for people: it is the steady time plus an
  offset that is read anew, so that after a jump the displayed ends are recalculated while the
  leases last as long as they were granted for.

The steady time goes on over a restart: an :class:`Anchor` kept in the ledger ties it to the
boot-time clock of the machine, which counts through suspends.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Protocol

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
JITTER_MS = 250
"""Offsets that differ by less are reading noise: a displayed time must not flicker."""

WALL_JUMP_MS = 2_000
SUSPEND_MS = 5_000

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?"
    r"(?:([Zz])|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)


class Clock(Protocol):
    """What the parts of the governor know about time."""

    def now_ms(self) -> int:
        """Steady time in milliseconds; never less than what it answered before."""

    def offset_ms(self) -> int:
        """What to add to a steady time to get UTC in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One moment on all clocks at once, in milliseconds, kept in the ledger."""

    boot_id: str
    boottime: int
    steady: int
    wall: int

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Anchor:
        """Read what :meth:`dump` wrote; ValueError when it is anything else."""
        try:
            data = json.loads(text)
            numbers = [data["boottime"], data["steady"], data["wall"]]
            if any(type(number) is not int for number in numbers):
                raise ValueError("numbers are needed")
            boottime, steady, wall = numbers
            return cls(boot_id=str(data["boot_id"]), boottime=boottime, steady=steady, wall=wall)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a clock anchor: {text[:80]!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What happened to the clocks since the last look, all in milliseconds.

    Parameters
    ----------
    elapsed : int
        Steady time since the last look: a long one means that nothing was observed meanwhile.
    suspended : int
        Part of it in which the machine slept (0 below five seconds).
    wall_jump : int
        By how much the wall clock was set forwards or, negative, backwards (0 below two seconds).
    """

    elapsed: int
    suspended: int
    wall_jump: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The clocks of the machine, in milliseconds. Replaced in tests of the steady clock only."""

    boottime: Callable[[], int]
    monotonic: Callable[[], int]
    wall: Callable[[], int]
    boot_id: Callable[[], str]


def _boottime_ms() -> int:
    # CLOCK_BOOTTIME counts through suspends; macOS does not have it, and little is lost there.
    source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(source) // 1_000_000


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


MACHINE = Sources(
    boottime=_boottime_ms,
    monotonic=lambda: time.monotonic_ns() // 1_000_000,
    wall=lambda: time.time_ns() // 1_000_000,
    boot_id=_boot_id,
)


class SteadyClock:
    """The clock of a running governor.

    Parameters
    ----------
    anchor : Anchor or None
        As kept by the last governor; None starts a new timeline at the present wall time.
    floor : int
        Steady time of the last event in the ledger: the timeline goes on behind it.
    sources : Sources
        The clocks of the machine.

    Within one boot the time between two governors is known exactly. Over a reboot it is taken
    from the wall clock, never negative; ``restart_exact`` says which of the two it was.
    """

    def __init__(
        self, anchor: Anchor | None = None, *, floor: int = 0, sources: Sources = MACHINE
    ) -> None:
        self._sources = sources
        boottime, wall = sources.boottime(), sources.wall()
        boot_id = sources.boot_id()
        self.restart_exact = True
        if anchor is None:
            start = max(wall, floor)
        elif boot_id and boot_id == anchor.boot_id and boottime >= anchor.boottime:
            start = anchor.steady + boottime - anchor.boottime
        else:
            start = anchor.steady + max(0, wall - anchor.wall)
            self.restart_exact = False
        self._boot_id = boot_id
        self._base = max(start, floor) - boottime
        self._last = boottime + self._base
        self._offset = wall - self._last
        if anchor is not None and abs(anchor.wall - anchor.steady - self._offset) < JITTER_MS:
            # Times shown before a restart are the same after it, to the millisecond.
            self._offset = anchor.wall - anchor.steady
        self._seen_at = self._last
        self._seen_offset = self._offset
        self._seen_asleep = boottime - sources.monotonic()

    def now_ms(self) -> int:
        """Steady time in milliseconds."""
        self._last = max(self._last, self._sources.boottime() + self._base)
        return self._last

    def offset_ms(self) -> int:
        """UTC minus steady time; changes only when the wall clock was set or has drifted."""
        offset = self._sources.wall() - self.now_ms()
        if abs(offset - self._offset) >= JITTER_MS:
            self._offset = offset
        return self._offset

    def anchor(self) -> Anchor:
        """The present moment, to be kept in the ledger."""
        return Anchor(
            boot_id=self._boot_id,
            boottime=self._sources.boottime(),
            steady=self.now_ms(),
            wall=self.now_ms() + self.offset_ms(),
        )

    def observe(self) -> Observation:
        """What happened to the clocks since the last call (or the start)."""
        now, offset = self.now_ms(), self.offset_ms()
        asleep = self._sources.boottime() - self._sources.monotonic()
        suspended, jump = asleep - self._seen_asleep, offset - self._seen_offset
        seen = Observation(
            elapsed=now - self._seen_at,
            suspended=suspended if suspended >= SUSPEND_MS else 0,
            wall_jump=jump if abs(jump) >= WALL_JUMP_MS else 0,
        )
        self._seen_at, self._seen_offset, self._seen_asleep = now, offset, asleep
        return seen


class ManualClock:
    """A clock that stands still until it is told: for tests, scenarios and replays.

    >>> clock = ManualClock(1_000, wall=5_000)
    >>> clock.advance(500); clock.now_ms(), clock.offset_ms()
    (1500, 4000)
    >>> clock.set_wall_forward(3_600_000); clock.now_ms(), clock.offset_ms()
    (1500, 3604000)
    """

    def __init__(self, now: int = 0, *, wall: int | None = None) -> None:
        self._now = now
        self._offset = 0 if wall is None else wall - now

    def now_ms(self) -> int:
        """Steady time in milliseconds."""
        return self._now

    def offset_ms(self) -> int:
        """UTC minus steady time."""
        return self._offset

    def advance(self, milliseconds: int) -> None:
        """Let time pass; ValueError when it would go back."""
        if milliseconds < 0:
            raise ValueError(f"steady time never goes back, not even by {-milliseconds} ms")
        self._now += milliseconds

    def move_to(self, now: int) -> None:
        """Let time pass until a moment of the steady time."""
        self.advance(now - self._now)

    def set_wall_forward(self, milliseconds: int) -> None:
        """Set the wall clock forwards or, negative, backwards; the steady time does not notice."""
        self._offset += milliseconds


def show_time(wall_ms: int) -> str:
    """UTC milliseconds as RFC 3339, always with three decimals and ``Z``.

    >>> show_time(1531765781920)
    '2018-07-16T18:29:41.920Z'
    """
    moment = UNIX_EPOCH + timedelta(milliseconds=wall_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{wall_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    """RFC 3339 as UTC milliseconds; a time without a zone is UTC, as JupyterHub's once were.

    Raises
    ------
    ValueError
        Naming what would be right.

    >>> parse_time("2018-07-16T20:29:41+02:00") == parse_time("2018-07-16T18:29:41")
    True
    """
    match = _TIME.fullmatch(text.strip())
    right = "write a time as 2026-03-29T02:30:00Z"
    if match is None:
        raise ValueError(f"{text!r} is not a time; {right}")
    year, month, day, hour, minute, second = (int(match[place]) for place in range(1, 7))
    leap = second == 60  # a leap second is the start of the next minute here
    try:
        moment = datetime(
            year, month, day, hour, minute, 59 if leap else second, tzinfo=timezone.utc
        )
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time ({error}); {right}") from None
    offset_minutes = 0
    if match[9]:
        if int(match[10]) > 23 or int(match[11]) > 59:
            raise ValueError(f"{text!r} has a zone beyond 23:59; {right}")
        offset_minutes = (int(match[10]) * 60 + int(match[11])) * (1 if match[9] == "+" else -1)
    whole = (moment - UNIX_EPOCH) // timedelta(seconds=1) + leap - offset_minutes * 60
    return whole * 1000 + int((match[7] or "0").ljust(9, "0")) // 1_000_000


def stopwatch() -> Callable[[], float]:
    """Start to measure: what is returned tells the seconds of real time since this call."""
    began = time.perf_counter()
    return lambda: time.perf_counter() - began


def cpu_stopwatch() -> Callable[[], float]:
    """As :func:`stopwatch`, in seconds that this process computed: others do not count."""
    began = time.process_time()
    return lambda: time.process_time() - began
