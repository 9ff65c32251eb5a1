"""Topics that queries read: under a root with the leaders' records, or through brokers alone.

The states of partitions and the leaders' records come from the same code as in Spark's source, so
both give the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from sparklog.cluster.log import Log
from sparklog.core.counters import NOTHING, RequestCount
from sparklog.core.errors import (
    InvalidConfig,
    InvalidRequest,
    SparklogError,
)
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.core.types import Closeable, TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.spark.access.leaders import PartitionLeaders, registered
from sparklog.spark.source.offsets import select
from sparklog.spark.source.partition_states import PartitionLookup, PartitionStates
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.spark.source.selection import Assign, OfKey, Selection, Subscribe
from sparklog.sql.databases import Databases
from sparklog.store.kept_ends import KeptEnds

if TYPE_CHECKING:
    from sparklog.client.security import SecuritySettings
    from sparklog.registry.schema_log import SchemaLog
    from sparklog.registry.schema_source import SchemaSource

LOOKS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment whose records a table has; by default the present."""

    snapshot: str | None = None
    """The name of a snapshot."""
    timestamp_ms: int | None = None
    """Only records before the first one with a later timestamp, in each partition."""


PRESENT: Final = Moment()

States = Mapping[TopicPartition, ReadablePartition]
Chosen = int | bytes | None
"""A partition: by its number, or where Kafka's producers put a key. None is all of them."""


class TopicReader(Protocol):
    """Looks at topics. A query calls it from several threads."""

    committed_only: bool
    security: SecuritySettings | None
    log: Log | None
    """The log with the objects; None if only brokers are asked."""
    pool: Executor
    databases: Databases

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def states(
        self,
        topic: str,
        moment: Moment,
        chosen: Chosen = None,
        through: KeptEnds | None = None,
    ) -> States:
        """Return what each partition of a topic holds, or the chosen one.

        A look-up by key passes the store that keeps what it reads, `through`.

        Raises:
            UnknownTopicOrPartition: no such topic or partition. ResourceNotFound: no such snapshot.
            Unavailable: the store or the leaders do not respond.
        """

    def schemas(self) -> SchemaSource:
        """Return the schema registry, opened at the first call.

        Raises:
            InvalidConfig: no address, or its libraries are not installed.
        """

    def counted(self) -> RequestCount:
        """Return the requests to the store and the bytes so far."""


def needs_registry(missing: ModuleNotFoundError) -> InvalidConfig:
    """Return the error for a library of the extra `registry` that is not installed."""
    return InvalidConfig(
        "values by schemas need more libraries: pip install 'sparklog[registry]'. "
        f"missing={missing.name}"
    )


class OpenedSchemas:
    """A schema registry that is opened when a query needs it."""

    def __init__(self, url: str | None, log: Callable[[], SchemaLog]) -> None:
        """Use the registry at `url`, or without one the topic of schemas that `log` opens."""
        self._url = url
        self._log = log
        self._found: SchemaSource | None = None
        self._lock = Lock()

    def opened(self) -> SchemaSource:
        """Return the registry. Raises InvalidConfig."""
        with self._lock:
            if self._found is None:
                self._found = self._made()
            return self._found

    def close(self) -> None:
        """Release connections."""
        if self._found is not None:
            self._found.close()

    def _made(self) -> SchemaSource:
        try:
            from sparklog.registry.http.client import RemoteSchemas  # noqa: PLC0415 - of an extra
            from sparklog.registry.registry import SchemaRegistry  # noqa: PLC0415 - likewise
        except ModuleNotFoundError as missing:
            raise needs_registry(missing) from missing
        return RemoteSchemas(self._url) if self._url else SchemaRegistry(self._log())


class RootTopics(Closeable):
    """The topics under a root, with the records that leaders have not flushed yet."""

    def __init__(
        self,
        log: Log,
        *,
        committed_only: bool = False,
        includes_unflushed: bool = True,
        security: SecuritySettings | None = None,
        bootstrap: str | None = None,
        schema_registry: str | None = None,
    ) -> None:
        """Read `log`, which the caller closes.

        Args:
            log: the log.
            committed_only: leave out records of aborted and open transactions.
            includes_unflushed: ask leaders for the records that no segment has yet.
            security: TLS and SASL for the brokers; None takes those of the process.
            bootstrap: brokers; None takes those that the metadata names.
            schema_registry: the URL of a registry; None takes the schemas under the root.
        """
        self.committed_only = committed_only
        self.security = security
        self.log: Log | None = log
        self._log = log
        self._bootstrap = bootstrap
        self._includes_unflushed = includes_unflushed
        self._schemas = OpenedSchemas(schema_registry, self._schema_log)
        self.pool: Executor = ThreadPoolExecutor(LOOKS_AT_ONCE, "sparklog-sql")
        self.databases = Databases(self.pool)

    def close(self) -> None:
        """Stop the threads."""
        self.databases.close()
        self.pool.shutdown(wait=False, cancel_futures=True)
        self._schemas.close()

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._log.topics())

    def states(
        self,
        topic: str,
        moment: Moment,
        chosen: Chosen = None,
        through: KeptEnds | None = None,
    ) -> States:
        """Return what each partition of a topic holds. Raises as `TopicReader.states`."""
        leaders = None
        if self._includes_unflushed and moment.snapshot is None:
            leaders = PartitionLeaders(
                self._bootstrap, committed_only=self.committed_only, security=self.security
            )
        try:
            found = PartitionLookup(
                self._log,
                _selection(topic, chosen),
                self.pool,
                leaders,
                committed_only=self.committed_only,
                pinned=moment.snapshot,
                through=through,
            ).take()
            if moment.timestamp_ms is None:
                return dict(found.views)
            return {p: _until(found, p, moment.timestamp_ms) for p in found.views}
        finally:
            if leaders is not None:
                leaders.close()

    def schemas(self) -> SchemaSource:
        """Return the schema registry. Raises as `TopicReader.schemas`."""
        return self._schemas.opened()

    def _schema_log(self) -> SchemaLog:
        """Return the topic of schemas: through brokers if one leads it, as for the records."""
        from sparklog.registry.schema_log import RootSchemaLog  # noqa: PLC0415 - seldom

        image = self._log.refresh()
        topic = image.topics.get(SCHEMAS_TOPIC)
        led = topic is not None and any(state.leader >= 0 for state in topic.partition_states)
        if led and self._includes_unflushed:
            addresses = self._bootstrap or registered(image, self.security)
            if addresses:
                return _broker_schemas(addresses, self.security)
        return RootSchemaLog(self._log)

    def counted(self) -> RequestCount:
        """Return the requests to the store and the bytes so far."""
        return sum(self._log.requests().values(), NOTHING)


