"""Queries from Python: a statement in, an Arrow table out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidRequest
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.topics import RootTopics, TopicReader

if TYPE_CHECKING:
    from sparklog.client.security import SecuritySettings


def query(
    log: Log,
    statement: str,
    *,
    committed_only: bool = False,
    includes_unflushed: bool = True,
    limits: QueryLimits | None = None,
    rules: DecodeRules | None = None,
    security: SecuritySettings | None = None,
    schema_registry: str | None = None,
) -> pa.Table:
    """Return the result of a SELECT over the topics of a log.

    Args:
        log: `sparklog.open_log(root)`.
        statement: SQL; a topic is a table with the columns of `sparklog.sql.columns`.
        committed_only: leave out records of aborted and open transactions.
        includes_unflushed: ask brokers for the records that they have not flushed yet.
        limits: time, memory, rows and threads.
        rules: what happens with values that do not decode.
        security: TLS and SASL for the brokers; None takes those of the process.
        schema_registry: the URL of a schema registry; None takes the schemas of the log.

    Raises:
        InvalidRequest: the statement is wrong, or needs more than its limits.
        UnknownTopicOrPartition: no such topic. InvalidConfig: DuckDB is not installed.
        SparklogError: the records cannot be read.
    """
    with RootTopics(
        log,
        committed_only=committed_only,
        includes_unflushed=includes_unflushed,
        security=security,
        schema_registry=schema_registry,
    ) as topics:
        return query_table(topics, statement, limits, rules)


def query_table(
    topics: TopicReader,
    statement: str,
    limits: QueryLimits | None = None,
    rules: DecodeRules | None = None,
) -> pa.Table:
    """Return the result of a statement over `topics`. Raises as `query`.

    The result may have as many bytes as DuckDB's memory, and is an error beyond them.
    """
    allowed = QueryLimits() if limits is None else limits
    with Query(topics, statement, allowed, rules) as running:
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in running.batches():
            batches.append(batch)
            size += batch.nbytes
            if size > allowed.memory_bytes:
                running.cancel()
                raise InvalidRequest(
                    "the result is larger than the memory limit; add a LIMIT, or allow more. "
                    f"memory_bytes={allowed.memory_bytes}"
                )
        return pa.Table.from_batches(batches)
