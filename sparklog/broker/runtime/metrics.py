"""BrokerMetrics: the counters of a broker, one object that all its parts record into.

Recording is an addition to a dictionary, cheap enough for every request. The metrics page adds the
names that operators see. Both recording and the page run on the event loop, so there are no locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum

from sparklog.broker.runtime.client_telemetry import ClientTelemetry
from sparklog.core.counters import Latencies, RequestCounters

KEPT_LATENCIES = 2048
"""Latencies kept per kind of request: enough for a 99.9th percentile, in about 20 KiB."""


class Gauge(StrEnum):
    """Values that are read when the page is requested; those of Kafka's MBeans come first."""

    PARTITIONS = "kafka_server_replicamanager_partitioncount"
    LEADERS = "kafka_server_replicamanager_leadercount"
    UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
    UNDER_MIN_ISR = "kafka_server_replicamanager_underminisrpartitioncount"
    OFFLINE_REPLICAS = "kafka_server_replicamanager_offlinereplicacount"
    ACTIVE_CONTROLLER = "kafka_controller_kafkacontroller_activecontrollercount"
    OFFLINE_PARTITIONS = "kafka_controller_kafkacontroller_offlinepartitionscount"
    ACTIVE_BROKERS = "kafka_controller_kafkacontroller_activebrokercount"
    FENCED_BROKERS = "kafka_controller_kafkacontroller_fencedbrokercount"
    PRODUCE_WAITING = "kafka_server_delayedoperationpurgatory_produce_purgatorysize"
    FETCH_WAITING = "kafka_server_delayedoperationpurgatory_fetch_purgatorysize"
    FETCH_SESSIONS = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    FETCH_SESSION_PARTITIONS = "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"
    SHARE_SESSIONS = "kafka_server_sharesessioncache_sharesessionscount"
    CONNECTIONS = "kafka_server_socketservermetrics_connection_count"
    ACLS = "kafka_server_authorizer_metrics_acls_total_count"
    TAIL_BYTES = "sparklog_tail_bytes"
    TAIL_BYTES_LIMIT = "sparklog_tail_bytes_limit"
    TAIL_WAITING = "sparklog_tail_waiting_appends"
    WAL_OBJECTS = "sparklog_wal_objects"
    WAL_WAITING_SECONDS = "sparklog_wal_waiting_seconds"
    HISTORY_CACHE_BYTES = "sparklog_history_cache_bytes"
    SHARE_ACQUIRED = "sparklog_share_acquired_records"
    DEAD_LETTERS_WAITING = "sparklog_dead_letters_waiting"
    RECOVERING = "sparklog_recovering_partitions"
    RECOVERING_SECONDS = "sparklog_recovering_seconds"
    FLUSH_OVERDUE_SECONDS = "sparklog_flush_overdue_seconds"


