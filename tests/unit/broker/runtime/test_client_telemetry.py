"""Metrics that clients push: bounds, rejections, and an unmodified librdkafka."""

from __future__ import annotations

import urllib.request
from uuid import UUID

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from sparklog.broker.runtime.client_telemetry import (
    CLIENTS_MAX,
    METRICS_MAX,
    ClientTelemetry,
    PushingClient,
    Subscription,
    TelemetryThrottled,
    TelemetryTooLarge,
    UnknownSubscription,
    UnsupportedCompression,
)
from sparklog.cli.main import main
from sparklog.core.errors import SparklogError
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.unit.protocol.test_otlp import message, metric, point

WANTED = Subscription(("org.apache.kafka.",), 1000, 10_000)
DATA = message(metric("org.apache.kafka.producer.x", point(1.5)))


def client(number: int, at_s: float = 0.0) -> PushingClient:
    return PushingClient(UUID(int=number), f"c{number}", "127.0.0.1", at_s)


def push(
    telemetry: ClientTelemetry,
    one: PushingClient,
    data: bytes = DATA,
    *,
    wanted: Subscription = WANTED,
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
        (UnknownSubscription, {"wanted": Subscription((), 1000, 10_000)}),
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


def test_an_unmodified_producer_pushes_and_the_page_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"metrics.port": "0", "sparklog.client.metrics.interval.ms": "200"}
    with Brokers("memory://telemetry", 1, settings) as brokers:
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "client.id": "shop"})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        (ready,) = brokers.ready
        page = f"http://127.0.0.1:{ready.metrics_port}/metrics"

        def shown() -> set[str]:
            producer.poll(0)
            with urllib.request.urlopen(page, timeout=30) as answer:
                families = text_string_to_metric_families(answer.read().decode())
            return {
                sample.labels["name"]
                for family in families
                for sample in family.samples
                if sample.name == "sparklog_client_metric" and sample.labels["client_id"] == "shop"
            }

        names = eventually(shown, "the client's metrics are on the page")
        assert any(name.startswith("org.apache.kafka.producer.") for name in names), names
        words = ["client-metrics", "--page", page.removesuffix("/metrics"), "--client", "shop"]
        assert main([*words, "--name", "org.apache.kafka.producer."]) == 0
    assert "Client: shop\tInstance: " in capsys.readouterr().out
