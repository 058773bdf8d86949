"""What the two environments and the Node packages promise to the tests of a real hub."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support import paths


@pytest.mark.hub
def test_each_environment_has_its_line_of_jupyterhub() -> None:
    line = 5 if Path(sys.prefix).name == ".venv-hub5" else 6
    major, minor, patch = (int(part) for part in version("jupyterhub").split(".")[:3])
    assert major == line
    assert (major, minor, patch) >= (5, 4, 5)


@pytest.mark.hub
def test_the_proxy_runs() -> None:
    command = [*paths.proxy_command(), "--version"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert answer.stdout.startswith("5.")
