"""The page of a broker's metrics in Prometheus' text format, under the names Kafka's have there.

The names are those that Kafka's JMX exporter configuration gives its MBeans, in lower case, so that
dashboards made for Kafka show a sparklog broker. As with Kafka, what is counted by topic is there
once more without a topic, for all of them: dashboards select `{topic!=""}` or `{topic=""}`. Metrics
that Kafka has no name for begin with `sparklog_`.
Source: kafka-2_0_0.yml of prometheus/jmx_exporter; Kafka's documentation, section Monitoring.

A broker's page for Prometheus: `GET /metrics` over HTTP/1.1, on the broker's event loop.
`GET /debug/state` returns the broker's state as JSON, to clients on the same machine only.
`/readyz` answers 200 while the broker serves and is in sync, else 503.

One small request at a time and connection; anything but a GET or HEAD of a known path is refused.
No library is behind it, because a page of text needs none, and a thread would read counters that
only the loop may touch. `/healthz` answers 200 while the loop turns.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from sparklog.broker.network.listener_sockets import open_sockets
from sparklog.broker.runtime.environment import spawn
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.counters import Latencies
from sparklog.core.quotas import IP_QUOTA_KEYS, QUOTA_KEYS

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
PLAIN = "text/plain; charset=utf-8"
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
MS_PER_S = 1000.0
STORE_KINDS = ("get", "put", "list", "delete", "head")
"""Each is there from the start: an alert on a rate needs a zero to begin with."""

_TOPIC = "kafka_server_brokertopicmetrics_"
_REQUEST = "kafka_network_requestmetrics_"
_REPLICAS = "kafka_server_replicamanager_"


class MetricsPage:
    """Renders one broker's metrics."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        """Show `metrics`."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(metrics))

    def render(self) -> bytes:
        """Return the page."""
        return generate_latest(self._registry)


