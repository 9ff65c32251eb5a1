"""Metrics that an unmodified librdkafka pushes, on the broker's page and by the command."""

from __future__ import annotations

import urllib.request

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from sparklog.cli.main import main
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers


def test_an_unmodified_producer_pushes_and_the_page_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {
        "metrics.port": "0",
        "sparklog.client.metrics": "org.apache.kafka.",
        "sparklog.client.metrics.interval.ms": "200",
    }
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
