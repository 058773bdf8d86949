"""Stands for a single-user server where only its process matters: answers 200 to everything."""

from __future__ import annotations

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Answer(BaseHTTPRequestHandler):
    """Says ok."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *_: object) -> None:
        return


if __name__ == "__main__":
    if "--deaf" in sys.argv:
        time.sleep(600)
    if "--dead" in sys.argv:
        sys.exit(7)
    port = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port
    ThreadingHTTPServer(("127.0.0.1", port or 0), Answer).serve_forever()
