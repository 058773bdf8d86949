"""Answers on the governor's port before the governor is there.

A hub gives up when its managed service does not answer within seconds, while libraries alone may
take that long to load on a busy machine. So the port is taken first, by a thread of a few lines
that says ``starting`` to whatever is asked, and handed on when the governor can answer itself.
Standard library only: what this module loads delays it.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading

LARGEST_HEAD = 16 * 1024
ANSWER_WITHIN_S = 2.0
BACKLOG = 128

PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Starting · Allotment</title>'
    '</head><body><p role="status">Allotment is starting; this page reloads by itself.</p>'
    "</body></html>"
)


def answer(path: str, prefix: str) -> bytes:
    """The whole answer to a request for a path.

    >>> answer("/a/health", "/a/")[:15], answer("/a/api/v1/me", "/a/")[:12]
    (b'HTTP/1.1 200 OK', b'HTTP/1.1 503')
    """
    below = path.partition("?")[0].removeprefix(prefix)
    kind, status = "application/problem+json", "503 Service Unavailable"
    body = json.dumps({
        "code": "starting", "title": "Service Unavailable", "status": 503, "phase": "starting",
        "detail": "The governor is starting. Try again in a few seconds.",
    })  # fmt: skip
    if below in ("health", "api/v1/health"):
        kind, status = "application/json", "200 OK"
        body = json.dumps({"status": "ok", "phase": "starting", "version": ""})
    elif not below.startswith(("api/", "gate/", "ready", "metrics")):
        # A page: whoever looks, and the hub that waits for its service, sees that it is coming.
        kind, status, body = "text/html; charset=utf-8", "200 OK", PAGE
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        "Retry-After: 2\r\nRefresh: 2\r\nCache-Control: no-store\r\nConnection: close\r\n"
        "X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'\r\n\r\n"
    )
    return head.encode() + content


class Early:
    """Holds the port until :meth:`hand_over`.

    Parameters
    ----------
    host, port
        Where to listen.
    prefix : str
        Where the service is mounted.

    Raises
    ------
    OSError
        The port cannot be had now.
    """

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._prefix = prefix
        self._socket = socket.create_server((host, port), backlog=BACKLOG)
        self._socket.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="early", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that was taken."""
        return int(self._socket.getsockname()[1])

    def hand_over(self) -> socket.socket:
        """The listening socket; from now on its new holder answers."""
        self._wake.send(b"x")
        self._thread.join()
        self._wake.close()
        self._woken.close()
        return self._socket

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._woken in ready:
                    return
                with contextlib.suppress(OSError):
                    self._serve()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(ANSWER_WITHIN_S)
            head = b""
            while b"\r\n\r\n" not in head and len(head) < LARGEST_HEAD:
                more = connection.recv(4096)
                if not more:
                    return
                head += more
            parts = head.split(b" ", 2)
            path = parts[1].decode("latin-1") if len(parts) == 3 else "/"
            connection.sendall(answer(path, self._prefix))
