"""Keeps the process that reads the driver: at most one, never waited for by anybody else.

A driver may refuse, crash the process that asks, or never answer. None of that reaches the
governor's event loop: :meth:`Sampler.poll` is a coroutine with a bound, a process that does not
answer is ended, and no other is begun before it is really gone. A device at which the process
crashed or hung is left out for a while, so that the others go on being read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from allotment_hub.domain.amounts import MINUTE, SECOND

from .codes import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, NO_BINDING, VERSION_MISMATCH
from .ports import Now

LINE_LIMIT = 1 << 22
"""Bytes of one answer. 16 GPUs of 7 slices with hundreds of processes need less than a tenth."""

PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV")
"""The worker gets these variables and no secrets of the governor."""

Kind = Literal["absent", "mismatch", "refused", "crashed", "hung"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no new sample: ``at`` is when that began, ``retry_at`` when it is next tried.

    ``absent`` means that this machine has no driver: it has no devices, and that is all right.
    """

    kind: Kind
    text: str
    at: int
    retry_at: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of the worker, and when it was asked for: values are no older than that."""

    at: int
    slow: bool
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Avoided:
    """A device that ended the worker, left out until ``until``."""

    text: str
    until: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """All times in milliseconds.

    Without its persistence mode the driver starts the GPUs anew for the first program that comes,
    which takes seconds for each: so ``init_within`` for the first answer, ``answer_within`` for
    each device after it.
    """

    answer_within: int = 20 * SECOND
    init_within: int = 60 * SECOND
    first_pause: int = 1 * SECOND
    longest_pause: int = 5 * MINUTE
    absent_pause: int = 5 * MINUTE
    recycle_after: int = 5 * MINUTE
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Question:
    at: int
    slow: bool
    known: frozenset[str]
    avoiding: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    questions: asyncio.StreamWriter
    answers: asyncio.StreamReader
    born_at: int

    @property
    def gone(self) -> bool:
        return self.process.returncode is not None


class _Ended(Exception):
    """The worker is of no use any more."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind
        self.text = text


