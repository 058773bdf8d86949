"""The pages' scripts run as they are written, so a compiler only looks at them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

from .messages import PAGES

COMPILER = ROOT / "node_modules" / ".bin" / "tsc"
FAULTS = {
    "TS1005": "syntax",
    "TS2300": "named twice",
    "TS2304": "a name that is not there",
    "TS2305": "not exported",
    "TS2307": "no such module",
    "TS2552": "a name that is not there",
    "TS6133": "never used",
    "TS6192": "never used",
}


def test_no_script_names_what_is_not_there_nor_keeps_what_is_not_used(tmp_path: Path) -> None:
    if not COMPILER.exists():
        pytest.fail("the TypeScript compiler is not installed: run `make setup`")
    settings = {
        "compilerOptions": {
            "allowJs": True, "checkJs": True, "noEmit": True, "noUnusedLocals": True,
            "strict": False, "skipLibCheck": True, "types": [], "target": "es2022",
            "module": "esnext", "moduleResolution": "bundler",
            "lib": ["dom", "dom.iterable", "es2023"],
        },
        "include": [f"{PAGES}/static/js/*.js"],
    }  # fmt: skip
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    told = subprocess.run(
        [str(COMPILER), "-p", str(tmp_path), "--pretty", "false"],
        capture_output=True, text=True, check=False, timeout=120,
    ).stdout  # fmt: skip
    found = [line for line in told.splitlines() if FAULTS.keys() & set(re.findall(r"TS\d+", line))]
    assert found == []
