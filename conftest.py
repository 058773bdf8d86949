"""Settings for the whole test suite; pytest wants plugins to be named here and nowhere else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jupyter_server.serverapp import ServerApp
from pytest_jupyter.pytest_tornasync import AsyncHTTPServerClient
from tornado.httpserver import HTTPServer

pytest_plugins = ["pytest_jupyter.jupyter_server", "tests.support.fixtures"]

# `thorough` is what `make test` runs, `quick` what a person waits for. Neither has a deadline: the
# machine may be busy, and a benchmark is never a test.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
settings.register_profile("quick", max_examples=25, **_COMMON)
settings.register_profile("thorough", max_examples=100, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
async def jp_server_loop() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """The test's own loop, with pytest-jupyter's server taken down at its end."""
    yield asyncio.get_running_loop()
    app = ServerApp.instance()
    await app._cleanup()
    app.kernel_manager.context.destroy()
    ServerApp.clear_instance()


@pytest.fixture
def jp_asyncio_loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop | None:
    """One loop for pytest-jupyter's server and the test that asks it.

    pytest-jupyter makes a loop for every test; those without a server are spared it.
    """
    if "jp_configurable_serverapp" not in request.fixturenames:
        return None
    loop: asyncio.AbstractEventLoop = request.getfixturevalue("jp_server_loop")
    return loop


@pytest.fixture
def jp_server_cleanup() -> None:
    """pytest-jupyter makes a server after every test only to clean it up; see `jp_server_loop`."""


@pytest.fixture
async def http_server(http_server_port: Any, jp_web_app: Any) -> AsyncIterator[HTTPServer]:
    """pytest-jupyter's server, made inside the running loop; its own version would hang."""
    server = HTTPServer(jp_web_app)
    server.add_socket(http_server_port[0])
    yield server
    server.stop()
    await server.close_all_connections()
    http_server_port[0].close()


@pytest.fixture
async def http_server_client(http_server: HTTPServer) -> AsyncIterator[AsyncHTTPServerClient]:
    """pytest-jupyter's client, for the same reason."""
    client = AsyncHTTPServerClient(http_server=http_server)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def _no_inherited_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that is run from a terminal inside JupyterHub must not reach that hub."""
    for name in list(os.environ):
        if name.startswith(("JUPYTERHUB_", "ALLOTMENT_")) and name != "ALLOTMENT_TRACES":
            monkeypatch.delenv(name)
