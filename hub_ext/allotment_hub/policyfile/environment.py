"""Settings from the environment: which are known, and where each value in force comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .dumping import policy_data
from .loading import Loaded
from .problems import Path, nearest, one_of, path_text

PREFIX = "ALLOTMENT_"

KNOWN: Mapping[str, str] = {
    "ALLOTMENT_URL": "address of the governor, such as http://127.0.0.1:8000/services/allotment",
    "ALLOTMENT_TOKEN": "token to call it with",
    "ALLOTMENT_GATE_TOKEN": "secret between the hub and the governor",
}
"""Variables that this program reads, and what each is for."""

GIVEN: Mapping[str, str] = {"ALLOTMENT_LEASE": "identifier of the lease that a server runs under"}
"""Variables that are set in users' servers; harmless elsewhere."""


def unknown_environment(environ: Mapping[str, str]) -> list[str]:
    """Name the variables with our prefix that nothing reads, each with what was probably meant.

    A misspelt variable would otherwise leave a default in force without a word.

    >>> unknown_environment({"ALLOTMENT_TOKN": "x", "PATH": "y"})
    ['ALLOTMENT_TOKN is not a known variable and has no effect; did you mean ALLOTMENT_TOKEN?']
    """
    known = {**KNOWN, **GIVEN}
    result = []
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name not in known:
            meant = nearest(name[len(PREFIX) :], [one[len(PREFIX) :] for one in known])
            right = f"did you mean {PREFIX}{meant}?" if meant else f"known: {one_of(KNOWN)}"
            shown_name = "".join(c if c.isprintable() else "?" for c in name[:80])
            result.append(f"{shown_name} is not a known variable and has no effect; {right}")
    return result


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force: its path, the value in the notation of the file, and its origin."""

    path: str
    value: Any
    origin: str

    def as_dict(self) -> dict[str, Any]:
        """Render in the shape of the REST interface."""
        return {"path": self.path, "value": self.value, "origin": self.origin}


def effective(loaded: Loaded) -> list[Setting]:
    r"""List every value of a policy in force, with where it comes from: ``file:line`` or default.

    >>> from .loading import load_policy
    >>> [(s.path, s.origin) for s in effective(load_policy("version: 1\ncurrency: EUR"))][:3]
    [('version', 'policy:1'), ('currency', 'policy:2'), ('overcommit', 'default')]
    """
    return [
        Setting(path_text(path), value, _origin(loaded, path))
        for path, value in _leaves((), policy_data(loaded.policy, full=True))
    ]


def _origin(loaded: Loaded, path: Path) -> str:
    if not loaded.document.has(path):
        return "default"
    line = loaded.document.line(path)
    return loaded.source if line is None else f"{loaded.source}:{line}"


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves((*path, key), one)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for at, one in enumerate(value):
            yield from _leaves((*path, at), one)
    else:
        yield path, value
