"""``python -m allotment_hub.web.describe > docs/openapi.json``: the interface as a document."""

from __future__ import annotations

import json
import sys

from . import api  # noqa: F401 - fills the table of routes
from .openapi import document


def text() -> str:
    """The document as it is kept in the repository."""
    return json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
