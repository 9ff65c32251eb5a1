"""Spans of requests, received by a collector that this test runs, and none without the setting."""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sparklog.broker.runtime import traces
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.traces import RequestTraces, trace_requests
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import InvalidConfig
from tests.interop.brokers import Brokers

SETTINGS = {"node.id": "1", "sparklog.traces.enable": "true"}


class Collector(BaseHTTPRequestHandler):
    """Keeps the spans that it receives."""

    received: list[Span] = []  # noqa: RUF012 - one for all connections

    def do_POST(self) -> None:
        asked = ExportTraceServiceRequest()
        asked.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.received.extend(
            span for one in asked.resource_spans for s in one.scope_spans for span in s.spans
        )
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Print nothing."""


def test_a_collector_gets_a_span_of_each_produce_request(monkeypatch: pytest.MonkeyPatch) -> None:
    Collector.received.clear()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        with Brokers("memory://traces", 1, {"sparklog.traces.enable": "true"}) as brokers:
            producer = Producer({"bootstrap.servers": brokers.bootstrap})
            producer.produce("t", b"x")
            assert producer.flush(30) == 0
        server.shutdown()
    (span,) = (one for one in Collector.received if one.name == "Produce")
    found = {one.key: one.value for one in span.attributes}
    assert found["messaging.system"].string_value == "kafka"
    assert found["messaging.kafka.broker.id"].int_value == 1
    assert span.kind == Span.SPAN_KIND_SERVER
    now_ns = SYSTEM_CLOCK.now_ms() * 1_000_000
    assert now_ns - 60e9 < span.start_time_unix_nano <= span.end_time_unix_nano <= now_ns


def test_only_produce_and_fetch_requests_are_traced() -> None:
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    metrics = BrokerMetrics()
    metrics.on_request = RequestTraces(provider, SYSTEM_CLOCK, {}).request
    for api in ("Produce", "Metadata", "Fetch"):
        metrics.request(api, 1, 0.25)
    spans = kept.get_finished_spans()
    assert [one.name for one in spans] == ["Produce", "Fetch"]
    assert {(one.end_time or 0) - (one.start_time or 0) for one in spans} == {250_000_000}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(traces, "import_module", missing)
    with pytest.raises(InvalidConfig, match=r"sparklog\[otel\]"):
        trace_requests(BrokerMetrics(), parse_broker_configs(SETTINGS), SYSTEM_CLOCK)


def test_a_broker_without_the_setting_does_not_import_opentelemetry() -> None:
    metrics = BrokerMetrics()
    assert trace_requests(metrics, parse_broker_configs({"node.id": "1"}), SYSTEM_CLOCK) is None
    assert metrics.on_request is None
    code = "import sys, sparklog.broker.main; sys.exit('opentelemetry' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