class _Families(Collector):
    """Makes the metric families anew at every reading."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        for gauge, value in self._metrics.gauges().items():
            family = GaugeMetricFamily(gauge.value, _words(gauge.name))
            family.add_metric((), value)
            yield family
        yield _links(self._metrics)
        yield _refused_broker_calls(self._metrics)
        yield from _authentications(self._metrics)
        yield from _authorizations(self._metrics)
        yield from _audit(self._metrics)
        yield from _dead_letters(self._metrics)
        yield from _topics(self._metrics)
        yield from _requests(self._metrics)
        yield from _throttled(self._metrics)
        yield from _replicas(self._metrics)
        yield from _storage(self._metrics)
        yield from _clients(self._metrics)


def _links(metrics: BrokerMetrics) -> Metric:
    family = GaugeMetricFamily(
        "sparklog_broken_links", "1 where this broker cannot reach another", labels=("broker",)
    )
    for broker_id, broken in sorted(metrics.broken_links().items()):
        family.add_metric((str(broker_id),), broken)
    return family


def _refused_broker_calls(metrics: BrokerMetrics) -> Metric:
    name = "sparklog_refused_broker_calls"
    words = "Requests of clients that only brokers may send"
    family = CounterMetricFamily(name, words, labels=("request",))
    for api, count in metrics.refused_broker_calls.items():
        family.add_metric((api,), count)
    family.add_sample(f"{name}_total", {}, metrics.refused_broker_calls.total())
    return family


def _authentications(metrics: BrokerMetrics) -> Iterator[Metric]:
    kinds = (
        ("authentication", "logins and TLS handshakes", metrics.authentications),
        (
            "reauthentication",
            "logins of clients whose session was to end",
            metrics.reauthentications,
        ),
    )
    for kind, what, counted in kinds:
        for succeeded, word in ((True, "successful"), (False, "failed")):
            family = CounterMetricFamily(
                f"kafka_server_socketservermetrics_{word}_{kind}",
                f"{word.capitalize()} {what}",
                labels=("listener", "mechanism"),
            )
            for (listener, mechanism, success), count in counted.items():
                if success is succeeded:
                    family.add_metric((listener, mechanism), count)
            yield family


def _authorizations(metrics: BrokerMetrics) -> Iterator[Metric]:
    for word, count in (
        ("allowed", metrics.allowed_operations),
        ("denied", metrics.denied_operations),
    ):
        yield CounterMetricFamily(
            f"kafka_server_authorizer_metrics_authorization_{word}",
            f"Operations of clients that were {word}",
            value=count,
        )


def _audit(metrics: BrokerMetrics) -> Iterator[Metric]:
    counts = {
        "sparklog_audit_records": ("Records written to the audit topic", metrics.audit_records),
        "sparklog_audit_records_lost": (
            "Decisions that never became records of the audit topic",
            metrics.audit_records_lost,
        ),
    }
    for name, (words, count) in counts.items():
        yield CounterMetricFamily(name, words, value=count)


def _dead_letters(metrics: BrokerMetrics) -> Iterator[Metric]:
    name = "sparklog_dead_letters"
    words = "Records that share groups gave up, written to dead letter topics"
    family = CounterMetricFamily(name, words, labels=("topic",))
    for topic, count in metrics.dead_letters.items():
        family.add_metric((topic,), count)
    yield family
    yield CounterMetricFamily(
        "sparklog_dead_letter_failures",
        "Tries to write dead letters that failed; the records wait",
        value=metrics.dead_letter_failures,
    )


def _clients(metrics: BrokerMetrics) -> Iterator[Metric]:
    """Yield the metrics that clients pushed: one family, as their names are the clients'."""
    telemetry = metrics.client_telemetry
    family = GaugeMetricFamily(
        "sparklog_client_metric",
        "Metrics that clients pushed, as their last push said",
        labels=("client_id", "instance_id", "name", "attributes"),
    )
    for client in telemetry.clients():
        for metric in client.metrics:
            attributes = ",".join(f"{key}={value}" for key, value in metric.attributes)
            labels = (client.client_id, str(client.instance_id), metric.name, attributes)
            family.add_metric(labels, metric.value)
    yield family
    pushes = (("", "kept", telemetry.pushes), ("rejected_", "rejected", telemetry.rejected))
    for kind, word, count in pushes:
        yield CounterMetricFamily(
            f"sparklog_client_metric_{kind}pushes", f"Pushes of clients that were {word}", count
        )


def _topics(metrics: BrokerMetrics) -> Iterator[Metric]:
    tables: Mapping[str, tuple[str, Mapping[str, int]]] = {
        f"{_TOPIC}messagesin": ("Records appended by producers", metrics.messages_in),
        f"{_TOPIC}bytesin": ("Bytes appended by producers", metrics.bytes_in),
        f"{_TOPIC}bytesout": ("Bytes sent to consumers", metrics.bytes_out),
        f"{_TOPIC}replicationbytesin": ("Bytes taken from leaders", metrics.replication_bytes_in),
        f"{_TOPIC}replicationbytesout": ("Bytes sent to followers", metrics.replication_bytes_out),
        f"{_TOPIC}failedproducerequests": ("Produce answered by errors", metrics.failed_produce),
        f"{_TOPIC}failedfetchrequests": ("Fetch answered by errors", metrics.failed_fetch),
        "sparklog_history_bytes": ("Bytes sent to consumers from storage",
                                   metrics.history_bytes_out),
        "sparklog_flushes": ("Segments brought to storage", metrics.flushes),
        "sparklog_unreadable_batches": (
            "Batches brought to storage as they came, as nobody can read them",
            metrics.unreadable_batches,
        ),
        "sparklog_flushed_bytes": ("Bytes of segments brought to storage", metrics.flushed_bytes),
        "sparklog_flush_failures": ("Segments that storage did not take", metrics.flush_failures),
    }  # fmt: skip
    for name, (words, counts) in tables.items():
        family = CounterMetricFamily(name, words, labels=("topic",))
        for topic, count in counts.items():
            family.add_metric((topic,), count)
        family.add_sample(f"{name}_total", {}, sum(counts.values()))
        yield family


