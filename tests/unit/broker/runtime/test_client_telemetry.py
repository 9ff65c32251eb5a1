"""Metrics that clients push: bounds and rejections."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.broker.runtime.client_telemetry import (
    CLIENTS_MAX,
    METRICS_MAX,
    ClientTelemetry,
    PushingClient,
    TelemetrySubscription,
    TelemetryThrottled,
    TelemetryTooLarge,
    UnknownSubscription,
    UnsupportedCompression,
)
from sparklog.core.errors import SparklogError
from tests.unit.protocol.test_otlp import message, metric, point

WANTED = TelemetrySubscription(("org.apache.kafka.",), 1000, 10_000)
DATA = message(metric("org.apache.kafka.producer.x", point(1.5)))


def client(number: int, at_s: float = 0.0) -> PushingClient:
    return PushingClient(UUID(int=number), f"c{number}", "127.0.0.1", at_s)


def push(
    telemetry: ClientTelemetry,
    one: PushingClient,
    data: bytes = DATA,
    *,
    wanted: TelemetrySubscription = WANTED,
    subscription_id: int = WANTED.subscription_id,
    compression_type: int = 0,
    terminating: bool = False,
) -> None:
    telemetry.push(
        wanted,
        one,
        data,
        subscription_id=subscription_id,
        compression_type=compression_type,
        terminating=terminating,
    )


def test_clients_and_their_numbers_are_bounded() -> None:
    telemetry = ClientTelemetry()
    many = message(metric("m", point(1) * (METRICS_MAX + 5)))
    for number in range(CLIENTS_MAX + 3):
        push(telemetry, client(number + 1), many)
    kept = telemetry.clients()
    assert len(kept) == CLIENTS_MAX
    assert kept[0].client_id == "c4", "the longest silent ones went"
    assert {len(one.metrics) for one in kept} == {METRICS_MAX}


def test_silent_clients_are_forgotten_at_the_next_push() -> None:
    telemetry = ClientTelemetry()
    push(telemetry, client(1))
    push(telemetry, client(2, 2.9))
    push(telemetry, client(3, 3.1))
    assert [one.client_id for one in telemetry.clients()] == ["c2", "c3"]


def test_a_client_that_ends_may_push_early() -> None:
    telemetry = ClientTelemetry()
    push(telemetry, client(1))
    with pytest.raises(TelemetryThrottled):
        push(telemetry, client(1, 0.1))
    push(telemetry, client(1, 0.1), terminating=True)
    push(telemetry, client(1, 0.7))
    assert (telemetry.pushes, telemetry.rejected) == (3, 1)


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (UnknownSubscription, {"subscription_id": WANTED.subscription_id + 1}),
        (UnknownSubscription, {"wanted": TelemetrySubscription((), 1000, 10_000)}),
        (UnsupportedCompression, {"compression_type": 1}),
        (TelemetryTooLarge, {"data": b"x" * 10_001}),
    ],
)
def test_a_push_outside_of_the_subscription_is_rejected(
    error: type[SparklogError], changes: dict[str, object]
) -> None:
    telemetry = ClientTelemetry()
    with pytest.raises(error):
        push(telemetry, client(1), **changes)  # type: ignore[arg-type]
    assert telemetry.clients() == []
    assert telemetry.rejected == 1
