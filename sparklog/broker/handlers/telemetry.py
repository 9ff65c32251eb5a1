"""GetTelemetrySubscriptions (71): the metrics of its own that a client shall push, and how often.

PushTelemetry (72): a client's metrics, which this broker's page shows until the client is silent.

Clients of librdkafka and Java do both by themselves. Any client may, as in Kafka. Metrics come
uncompressed, because the response names no compression type: nothing here can unfold to more than
it claims. Source: KIP-714.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.responses import NO_THROTTLE, code_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.client_telemetry import PushingClient, TelemetrySubscription
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder

UNCOMPRESSED_ONLY: Final = ()
CLIENT_ID_CHARS_MAX: Final = 100


def subscription_of(config: BrokerConfig) -> TelemetrySubscription:
    """Return the subscription for all clients."""
    return TelemetrySubscription(
        config.words("sparklog.client.metrics"),
        config.whole("sparklog.client.metrics.interval.ms"),
        config.whole("telemetry.max.bytes"),
    )


async def get_subscriptions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the subscription, and a new id to a client that has none."""
    answer = ResponseBuilder.to(request)
    wanted = subscription_of(node.config)
    known = request.client_instance_id
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        client_instance_id=known or UUID(bytes=node.environment.entropy.random_bytes(16)),
        subscription_id=wanted.subscription_id,
        accepted_compression_types=UNCOMPRESSED_ONLY,
        push_interval=timedelta(milliseconds=wanted.interval_ms),
        telemetry_max_bytes=wanted.bytes_max,
        delta_temporality=False,
        requested_metrics=wanted.metrics,
    )


async def push(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Keep a client's metrics, or answer why not."""
    error: SparklogError | None = None
    try:
        if request.client_instance_id is None:
            raise InvalidRequest("the client gave no instance id")
        client = PushingClient(
            request.client_instance_id,
            (context.client_id or "")[:CLIENT_ID_CHARS_MAX],
            context.client_host,
            asyncio.get_running_loop().time(),
        )
        node.metrics.client_telemetry.push(
            subscription_of(node.config),
            client,
            request.metrics,
            subscription_id=int(request.subscription_id),
            compression_type=int(request.compression_type),
            terminating=bool(request.terminating),
        )
    except SparklogError as rejected:
        error = rejected
    return ResponseBuilder.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else code_of(error),
    )
