"""Writing to a log from Spark: tasks stage, the driver publishes.

A task uploads its records as staged objects under names of its own; nothing is visible then. The
driver's `commit` puts them into the log. A batch is one append per partition. A stream's batch is
number `batchId` of the query, which happens once however many attempts there are. If brokers lead,
it sends the leaders small batches that refer to the objects, of a stream as one transaction.

  SINK-WRITER-1: objects that `commit` may have published are never deleted. `abort` touches staged
      objects only when a task is missing among the messages, because then no commit can have begun
  SINK-WRITER-2: the rows of a task keep their order within a partition; tasks follow each other as
      numbered
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sparklog.cluster.log import Log, log_config
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.publication import (
    AppendInTransaction,
    AppendLed,
    StagedPartition,
    append_once,
    drop_staged,
    publish,
)
from sparklog.core.config.model import understood_configs
from sparklog.core.config.topic import TOPIC_SETTINGS, TopicConfig
from sparklog.core.errors import InvalidRequest
from sparklog.core.topic_names import check_not_closed
from sparklog.core.types import TopicPartition
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.access.worker_heap import imports_kept
from sparklog.spark.sink.leader_sink import LeaderAppends
from sparklog.spark.sink.options import SinkOptions, check_sink_schema, parse_sink_options
from sparklog.spark.sink.routing import Router, gathered
from sparklog.spark.sink.staging import ROLL_BYTES, Staging
from sparklog.spark.sink.transactional_sink import TransactionalAppends

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""The local property in which Spark gives a task the id of its streaming query."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The objects that one task has staged."""

    partitions: tuple[StagedPartition, ...]
    query_id: str | None = None


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SparklogWriter:
    """Return the writer of a batch query.

    Raises:
        InvalidConfig, InvalidRequest: options or columns that do not fit, or a save mode other
            than append. InvalidTopic: the topic of the option holds the cluster's own state.
            UnknownTopicOrPartition: it does not exist.
    """
    if overwrite:
        raise InvalidRequest(
            "Save mode Overwrite is not allowed for sparklog. Allowed save mode is append: "
            '`.mode("append")`. To drop what a topic holds use `sparklog delete-records`'
        )
    parsed = parse_sink_options(options, streaming=False)
    columns = check_sink_schema(schema, parsed.topic)
    if parsed.topic is not None:
        check_not_closed(parsed.topic, "append to it")
        shared_log(parsed.root).topic(parsed.topic)
    return SparklogWriter(parsed, columns)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> SparklogStreamWriter:
    """Return the writer of a streaming query.

    `overwrite` is set in output mode complete; every row is then appended, as in Kafka's sink.

    Raises:
        InvalidConfig, InvalidRequest: options or columns that do not fit.
    """
    parsed = parse_sink_options(options, streaming=True)
    return SparklogStreamWriter(parsed, check_sink_schema(schema, parsed.topic))


