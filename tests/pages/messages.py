"""Finds the messages of the pages, as xgettext would."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "hub_ext" / "allotment_hub" / "web" / "pages"

_SCRIPT = re.compile(r"""\b(?:_|N_)\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")
_TEMPLATE = re.compile(r"""\b_\(\s*(?:"([^"]*)"|'([^']*)')\s*\)""")
_TITLE = re.compile(r"""\bShell\("\w+", "([^"]*)\"""")


def found_messages() -> set[str]:
    """Every message that a script, template or title shows."""
    found: set[str] = {"Error"}
    for script in (PAGES / "static" / "js").glob("*.js"):
        for match in _SCRIPT.finditer(script.read_text(encoding="utf-8")):
            found.add((match[1] or match[2]).replace("\\'", "'"))
    for template in (PAGES / "templates").glob("*.html"):
        for match in _TEMPLATE.finditer(template.read_text(encoding="utf-8")):
            found.add(match[1] or match[2])
    found.update(_TITLE.findall((PAGES / "handlers.py").read_text(encoding="utf-8")))
    return found