class BrokerMetrics:
    """Counts of one broker since it started, and its gauges."""

    def __init__(self, store_requests: RequestCounters | None = None) -> None:
        """Start at zero; `store_requests` are the counters of the broker's store."""
        self.store_requests = RequestCounters() if store_requests is None else store_requests
        self.messages_in: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.replication_bytes_in: Counter[str] = Counter()
        self.replication_bytes_out: Counter[str] = Counter()
        self.failed_produce: Counter[str] = Counter()
        self.failed_fetch: Counter[str] = Counter()
        self.history_bytes_out: Counter[str] = Counter()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.request_errors: Counter[tuple[str, int]] = Counter()
        self.request_seconds: dict[str, float] = {}
        self.request_latencies: dict[str, Latencies] = {}
        self.refused_broker_calls: Counter[str] = Counter()
        self.authentications: Counter[tuple[str, str, bool]] = Counter()
        """By listener, mechanism, and whether they succeeded."""
        self.reauthentications: Counter[tuple[str, str, bool]] = Counter()
        """Further logins of connections that had one, by the same."""
        self.throttled_requests: Counter[str] = Counter()
        self.throttled_seconds: dict[str, float] = {}
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.take_over_seconds = 0.0
        self.wal_puts = 0
        self.wal_bytes = 0
        self.wal_batches = 0
        self.wal_latencies = Latencies(KEPT_LATENCIES)
        self.flushes: Counter[str] = Counter()
        self.flushed_bytes: Counter[str] = Counter()
        self.flush_failures: Counter[str] = Counter()
        self.broken_links: Callable[[], Mapping[int, bool]] = dict
        """By id of each other live broker: True if this broker cannot reach it."""
        self.unreadable_batches: Counter[str] = Counter()
        self.allowed_operations = 0
        self.denied_operations = 0
        self.audit_records = 0
        self.audit_records_lost = 0
        self.dead_letters: Counter[str] = Counter()
        """By dead letter topic."""
        self.dead_letter_failures = 0
        self.client_telemetry = ClientTelemetry()
        self.on_request: Callable[[str, int, float], None] | None = None
        """Called with each request that `request` counts, to trace it."""
        self._gauges: dict[Gauge, Callable[[], float]] = {}

    def produced(self, topic: str, records: int, size_bytes: int) -> None:
        """Count records that producers appended: their number, and bytes as batches."""
        self.messages_in[topic] += records
        self.bytes_in[topic] += size_bytes

    def fetched(self, topic: str, size_bytes: int, *, from_history: bool = False) -> None:
        """Count bytes of batches sent to consumers; `from_history` marks reads of the storage."""
        self.bytes_out[topic] += size_bytes
        if from_history:
            self.history_bytes_out[topic] += size_bytes

    def replicated_in(self, topic: str, size_bytes: int) -> None:
        """Count bytes of batches that a follower here fetched from a leader."""
        self.replication_bytes_in[topic] += size_bytes

    def replicated_out(self, topic: str, size_bytes: int) -> None:
        """Count bytes of batches that a leader here sent to a follower."""
        self.replication_bytes_out[topic] += size_bytes

    def produce_failed(self, topic: str) -> None:
        """Count a partition of a produce request whose response has an error."""
        self.failed_produce[topic] += 1

    def fetch_failed(self, topic: str) -> None:
        """Count a partition of a fetch request whose response has an error."""
        self.failed_fetch[topic] += 1

    def request(self, api: str, version: int, seconds: float, error_code: int = 0) -> None:
        """Count a request; `seconds` last from its last byte in to its response's first byte out.

        `api` is Kafka's name: `Produce`, `Fetch` for consumers, `FetchFollower` for replicas.
        """
        self.requests[api, version] += 1
        self.request_errors[api, error_code] += 1
        if self.on_request is not None:
            self.on_request(api, version, seconds)
        self.request_seconds[api] = self.request_seconds.get(api, 0.0) + seconds
        latencies = self.request_latencies.get(api)
        if latencies is None:
            latencies = self.request_latencies[api] = Latencies(KEPT_LATENCIES)
        latencies.add(seconds)

    def throttled(self, quota: str, seconds: float) -> None:
        """Count a response after which the broker does not read from the client for `seconds`."""
        self.throttled_requests[quota] += 1
        self.throttled_seconds[quota] = self.throttled_seconds.get(quota, 0.0) + seconds

    def authentication(
        self, listener: str, mechanism: str, *, succeeded: bool, again: bool = False
    ) -> None:
        """Count a login, or a failed TLS handshake under the mechanism `TLS`.

        `again` marks a login of a connection that had one before.
        """
        counted = self.reauthentications if again else self.authentications
        counted[listener, mechanism, succeeded] += 1

    def authorized(self, *, allowed: bool) -> None:
        """Count a decision of the authorizer."""
        if allowed:
            self.allowed_operations += 1
        else:
            self.denied_operations += 1

    def audit_written(self, count: int) -> None:
        """Count records that this broker wrote to the audit topic."""
        self.audit_records += count

    def audit_lost(self, count: int) -> None:
        """Count decisions that never became records of the audit topic."""
        self.audit_records_lost += count

    def dead_letters_written(self, topic: str, count: int) -> None:
        """Count records that share groups gave up, and that are in a dead letter topic now."""
        self.dead_letters[topic] += count

    def dead_letters_failed(self) -> None:
        """Count a try to write dead letters that failed; the records wait."""
        self.dead_letter_failures += 1

    def broker_call_refused(self, api: str) -> None:
        """Count a request from a client that only brokers may send."""
        self.refused_broker_calls[api] += 1

    def isr_shrunk(self) -> None:
        """Count a partition whose ISR lost members."""
        self.isr_shrinks += 1

    def isr_expanded(self) -> None:
        """Count a partition whose ISR gained a member."""
        self.isr_expands += 1

    def took_over(self, seconds: float) -> None:
        """Count a partition that this broker began to lead, and the seconds of its recovery."""
        self.elections += 1
        self.take_over_seconds += seconds

    def wal_put(self, size_bytes: int, batches: int, seconds: float) -> None:
        """Count one object of the write-ahead log that became durable."""
        self.wal_puts += 1
        self.wal_bytes += size_bytes
        self.wal_batches += batches
        self.wal_latencies.add(seconds)

    def flushed(self, topic: str, size_bytes: int, unreadable: int = 0) -> None:
        """Count one segment that a leader here flushed, and its unreadable batches."""
        self.flushes[topic] += 1
        self.flushed_bytes[topic] += size_bytes
        if unreadable:
            self.unreadable_batches[topic] += unreadable

    def flush_failed(self, topic: str) -> None:
        """Count a failed put of a segment, which the flusher tries again."""
        self.flush_failures[topic] += 1

    def watch(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Read a gauge by `read` from now on; `read` must be quick and must not raise."""
        self._gauges[gauge] = read

    def gauges(self) -> Mapping[Gauge, float]:
        """Return the values of all watched gauges."""
        return {gauge: float(read()) for gauge, read in self._gauges.items()}
