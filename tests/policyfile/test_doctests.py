"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from allotment_hub import policyfile
from allotment_hub.cli import output

MODULES = [f"{policyfile.__name__}.{one.name}" for one in pkgutil.iter_modules(policyfile.__path__)]


@pytest.mark.parametrize("name", [*MODULES, output.__name__])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
