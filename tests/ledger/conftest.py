from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from allotment_hub.ledger import Ledger
from allotment_hub.ledger.tables import GENESIS, NAMES
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
    engine = create_engine(shared_postgres_url)
    names = ", ".join(f'"{name}"' for name in NAMES.tables if name != "leader")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE leader DISABLE TRIGGER USER"))
        connection.execute(text(f"TRUNCATE {names}"))
        connection.execute(text(f"UPDATE leader SET epoch = 0, position = 0, head = '{GENESIS}'"))  # noqa: S608  # a constant
        connection.execute(text("ALTER TABLE leader ENABLE TRIGGER USER"))
    engine.dispose()
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
