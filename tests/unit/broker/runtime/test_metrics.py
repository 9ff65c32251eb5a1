"""Metrics of a broker, as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparklog.broker.network.prometheus import MetricsPage
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.core.counters import RequestCounters


def read(metrics: BrokerMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample of the page, read back by Prometheus' own parser."""
    text = MetricsPage(metrics).render().decode()
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    found = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(found) == len(samples), "a sample is there twice"
    return found


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_metrics_count_bytes_and_records_by_topic_and_in_total() -> None:
    metrics = BrokerMetrics()
    metrics.produced("flights", 10, 1000)
    metrics.produced("flights", 5, 500)
    metrics.produced("planes", 1, 70)
    metrics.fetched("flights", 300)
    metrics.fetched("flights", 200, from_history=True)
    page = read(metrics)
    topic = "kafka_server_brokertopicmetrics_"
    assert page[at(f"{topic}messagesin_total", topic="flights")] == 15
    assert page[at(f"{topic}bytesin_total", topic="planes")] == 70
    assert page[at(f"{topic}bytesin_total")] == 1570
    assert page[at(f"{topic}bytesout_total", topic="flights")] == 500
    assert page[at("sparklog_history_bytes_total", topic="flights")] == 200


def test_requests_have_quantiles_counts_and_errors() -> None:
    metrics = BrokerMetrics()
    for ms in range(1, 101):
        metrics.request("Produce", 9, ms / 1000)
    metrics.request("Produce", 10, 0.2, error_code=6)
    page = read(metrics)
    request = "kafka_network_requestmetrics_"
    assert page[at(f"{request}requests_total", request="Produce", version="9")] == 100
    assert page[at(f"{request}errors_total", request="Produce", error="6")] == 1
    assert page[at(f"{request}totaltimems_count", request="Produce")] == 101
    assert page[at(f"{request}totaltimems_sum", request="Produce")] == pytest.approx(5250)
    median = page[at(f"{request}totaltimems", request="Produce", quantile="0.5")]
    assert median == pytest.approx(51)


def test_gauges_are_read_when_the_page_is() -> None:
    metrics = BrokerMetrics()
    under_replicated = 0
    metrics.watch(Gauge.UNDER_REPLICATED, lambda: under_replicated)
    name = at("kafka_server_replicamanager_underreplicatedpartitions")
    assert read(metrics)[name] == 0
    under_replicated = 3
    assert read(metrics)[name] == 3


def test_metrics_show_the_requests_that_the_store_counted() -> None:
    requests = RequestCounters()
    metrics = BrokerMetrics(requests)
    requests.add("put", "flights", 4096)
    requests.add("get", "", 10, requests=2)
    requests.retried("put")
    requests.failed("list")
    metrics.wal_put(9000, 3, 0.05)
    metrics.flushed("flights", 4096)
    page = read(metrics)
    assert page[at("sparklog_store_requests_total", kind="put", topic="flights")] == 1
    assert page[at("sparklog_store_bytes_total", kind="put", topic="flights")] == 4096
    assert page[at("sparklog_store_requests_total", kind="get", topic="")] == 2
    for kind in ("get", "put", "list", "delete", "head"):
        assert page[at("sparklog_store_retries_total", kind=kind)] == (kind == "put")
        assert page[at("sparklog_store_failures_total", kind=kind)] == (kind == "list")
    assert page[at("sparklog_wal_puts_total")] == 1
    assert page[at("sparklog_wal_batches_total")] == 3
    assert page[at("sparklog_wal_put_ms", quantile="0.99")] == 50
    assert page[at("sparklog_flushed_bytes_total", topic="flights")] == 4096


def test_metrics_show_replication_and_elections() -> None:
    metrics = BrokerMetrics()
    metrics.isr_shrunk()
    metrics.isr_expanded()
    metrics.isr_expanded()
    metrics.took_over(0.25)
    metrics.replicated_in("flights", 7)
    metrics.replicated_out("flights", 8)
    metrics.produce_failed("flights")
    metrics.fetch_failed("flights")
    page = read(metrics)
    assert page[at("kafka_server_replicamanager_isrshrinks_total")] == 1
    assert page[at("kafka_server_replicamanager_isrexpands_total")] == 2
    assert page[at("sparklog_take_overs_total")] == 1
    assert page[at("sparklog_take_over_seconds_total")] == 0.25
    topic = "kafka_server_brokertopicmetrics_"
    assert page[at(f"{topic}replicationbytesin_total", topic="flights")] == 7
    assert page[at(f"{topic}replicationbytesout_total", topic="flights")] == 8
    assert page[at(f"{topic}failedproducerequests_total", topic="flights")] == 1
    assert page[at(f"{topic}failedfetchrequests_total", topic="flights")] == 1


def test_topic_names_are_escaped() -> None:
    metrics = BrokerMetrics()
    metrics.produced('odd"\\name', 1, 1)
    page = read(metrics)
    assert page[at("kafka_server_brokertopicmetrics_messagesin_total", topic='odd"\\name')] == 1


def test_metrics_show_broken_links_by_broker() -> None:
    metrics = BrokerMetrics()
    metrics.broken_links = lambda: {2: True, 3: False}
    page = read(metrics)
    assert page[at("sparklog_broken_links", broker="2")] == 1
    assert page[at("sparklog_broken_links", broker="3")] == 0


def test_metrics_show_audit_records_and_lost_ones() -> None:
    metrics = BrokerMetrics()
    assert read(metrics)[at("sparklog_audit_records_lost_total")] == 0
    metrics.audit_written(3)
    metrics.audit_lost(2)
    page = read(metrics)
    assert page[at("sparklog_audit_records_total")] == 3
    assert page[at("sparklog_audit_records_lost_total")] == 2
