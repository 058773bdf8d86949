"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.support.paths import ROOT


def _modules_with_examples() -> list[str]:
    found = []
    for source in (ROOT / "hub_ext", ROOT / "server_ext"):
        for path in sorted(source.rglob("*.py")):
            if ">>> " in path.read_text("utf-8"):
                parts = path.relative_to(source).with_suffix("").parts
                found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0
