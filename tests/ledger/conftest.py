from __future__ import annotations

from collections.abc import Iterator

import pytest

from allotment_hub.ledger import Ledger
from tests.ledger import build
from tests.support.postgres import Cluster


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """One database for all tests that empty it before use: making one takes a second each."""
    with postgres_cluster.database() as url:
        Ledger.open(url).close()
        yield url


@pytest.fixture
def emptied_postgres_url(shared_postgres_url: str) -> str:
    """A PostgreSQL database with the tables of a new ledger."""
    build.empty_postgres(shared_postgres_url)
    return shared_postgres_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty ledger, on each database in turn."""
    name = "sqlite_url" if request.param == "sqlite" else "emptied_postgres_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """A new ledger that this process leads, on each database in turn."""
    with Ledger.open(ledger_url) as opened:
        opened.lead(since=1_700_000_000_000)
        yield opened