def _requests(metrics: BrokerMetrics) -> Iterator[Metric]:
    family = CounterMetricFamily(
        f"{_REQUEST}requests", "Requests answered", labels=("request", "version")
    )
    for (api, version), count in metrics.requests.items():
        family.add_metric((api, str(version)), count)
    yield family
    family = CounterMetricFamily(
        f"{_REQUEST}errors", "Answers by error code, 0 for none", labels=("request", "error")
    )
    for (api, code), count in metrics.request_errors.items():
        family.add_metric((api, str(code)), count)
    yield family
    times = Metric(f"{_REQUEST}totaltimems", "Time of recent requests in milliseconds", "summary")
    for api, latencies in metrics.request_latencies.items():
        _add_summary(times, {"request": api}, latencies)
        count = sum(n for (name, _), n in metrics.requests.items() if name == api)
        times.add_sample(f"{times.name}_count", {"request": api}, count)
        total_ms = metrics.request_seconds[api] * MS_PER_S
        times.add_sample(f"{times.name}_sum", {"request": api}, total_ms)
    yield times


def _throttled(metrics: BrokerMetrics) -> Iterator[Metric]:
    tables: Mapping[str, tuple[str, Mapping[str, float]]] = {
        "sparklog_throttled_requests": (
            "Requests and connections of clients that went over a quota",
            metrics.throttled_requests,
        ),
        "sparklog_throttled_seconds": (
            "Seconds for which such clients were not listened to, added up",
            metrics.throttled_seconds,
        ),
    }
    for name, (words, counts) in tables.items():
        family = CounterMetricFamily(name, words, labels=("quota",))
        for key in (*QUOTA_KEYS, *IP_QUOTA_KEYS):
            family.add_metric((key,), counts.get(key, 0))
        yield family


def _replicas(metrics: BrokerMetrics) -> Iterator[Metric]:
    counts = {
        f"{_REPLICAS}isrshrinks": ("In-sync sets that lost somebody", metrics.isr_shrinks),
        f"{_REPLICAS}isrexpands": ("In-sync sets that were joined", metrics.isr_expands),
        "sparklog_take_overs": ("Partitions that this broker began to lead", metrics.elections),
        "sparklog_take_over_seconds": (
            "Seconds from an election to serving, added up",
            metrics.take_over_seconds,
        ),
    }
    for name, (words, count) in counts.items():
        yield CounterMetricFamily(name, words, value=count)


def _storage(metrics: BrokerMetrics) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "sparklog_store_requests", "Requests to the object store", labels=("kind", "topic")
    )
    moved = CounterMetricFamily(
        "sparklog_store_bytes", "Bytes moved by these requests", labels=("kind", "topic")
    )
    for (kind, label), count in sorted(metrics.store_requests.snapshot().items()):
        requests.add_metric((kind, label), count.requests)
        moved.add_metric((kind, label), count.bytes)
    yield requests
    yield moved
    troubles = {
        "sparklog_store_retries": ("Requests sent again", metrics.store_requests.retries()),
        "sparklog_store_failures": ("Requests given up", metrics.store_requests.failures()),
    }
    for name, (words, counts) in troubles.items():
        family = CounterMetricFamily(
            name, f"{words}, as the store did not answer", labels=("kind",)
        )
        for kind in STORE_KINDS:
            family.add_metric((kind,), counts.get(kind, 0))
        yield family
    limit = metrics.store_requests.concurrency_limit
    if limit is not None:
        name = "sparklog_store_concurrency_limit"
        yield GaugeMetricFamily(name, "Requests that the store gets at a time", value=limit())
    yield CounterMetricFamily("sparklog_wal_puts", "Objects of the WAL", value=metrics.wal_puts)
    yield CounterMetricFamily("sparklog_wal_bytes", "Bytes of the WAL", value=metrics.wal_bytes)
    yield CounterMetricFamily(
        "sparklog_wal_batches", "Batches in the WAL", value=metrics.wal_batches
    )
    times = Metric("sparklog_wal_put_ms", "Time of recent WAL puts in milliseconds", "summary")
    _add_summary(times, {}, metrics.wal_latencies)
    yield times