class SparklogWriter(DataSourceArrowWriter):
    """Appends the rows of a batch query."""

    def __init__(
        self,
        options: SinkOptions,
        columns: Sequence[str],
        open_log: Callable[[str], Log] = shared_log,
    ) -> None:
        """Write `columns` under `options`; `open_log` must be importable where tasks run."""
        self.options = options
        self.columns = tuple(columns)
        self.open_log = open_log

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage a task's rows."""
        log = self.open_log(self.options.root)
        return Staged(stage_rows(log, self.options, self.columns, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks have staged."""
        log = self.open_log(self.options.root)
        staged = [part for message in _staged(messages) for part in message.partitions]
        append_led = LeaderAppends(log, self.options.bootstrap, security=self.options.security)
        if self.options.transaction is None:
            append_once(log, staged, append_led=append_led)
        else:
            publish(log, *self.options.transaction, staged, append_led=append_led)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete staged objects if nothing can have published them."""
        _abort(self.open_log(self.options.root), messages)


class SparklogStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a streaming query, each once."""

    def __init__(
        self,
        options: SinkOptions,
        columns: Sequence[str],
        open_log: Callable[[str], Log] = shared_log,
    ) -> None:
        """Write `columns` under `options`; `open_log` must be importable where tasks run."""
        self.options = options
        self.columns = tuple(columns)
        self.open_log = open_log

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage a task's rows, and note the query they belong to."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context is not None else None
        if query_id is None:
            raise InvalidRequest(
                "Spark does not say which streaming query this is, so its batches cannot be told "
                f"apart; write from a streaming query. missing={QUERY_ID_PROPERTY}"
            )
        log = self.open_log(self.options.root)
        return Staged(stage_rows(log, self.options, self.columns, iterator), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish batch `batchId` of the query."""
        staged = _staged(messages)
        writers = {message.query_id for message in staged}
        if not writers:
            return
        (writer,) = writers
        assert writer is not None, "write() always names the query"
        log = self.open_log(self.options.root)
        parts = [part for message in staged for part in message.partitions]
        publish(
            log,
            writer,
            batchId,
            parts,
            append_led=self.leaders(log),
            in_transaction=self.transaction(log),
            transactional=self.options.transactional,
        )

    def leaders(self, log: Log) -> AppendLed:
        """Return what appends where brokers lead."""
        return LeaderAppends(log, self.options.bootstrap, security=self.options.security)

    def transaction(self, log: Log) -> AppendInTransaction:
        """Return what appends a batch that is one transaction."""
        options = self.options
        return TransactionalAppends(
            log,
            options.bootstrap,
            options.transactional_id,
            options.transaction_timeout_ms,
            security=options.security,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete staged objects if nothing can have published them."""
        _abort(self.open_log(self.options.root), messages)


def stage_rows(
    log: Log, options: SinkOptions, columns: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> tuple[StagedPartition, ...]:
    """Stage the rows of one task; what was staged is deleted again if it fails."""
    destinations = _Destinations(log, options)
    router = Router(options.topic, destinations.partitions)
    staging = Staging(destinations.open, roll_bytes=destinations.roll_bytes)
    try:
        with imports_kept("writing"):
            for batch in gathered(one.select(columns) for one in batches):
                for place, records in router.route(batch):
                    destinations.check_keys(place.topic, records)
                    staging.add(place, records)
            return staging.finish()
    except BaseException:
        drop_staged(log, staging.abandon())
        raise


class _Destinations:
    """The topics of one task, each looked up once."""

    def __init__(self, log: Log, options: SinkOptions) -> None:
        self._log = log
        self._options = options
        self._topics: dict[str, Topic] = {}
        self._roll_bytes: dict[str, int] = {}
        self._compacted: dict[str, bool] = {}

    def partitions(self, topic: str) -> int:
        return self._topic(topic).partitions

    def roll_bytes(self, topic: str) -> int:
        found = self._roll_bytes.get(topic)
        if found is None:
            configs = self._configs(topic)
            found = self._roll_bytes[topic] = min(ROLL_BYTES, configs.whole("segment.bytes"))
        return found

    def check_keys(self, topic: str, records: pa.RecordBatch) -> None:
        """Refuse what a broker would: records without a key in a compacted topic.

        Raises:
            InvalidRequest: there are such.
        """
        compacted = self._compacted.get(topic)
        if compacted is None:
            policy = self._configs(topic).words("cleanup.policy")
            compacted = self._compacted[topic] = "compact" in policy
        if not compacted:
            return
        has_keys = "key" in records.schema.names
        if not has_keys or records.column("key").null_count:
            raise InvalidRequest(
                "a compacted topic takes no record without a key; give every row one. "
                f"topic={topic}"
            )

    def open(self, place: TopicPartition) -> PartitionLog:
        """Return the partition's log, with the producer's compression where the topic leaves it."""
        log = self._log.partition(place.topic, place.partition)
        config = self._config(self._topic(place.topic), log.config)
        if config == log.config:
            return log
        return PartitionLog(self._log.store, log.layout, config)

    def _topic(self, name: str) -> Topic:
        found = self._topics.get(name)
        if found is None:
            check_not_closed(name, "append to it")
            found = self._topics[name] = self._log.topic(name)
        return found

    def _configs(self, topic: str) -> TopicConfig:
        return understood_configs(self._topic(topic).settings, TOPIC_SETTINGS)

    def _config(self, topic: Topic, config: LogConfig) -> LogConfig:
        options = self._options
        if topic.settings.get("compression.type", "producer") != "producer":
            return config
        asked = dict(topic.settings)
        if options.compression is not None:
            codec = options.compression
            asked["compression.type"] = "uncompressed" if codec == "none" else codec
        if options.zstd_level is not None:
            asked["compression.zstd.level"] = options.zstd_level
        wanted = log_config(asked)
        return replace(config, codec=wanted.codec, zstd_level=wanted.zstd_level)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _abort(log: Log, messages: Sequence[WriterCommitMessage | None]) -> None:
    if all(message is not None for message in messages):
        return
    drop_staged(log, [part for message in _staged(messages) for part in message.partitions])
