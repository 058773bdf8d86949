"""A Kubernetes API server of one page: pods of one namespace, with a watch, over real HTTP."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

_CONFIG = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
users: [{{name: test, user: {{token: "t"}}}}]
"""


class KubeApi:
    """Pods start at once and run until they are deleted.

    Parameters
    ----------
    folder : Path
        For the kubeconfig.
    """

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.history: list[dict[str, Any]] = []
        self.fault: int | None = None
        self.port = 0
        self._version = 1
        self._watchers: set[asyncio.Queue[dict[str, Any]]] = set()
        ready = threading.Event()

        async def main() -> None:
            sockets = bind_sockets(0, "127.0.0.1")
            self.port = sockets[0].getsockname()[1]
            handlers = [(r"/api/v1/namespaces/[^/]+/pods(?:/(.*))?", _Pods, {"api": self})]
            server = HTTPServer(Application(handlers))
            server.add_sockets(sockets)
            self._loop = asyncio.get_running_loop()
            self._ended = asyncio.Event()
            ready.set()
            await self._ended.wait()
            for queue in self._watchers:
                queue.put_nowait({})
            server.stop()
            await server.close_all_connections()

        self._thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        self.config = folder / "kubeconfig"
        self.config.write_text(_CONFIG.format(url=self.url))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    # -- what happens to pods, from any thread --------------------------------------------------

    def tell(self, kind: str, pod: dict[str, Any]) -> None:
        """Send an event to all who watch."""
        event = {"type": kind, "object": copy.deepcopy(pod)}

        def send() -> None:
            self.history.append(event)
            for queue in self._watchers:
                queue.put_nowait(event)

        self._loop.call_soon_threadsafe(send)

    def lose(self) -> None:
        """Let those who watch believe that all pods are gone."""
        for pod in self.pods.values():
            self.tell("DELETED", self.stamp(copy.deepcopy(pod)))

    def terminate(self, name: str, code: int) -> None:
        """The server in a pod ends; the pod stays, as with a sidecar."""
        pod = self.pods[name]
        pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": code}}
        self.tell("MODIFIED", self.stamp(pod))

    def remove(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None:
            self.tell("DELETED", self.stamp(pod))

    def stamp(self, pod: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        return pod

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": f"uid-{name}", "namespace": "default"}
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        pod["status"] = {
            "phase": "Running", "podIP": "127.0.0.1",
            "containerStatuses": [{
                "name": "notebook", "ready": True, "state": state, "image": "i", "imageID": "i",
                "restartCount": 0,
            }],
        }  # fmt: skip
        self.pods[name] = self.stamp(pod)
        self.tell("ADDED", pod)
        return pod


class _Pods(RequestHandler):
    def initialize(self, api: KubeApi) -> None:
        self.api = api

    def _say(self, status: int, body: Any) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body))

    def _status(self, code: int) -> None:
        self._say(code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})

    async def get(self, name: str | None) -> None:
        if name:
            if self.api.fault is not None:
                self._status(self.api.fault)
            elif name in self.api.pods:
                self._say(200, self.api.pods[name])
            else:
                self._status(404)
        elif self.get_argument("watch", "") in ("1", "true", "True"):
            await self._watch()
        else:
            version = str(self.api._version)
            self._say(200, {
                "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version},
                "items": list(self.api.pods.values()),
            })  # fmt: skip

    async def _watch(self) -> None:
        since = int(self.get_argument("resourceVersion", "0"))
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for event in self.api.history:
            if int(event["object"]["metadata"]["resourceVersion"]) > since:
                queue.put_nowait(event)
        self.api._watchers.add(queue)
        self.set_header("Content-Type", "application/json")
        try:
            await self.flush()
            while event := await queue.get():
                self.write(json.dumps(event) + "\n")
                await self.flush()
        except StreamClosedError:
            return
        finally:
            self.api._watchers.discard(queue)

    def post(self, _name: str | None) -> None:
        pod = json.loads(self.request.body)
        if pod["metadata"]["name"] in self.api.pods:
            self._status(409)
        else:
            self._say(201, self.api.create(pod))

    def delete(self, name: str) -> None:
        if self.api.fault is not None:
            self._status(self.api.fault)
        elif name not in self.api.pods:
            self._status(404)
        else:
            pod = self.api.pods[name]
            self.api.remove(name)
            self._say(200, pod)