def _add_summary(family: Metric, labels: Mapping[str, str], latencies: Latencies) -> None:
    for quantile in QUANTILES:
        seconds = latencies.percentile(quantile)
        if seconds is not None:
            marked = {**labels, "quantile": f"{quantile:g}"}
            family.add_sample(family.name, marked, seconds * MS_PER_S)


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


REQUEST_BYTES_MAX = 8192
"""Request line and headers of a scraper are some 300 bytes; servers commonly allow 8 KiB."""
REQUEST_TIMEOUT_S = 10.0
ACCEPT_RETRY_S = 0.1


class MetricsServer:
    """Serves one broker's metrics."""

    def __init__(
        self,
        metrics: BrokerMetrics,
        debug_state: Callable[[], Mapping[str, Any]] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Serve a page of metrics.

        Args:
            metrics: the metrics.
            debug_state: returns the broker's state, for clients on this machine.
            tls: returns the context for the next connection; None: no TLS.
            is_ready: returns whether the broker serves and is in sync.
        """
        self._page = MetricsPage(metrics)
        self._debug_state = debug_state
        self._tls = tls
        self._is_ready = is_ready
        self._accepting: dict[asyncio.Task[None], socket.socket] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port: `port`, or a free one for 0.

        Raises:
            OSError: the address cannot be had.
        """
        sockets = open_sockets(host, port)
        bound = int(sockets[0].getsockname()[1])
        for one in sockets:
            one.listen()
            self._accepting[spawn(self._accept(one))] = one
        return bound

    async def stop(self) -> None:
        """Listen no more; a page under way is finished by its connection's task."""
        accepting, self._accepting = self._accepting, {}
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)
        for one in accepting.values():
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError:  # the system has no file for it
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            spawn(self._open(client))
            await asyncio.sleep(0)

    async def _open(self, client: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        more: dict[str, Any] = {}
        if self._tls is not None:
            more = {"ssl": self._tls(), "ssl_handshake_timeout": REQUEST_TIMEOUT_S}
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, client, **more)
        except OSError:
            pass  # a failed handshake; the loop has closed the socket

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                peer = writer.get_extra_info("peername")
                writer.write(self._answer(head, is_local=bool(peer) and _is_loopback(peer[0])))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # the client is slow, gone, or speaks another protocol
        finally:
            writer.close()

    def _answer(self, head: bytes, *, is_local: bool) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"not HTTP/1.1\n")
        method, path = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET it\n")
        if path == b"/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE, self._page.render()
        elif path == b"/healthz":
            status, kind, body = "200 OK", PLAIN, b"ok\n"
        elif path == b"/readyz":
            ready = self._is_ready()
            status, kind = "200 OK" if ready else "503 Service Unavailable", PLAIN
            body = b"ready\n" if ready else b"not yet, or no longer, in sync\n"
        elif path == b"/debug/state" and self._debug_state is not None:
            if not is_local:
                return _response("403 Forbidden", b"ask from the broker's own machine\n")
            status, kind = "200 OK", "application/json"
            body = json.dumps(self._debug_state(), indent=1).encode()
        else:
            return _response(
                "404 Not Found", b"there is /metrics, /healthz, /readyz and /debug/state\n"
            )
        return _response(status, body, kind, head_only=method == b"HEAD")


def _is_loopback(host: str) -> bool:
    """Return True if an address is of this machine's loopback; IPv4 in IPv6 counts."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _response(
    status: str,
    body: bytes,
    kind: str = PLAIN,
    *,
    head_only: bool = False,
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else body)