class BrokerTopics(Closeable):
    """The topics that brokers serve, read through the brokers alone."""

    log: Log | None = None

    def __init__(
        self,
        bootstrap: str,
        *,
        committed_only: bool = False,
        settings: Mapping[str, str],
        schema_registry: str | None = None,
    ) -> None:
        """Connect to `bootstrap` with the settings of TLS and SASL.

        `schema_registry` is the URL of a registry; None takes the schemas behind the brokers.

        Raises:
            InvalidRequest: not host:port. InvalidConfig: a wrong setting.
        """
        from sparklog.client.admin import Admin  # noqa: PLC0415 - a root needs no Kafka client
        from sparklog.client.security import SecuritySettings  # noqa: PLC0415 - likewise

        self.committed_only = committed_only
        self.security: SecuritySettings | None = SecuritySettings(settings)
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap, settings=settings)
        self._schemas = OpenedSchemas(
            schema_registry, lambda: _broker_schemas(bootstrap, self.security)
        )
        self.pool: Executor = ThreadPoolExecutor(LOOKS_AT_ONCE, "sparklog-sql")
        self.databases = Databases(self.pool)

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self.databases.close()
        self.pool.shutdown(wait=False, cancel_futures=True)
        self._schemas.close()
        self._admin.close()

    def names(self) -> list[str]:
        """Return the names of all topics, sorted. Raises Unavailable."""
        return self._admin.topic_names()

    def states(
        self,
        topic: str,
        moment: Moment,
        chosen: Chosen = None,
        through: KeptEnds | None = None,
    ) -> States:
        """Return what each partition of a topic holds. Raises as `TopicReader.states`."""
        from sparklog.client.values import EARLIEST, LATEST  # noqa: PLC0415 - likewise

        if moment.snapshot is not None:
            raise InvalidRequest(
                "a snapshot is read from the storage; give the root, not brokers. "
                f"snapshot={moment.snapshot}"
            )
        known = self._admin.listed_topic(topic)
        places = select(_selection(topic, chosen), {topic: known})
        starts = self._offsets(dict.fromkeys(places, EARLIEST))
        ends = self._offsets(dict.fromkeys(places, LATEST))
        if moment.timestamp_ms is not None:
            later = self._offsets(dict.fromkeys(places, moment.timestamp_ms + 1))
            ends = {p: later[p] if later[p] >= 0 else end for p, end in ends.items()}
        return {
            place: ReadablePartition(
                _unstored(PartitionLayout(topic, known.topic_id, place.partition), starts[place]),
                max(starts[place], ends[place]),
                starts[place],
                self._bootstrap,
            )
            for place in places
        }

    def schemas(self) -> SchemaSource:
        """Return the schema registry. Raises as `TopicReader.schemas`."""
        return self._schemas.opened()

    def counted(self) -> RequestCount:
        """Return nothing: brokers are asked, not the store."""
        return NOTHING

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        answers = self._admin.offsets(wanted, committed_only=self.committed_only)
        for place, answer in answers.items():
            if isinstance(answer, SparklogError):
                raise answer
            found[place] = answer.offset
        return found


def _selection(topic: str, chosen: Chosen) -> Selection:
    if chosen is None:
        return Subscribe((topic,))
    if isinstance(chosen, bytes):
        return OfKey(topic, chosen)
    return Assign((TopicPartition(topic, chosen),))


def _broker_schemas(addresses: str, security: SecuritySettings | None) -> SchemaLog:
    from sparklog.client.registry_log import BrokerSchemaLog  # noqa: PLC0415 - likewise
    from sparklog.client.security import process_security  # noqa: PLC0415 - likewise

    chosen = process_security() if security is None else security
    return BrokerSchemaLog(addresses, chosen.given)


def _unstored(layout: PartitionLayout, start: int) -> PartitionView:
    """Return a view without objects: all records are beyond them."""
    return PartitionView(layout, Manifest(log_start_offset=start, end_offset=start))


def _until(found: PartitionStates, place: TopicPartition, timestamp_ms: int) -> ReadablePartition:
    state = found.views[place]
    end = found.offset_at_time(place, timestamp_ms + 1)
    if end is None or end >= state.readable_end:
        return state
    end = max(end, state.log_start_offset)
    return replace(state, readable_end=end, stored_end=min(state.stored_end, end))
