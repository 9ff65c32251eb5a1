"""Spans of Produce and Fetch requests for OpenTelemetry, if a broker is asked for them.

`sparklog.traces.enable=true` has a broker make one span for each, from the last byte of the request
to the first one of the response. It needs `pip install sparklog[otel]`. The variables of
OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT, say where spans go and how many are sampled.

A thread of OpenTelemetry's exports them. Its queue is bounded, and a span that finds it full is
dropped. Without the setting no part of OpenTelemetry is imported, and a request costs one look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.clock import Clock
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
TRACED: Final = frozenset({"Produce", "Fetch"})
INSTALL: Final = "sparklog.traces.enable needs OpenTelemetry: pip install 'sparklog[otel]'"


class RequestTraces:
    """Makes spans of requests that have ended."""

    def __init__(self, provider: Any, clock: Clock, attributes: Mapping[str, str | int]) -> None:
        """Make spans with a tracer of `provider`, each with `attributes`."""
        self._provider = provider
        self._tracer = provider.get_tracer("sparklog")
        self._kind = import_module("opentelemetry.trace").SpanKind.SERVER
        self._clock = clock
        self._attributes = {"messaging.system": "kafka", **attributes}

    def request(self, api: str, version: int, seconds: float) -> None:
        """Make the span of a request that ends now, if it is a Produce or a Fetch."""
        if api not in TRACED:
            return
        ended_ns = self._clock.now_ms() * NS_PER_MS
        span = self._tracer.start_span(
            api,
            kind=self._kind,
            start_time=ended_ns - int(seconds * NS_PER_S),
            attributes={**self._attributes, "messaging.kafka.api.version": version},
        )
        span.end(ended_ns)

    def close(self) -> None:
        """Export what is left. Waits for the exporter, so call it off the event loop."""
        self._provider.shutdown()


def trace_requests(
    metrics: BrokerMetrics, config: BrokerConfig, clock: Clock
) -> RequestTraces | None:
    """Trace the requests that `metrics` counts; None unless the settings ask for it.

    Raises:
        InvalidConfig: OpenTelemetry is not installed.
    """
    if not config.flag("sparklog.traces.enable"):
        return None
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        raise InvalidConfig(f"{INSTALL}. problem={error}") from error
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES precede this name.
    resource = resources.Resource.create()
    if resource.attributes.get("service.name", "unknown").startswith("unknown"):
        resource = resource.merge(resources.Resource({"service.name": "sparklog"}))
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    logging.getLogger(__name__).info("requests are traced")
    broker = {"messaging.kafka.broker.id": config.whole("node.id")}
    traces = RequestTraces(provider, clock, broker)
    metrics.on_request = traces.request
    return traces
