"""The process that touches the driver: one JSON line per question in, lines of answer out.

It is apart so that a crash or a hang inside the driver takes down nothing else. It ends by itself
when its parent does. The lines it writes: ``{"ready": true}`` or ``{"refused": [code, text]}``
once; ``{"touch": n}`` before device ``n`` is touched; then the answer, which has an ``id``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from .codes import NO_BINDING

PR_SET_PDEATHSIG = 1
LIBRARY = "libnvidia-ml.so"


def main() -> int:
    """Answer until the input ends; 3 when the driver cannot be used."""
    out = _private_output()
    _die_with_parent()
    _say(out, touch="init")
    try:
        import pynvml  # not at the top: where it is missing, that has to be said, not raised

        from .probe import look
    except ImportError as error:
        return _refuse(out, NO_BINDING, f"{error.name or 'pynvml'} is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _refuse(out, error.value, str(error))
    _say(out, ready=True)
    for line in sys.stdin:
        question = json.loads(line)
        number = question.pop("id")
        try:
            answer = look(**question, touch=lambda index: _say(out, touch=index))
        except pynvml.NVMLError as error:
            return _refuse(out, error.value, str(error))
        _say(out, id=number, replaced=library_replaced(), **answer)
    return 0


def library_replaced(maps: Path = Path("/proc/self/maps")) -> bool:
    """Whether the driver's library was exchanged under us, so that only new processes see it.

    An upgrade of the driver leaves running processes as they are and fails every new one. It has
    to be noticed before somebody's session is the first to find out.
    """
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(LIBRARY in line and line.endswith("(deleted)") for line in lines)


def _private_output() -> TextIO:
    """The answers' own channel: what libraries print does not get between the lines."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return out


def _die_with_parent() -> None:
    # Elsewhere than on Linux the end of the input ends this process too, only not within a call.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _refuse(out: TextIO, code: int, text: str) -> int:
    _say(out, refused=[code, text])
    return 3


def _say(out: TextIO, **fields: Any) -> None:
    out.write(json.dumps(fields) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
