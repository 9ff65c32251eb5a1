"""Databases of DuckDB, in memory, each for one query and opened in a thread.

DuckDB takes some 15 ms to open a database, most of them for its own functions. So a query begins to
open its database before it looks at topics. From the second query of a reader on, the database of
the next one opens meanwhile.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from threading import Lock
from typing import TYPE_CHECKING, Final

from sparklog.core.errors import InvalidConfig
from sparklog.core.types import Closeable
from sparklog.sql.decoded_views import FORMATS, MACROS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SETTINGS: Final = (
    "python_enable_replacements = false",
    "TimeZone = 'UTC'",
    "enable_progress_bar = false",
)


class Databases(Closeable):
    """Opens databases that have our functions and schemas, and no table. Thread-safe."""

    def __init__(self, pool: Executor) -> None:
        """Open them in threads of `pool`."""
        self._pool = pool
        self._lock = Lock()
        self._begun = 0
        self._next: Future[DuckDBPyConnection] | None = None

    def begin(self) -> Future[DuckDBPyConnection]:
        """Return a database for one query, which gives it back by `end`.

        Raises:
            InvalidConfig: DuckDB is not installed.
        """
        _check_installed()
        with self._lock:
            self._begun += 1
            found = self._next or self._pool.submit(_opened)
            self._next = self._pool.submit(_opened) if self._begun > 1 else None
        return found

    def end(self, database: Future[DuckDBPyConnection]) -> None:
        """Free the memory of a database."""
        _close(database)

    def close(self) -> None:
        """Free the database that is open without a query."""
        with self._lock:
            unused, self._next = self._next, None
        if unused is not None:
            _close(unused)


def _close(database: Future[DuckDBPyConnection]) -> None:
    """Close a database at once, or as soon as it is open."""
    if not database.cancel():
        database.add_done_callback(_close_opened)


def _close_opened(database: Future[DuckDBPyConnection]) -> None:
    if database.exception() is None:
        database.result().close()


def _opened() -> DuckDBPyConnection:
    import duckdb  # noqa: PLC0415 - an extra, which only queries need

    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "temp_directory": "",
        "preserve_insertion_order": "true",
    }
    connection = duckdb.connect(":memory:", config=config)
    for setting in SETTINGS:
        connection.execute(f"SET {setting}")
    connection.execute(MACROS)
    for schema in FORMATS:
        connection.execute(f"CREATE SCHEMA {schema}")
    return connection


def _check_installed() -> None:
    try:
        import duckdb  # noqa: F401, PLC0415 - as above
    except ImportError as error:
        raise InvalidConfig("queries need DuckDB: pip install 'sparklog[sql]'") from error