class Sampler:
    """Asks for samples one at a time; what came of it stands in ``last`` and ``failure``.

    Parameters
    ----------
    now
        The steady clock.
    settings
        Bounds and pauses.
    command
        Starts the worker; for another interpreter or a wrapper.
    """

    def __init__(
        self,
        now: Now,
        settings: SamplerSettings | None = None,
        command: tuple[str, ...] = (sys.executable, "-m", "allotment_hub.inventory.worker"),
    ) -> None:
        self.last: Sample | None = None
        self.failure: Failure | None = None
        self.avoided: dict[int, Avoided] = {}
        self.started = 0
        self._now = now
        self._settings = settings or SamplerSettings()
        self._command = command
        self._one_at_a_time = asyncio.Lock()
        self._worker: _Worker | None = None
        self._closed = False
        self._touched: int | str = "init"
        self._number = 0
        self._failures_in_a_row = 0

    @property
    def pid(self) -> int | None:
        """The worker's process, None while there is none."""
        worker = self._worker
        return worker.process.pid if worker is not None and not worker.gone else None

    async def poll(
        self,
        *,
        slow: bool,
        known: Collection[str] = (),
        since: Callable[[], Mapping[str, int]] = dict,
        at_once: bool = False,
    ) -> bool:
        """Take one sample, if it is time to try and no older process is still in the way.

        Parameters
        ----------
        slow, known
            See :func:`.probe.look`.
        since
            Called right before the question is sent, since polls queue behind one another.
        at_once
            Do not wait for a pause after a failure; never while the driver is absent.

        Returns
        -------
        bool
            Whether ``last`` is new. Never raises for what driver or worker do.
        """
        async with self._one_at_a_time:
            waiting = self.failure is not None and self._now() < self.failure.retry_at
            hurry = at_once and self.failure is not None and self.failure.kind != "absent"
            if self._closed or (waiting and not hurry) or not self._way_is_free():
                return False
            question = _Question(self._now(), slow, frozenset(known), self._to_avoid())
            try:
                worker = await self._started()
                await self._exchange(worker, question, since())
            except _Ended as end:
                await self._end()
                self._failed(end)
                return False
            if self._is_old(worker):
                # Only a new process meets the library and the driver as a user's program would.
                await self._end()
            return True

    async def close(self) -> None:
        """End the worker, also in the midst of a call, and let no other begin."""
        self._closed = True
        self._kill()
        async with self._one_at_a_time:
            await self._end()

    async def _started(self) -> _Worker:
        if self._worker is not None:
            return self._worker
        keep = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**keep, **self._settings.environment},
                limit=LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise _Ended("crashed", f"the sampling process does not start: {error}") from None
        if process.stdin is None or process.stdout is None:  # both were asked for above
            raise _Ended("crashed", "the sampling process has no pipes")
        self.started += 1
        self._touched = "init"
        self._worker = _Worker(process, process.stdin, process.stdout, self._now())
        return self._worker

    async def _exchange(
        self, worker: _Worker, question: _Question, since: Mapping[str, int]
    ) -> None:
        """Put a question and take its answer; raises _Ended when there will be none."""
        number = await self._ask(worker, question, since)
        while True:
            line = await self._next_line(worker)
            if "touch" in line:
                self._touched = line["touch"]
            elif line.get("id") == number:
                break
        self.last = Sample(question.at, question.slow, line)
        self.failure = None
        self._failures_in_a_row = 0
        # Whatever was left out in the past and was touched this time has answered.
        self.avoided = {
            index: each for index, each in self.avoided.items() if index in question.avoiding
        }

    async def _ask(self, worker: _Worker, question: _Question, since: Mapping[str, int]) -> int:
        self._number += 1
        text = {
            "id": self._number,
            "slow": question.slow,
            "skip": sorted(question.avoiding),
            "known": sorted(question.known),
            "since": dict(since),
        }
        try:
            worker.questions.write(json.dumps(text).encode() + b"\n")
            await worker.questions.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it ended before it was asked; its last words are still to be read
        return self._number

    async def _next_line(self, worker: _Worker) -> dict[str, Any]:
        settings = self._settings
        within = settings.init_within if self._touched == "init" else settings.answer_within
        try:
            raw = await asyncio.wait_for(worker.answers.readline(), within / SECOND)
        except asyncio.TimeoutError:
            raise _Ended(
                "hung", f"no answer from the driver within {within / SECOND:g} s"
            ) from None
        except ValueError:
            raise _Ended("crashed", "an answer of the sampling process is too long") from None
        if not raw:
            raise await _last_words(worker.process)
        try:
            line = json.loads(raw)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise _Ended("crashed", "the sampling process wrote nonsense")
        if "refused" in line:
            raise _refusal(*line["refused"])
        return line

    def _is_old(self, worker: _Worker) -> bool:
        old = self._now() - worker.born_at >= self._settings.recycle_after
        return old or (self.last is not None and bool(self.last.answer.get("replaced")))

    def _to_avoid(self) -> frozenset[int]:
        return frozenset(index for index, each in self.avoided.items() if self._now() < each.until)

    def _failed(self, end: _Ended) -> None:
        now = self._now()
        settings = self._settings
        self._failures_in_a_row += 1
        pause = min(
            settings.longest_pause, settings.first_pause << min(self._failures_in_a_row - 1, 20)
        )
        text = end.text
        if end.kind == "absent":
            pause = settings.absent_pause
        elif end.kind in ("crashed", "hung") and isinstance(self._touched, int):
            # -1 stands for the questions by UUID, which are left out in the same way.
            text = f"{text}, at device {self._touched}" if self._touched >= 0 else text
            self._avoid(self._touched, text)
        began = self.failure.at if self.failure and self.failure.kind == end.kind else now
        self.failure = Failure(end.kind, text, began, now + pause)

    def _avoid(self, index: int, text: str) -> None:
        """Leave a device out: for a minute at first, doubling up to the longest pause times 12."""
        times = self.avoided[index].times + 1 if index in self.avoided else 1
        pause = min(MINUTE << min(times - 1, 10), 12 * self._settings.longest_pause)
        self.avoided[index] = Avoided(text, self._now() + pause, times)

    def _way_is_free(self) -> bool:
        """Whether there is no process, or one that can be asked.

        One that was killed and is still there sits in a call that cannot be interrupted. Another
        would only join it.
        """
        if self._worker is not None and self._worker.gone:
            self._worker = None
        return self._worker is None or self.failure is None

    def _kill(self) -> None:
        if self._worker is not None and not self._worker.gone:
            with contextlib.suppress(ProcessLookupError):
                self._worker.process.kill()

    async def _end(self) -> None:
        """Kill the worker, which holds nothing that could be lost, and wait for it a little."""
        worker = self._worker
        if worker is None:
            return
        worker.questions.close()
        self._kill()
        if await _exits(worker.process, 1.0):
            self._worker = None


async def _last_words(process: asyncio.subprocess.Process) -> _Ended:
    if not await _exits(process, 1.0):
        return _Ended("crashed", "the sampling process closed its output")
    code = process.returncode or 0
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    return _Ended("crashed", f"the sampling process ended {how}")


async def _exits(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


def _refusal(code: int, text: str) -> _Ended:
    if code in (NO_BINDING, LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED):
        return _Ended("absent", f"no NVML: {text}")
    if code == VERSION_MISMATCH:
        return _Ended(
            "mismatch", "driver mismatch: library and kernel module differ; reboot or reload it"
        )
    return _Ended("refused", f"NVML refuses: {text}")
