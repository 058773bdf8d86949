"""Fixtures that every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.postgres import Cluster, find_binaries


def _missing(what: str) -> None:
    """Skip where a person may lack a tool, fail in CI where `make test` installs it."""
    if paths.in_ci():
        pytest.fail(f"{what} (CI must have it)")
    pytest.skip(what)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("hub") and not paths.PROXY.exists():
        _missing("configurable-http-proxy is not installed: run `make setup`")
    if item.get_closest_marker("browser") and not paths.CHROMIUM.exists():
        _missing("Chromium is not installed: run `make test`, or apt-get install chromium")


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for this run. Mark what uses it with `postgres`."""
    binaries = find_binaries()
    if binaries is None:
        _missing("PostgreSQL is not installed: run `make test`, or apt-get install postgresql")
    assert binaries is not None
    cluster = Cluster(binaries)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """The URL of a new, empty PostgreSQL database."""
    with postgres_cluster.database() as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both databases in turn, empty."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
