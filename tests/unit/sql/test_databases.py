from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event

import duckdb
import pytest

from sparklog.sql.databases import Databases

WAIT_S = 60


@pytest.fixture
def pool() -> Iterator[Executor]:
    """One thread, so that its tasks run in order."""
    with ThreadPoolExecutor(1) as opened:
        yield opened


@pytest.fixture
def databases(pool: Executor) -> Iterator[Databases]:
    with Databases(pool) as opened:
        yield opened


def test_each_query_has_a_database_of_its_own(databases: Databases) -> None:
    one, two = databases.begin(), databases.begin()
    one.result(WAIT_S).execute("CREATE TABLE t AS SELECT 1 AS n")
    with pytest.raises(duckdb.CatalogException):
        two.result(WAIT_S).execute("SELECT n FROM t")
    databases.end(one)
    with pytest.raises(duckdb.CatalogException):
        databases.begin().result(WAIT_S).execute("SELECT n FROM t")
    assert two.result(WAIT_S).execute("SELECT text('a'::BLOB)").fetchall() == [("a",)]


def test_a_database_that_ended_is_closed(databases: Databases) -> None:
    ended = databases.begin()
    connection = ended.result(WAIT_S)
    databases.end(ended)
    with pytest.raises(duckdb.ConnectionException):
        connection.execute("SELECT 1")


def test_after_two_queries_a_third_finds_its_database_open(
    pool: Executor, databases: Databases
) -> None:
    for _ in range(2):
        databases.end(databases.begin())
    pool.submit(lambda: None).result(WAIT_S)  # the tasks before it have ended
    goes_on = Event()
    pool.submit(goes_on.wait, WAIT_S)
    try:
        third = databases.begin()
        assert third.result(WAIT_S).execute("SELECT 3").fetchall() == [(3,)]
    finally:
        goes_on.set()
    databases.end(third)


def test_one_query_opens_no_database_for_another(pool: Executor, databases: Databases) -> None:
    databases.end(databases.begin())
    goes_on = Event()
    pool.submit(goes_on.wait, WAIT_S)
    second = databases.begin()
    assert not second.done()
    databases.end(second)
    goes_on.set()
    assert second.cancelled()


def test_queries_reach_no_files(databases: Databases) -> None:
    connection = databases.begin().result(WAIT_S)
    with pytest.raises(duckdb.PermissionException):
        connection.execute("SELECT * FROM read_text('/etc/hostname')")
