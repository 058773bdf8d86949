"""The suite's own tools: a test that cannot fail for the right reason proves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.support.postgres import Cluster


def test_a_database_is_empty_and_takes_what_is_written(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
        assert connection.execute(text("SELECT n FROM t")).scalar_one() == 1
    engine.dispose()


@pytest.mark.postgres
def test_what_was_committed_survives_a_crash_of_the_database(postgres_cluster: Cluster) -> None:
    with postgres_cluster.database() as url:
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE t AS SELECT 7 AS n"))
        engine.dispose()
        postgres_cluster.crash()
        with engine.connect() as connection:
            assert connection.execute(text("SELECT n FROM t")).scalar_one() == 7
        engine.dispose()


@pytest.mark.postgres
def test_the_database_is_durable(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        for setting in ("fsync", "synchronous_commit"):
            assert connection.execute(text(f"SHOW {setting}")).scalar_one() == "on"
    engine.dispose()


async def test_coroutine_tests_run_in_a_loop() -> None:
    assert asyncio.get_running_loop().is_running()


async def test_a_jupyter_server_answers_in_the_tests_own_loop(jp_fetch: Any) -> None:
    response = await jp_fetch("api", "status")
    assert response.code == 200
