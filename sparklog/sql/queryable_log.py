"""QueryableLog: a log under a root that answers SQL; it is the public `sparklog.Log`.

`cluster.log.Log` has topics and partitions, and everything else of the project is built on it. SQL
needs what is built on it: the leaders' records, and schemas. So the class with SQL is defined here,
above them. Its methods load their libraries at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.cluster.log import Log

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.client.security import SecuritySettings
    from sparklog.sql.engine import DecodeRules, QueryLimits


class QueryableLog(Log):
    """Topics and partitions under one root, and SQL over them."""

    def sql(
        self,
        statement: str,
        *,
        committed_only: bool = False,
        includes_unflushed: bool = True,
        limits: QueryLimits | None = None,
        rules: DecodeRules | None = None,
        security: SecuritySettings | None = None,
        schema_registry: str | None = None,
    ) -> pa.Table:
        """Return the result of a SELECT over the topics.

        Args:
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
        from sparklog.sql.engine import query_table  # noqa: PLC0415 - loads Arrow's datasets
        from sparklog.sql.topics import RootTopics  # noqa: PLC0415 - likewise

        with RootTopics(
            self,
            committed_only=committed_only,
            includes_unflushed=includes_unflushed,
            security=security,
            schema_registry=schema_registry,
        ) as topics:
            return query_table(topics, statement, limits, rules)

    def get(
        self,
        topic: str,
        key: bytes,
        partition: int | None = None,
        *,
        committed_only: bool = False,
        includes_unflushed: bool = True,
        security: SecuritySettings | None = None,
    ) -> bytes | None:
        """Return the newest value of a key; None if it has no record, or a tombstone.

        Args:
            topic: to look in.
            key: byte for byte.
            partition: look here; None is where Kafka's producers put the key.
            committed_only: as in `sql`.
            includes_unflushed: as in `sql`.
            security: as in `sql`.

        Raises:
            UnknownTopicOrPartition: no such topic or partition.
            SparklogError: the records cannot be read.
        """
        from sparklog.sql.key_state import newest_record  # noqa: PLC0415 - as above
        from sparklog.sql.topics import RootTopics  # noqa: PLC0415 - as above

        with RootTopics(
            self,
            committed_only=committed_only,
            includes_unflushed=includes_unflushed,
            security=security,
        ) as topics:
            found = newest_record(topics, topic, key, partition)
        if found is None:
            return None
        _, record = found
        value: bytes | None = record.column("value")[0].as_py()
        return value


open_log = QueryableLog.open
