"""Scripts, styles and catalogues, served under the hash of their content.

The hash is part of the path and not of a query, so that the modules which a script imports
relatively carry it too: after an upgrade no browser mixes old and new files (and every answer may
be cached for ever).
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib import resources
from typing import Any

from tornado.web import HTTPError, RequestHandler

ASSETS_PATH = r"assets/([0-9a-f]{12})/((?:js|css|img|locale)/[a-z0-9-]+\.(?:js|css|svg|json))"

_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json; charset=utf-8",
}


@lru_cache(maxsize=1)
def _files() -> dict[str, bytes]:
    """All assets by their path: few and small, so they are read once."""
    package = resources.files("allotment_hub")
    found: dict[str, bytes] = {}
    static = package / "web" / "pages" / "static"
    for folder in static.iterdir():
        if folder.is_dir():
            _collect(found, folder, folder.name)
    _collect(found, package / "locale", "locale")
    return found


def _collect(found: dict[str, bytes], folder: Any, name: str) -> None:
    for file in folder.iterdir():
        if re.fullmatch(r"[a-z0-9-]+\.(js|css|svg|json)", file.name):
            found[f"{name}/{file.name}"] = file.read_bytes()


@lru_cache(maxsize=1)
def assets_hash() -> str:
    """Twelve hexadecimal digits that change whenever an asset does."""
    digest = hashlib.sha256()
    for path, content in sorted(_files().items()):
        digest.update(path.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:12]


class Assets(RequestHandler):
    """One file. They hold nothing private, so nobody is asked who he is."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    def set_default_headers(self) -> None:
        """Nothing is sniffed; an SVG opened by itself runs nothing."""
        self.clear_header("Server")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; style-src 'self'")

    def get(self, version: str, path: str) -> None:
        """Answer with a file; one of another version is answered too, but never cached."""
        content = _files().get(path)
        if content is None:
            raise HTTPError(404)
        self.set_header("Content-Type", _TYPES[path.rsplit(".", 1)[1]])
        current = version == assets_hash()
        self.set_header(
            "Cache-Control", "public, max-age=31536000, immutable" if current else "no-store"
        )
        self.finish(content)

    def head(self, version: str, path: str) -> None:
        """As GET, without the content."""
        self.get(version, path)

    def write_error(self, status_code: int, **_: Any) -> None:
        """Say no more than the status."""
        self.finish()
