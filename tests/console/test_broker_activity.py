"""The console's memory of the brokers' pages: rates of counters, and the values of a moment."""

from __future__ import annotations

from sparklog.broker.network.prometheus import MetricsPage
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.console.broker_activity import (
    BrokerSample,
    gauge_chart,
    growth,
    newest,
    parse_page,
    rate_chart,
    topic_rates,
)
from sparklog.core.counters import RequestCounters


def test_page_of_a_broker_gives_its_totals_and_values() -> None:
    counters = RequestCounters()
    counters.add("put", "a", 10)
    counters.add("put", "b", 10, requests=4)
    metrics = BrokerMetrics(counters)
    metrics.produced("a", 7, 700)
    metrics.produced("b", 3, 300)
    metrics.fetched("a", 50)
    metrics.watch(Gauge.TAIL_BYTES, lambda: 4096)
    metrics.watch(Gauge.TAIL_BYTES_LIMIT, lambda: 1 << 30)
    metrics.watch(Gauge.CONNECTIONS, lambda: 2)
    metrics.request("Produce", 9, 0.25)
    found = parse_page(MetricsPage(metrics).render())
    assert found.topics == {"a": 7, "b": 3}
    assert found.totals == {"records": 10, "in": 1000, "out": 50, "store put": 5}
    (row,) = newest([(1.0, {"one": found})])
    assert (row["memory"], row["memoryLimit"], row["connections"]) == (4096, 1 << 30, 2)
    assert row["produceMilliseconds"] == 250
    assert row["fetchMilliseconds"] is None


def test_rates_of_topics_are_of_brokers_in_both_looks() -> None:
    before = {"one": BrokerSample(topics={"a": 10, "b": 50}), "two": BrokerSample()}
    after = {
        "one": BrokerSample(topics={"a": 30, "b": 5}),
        "two": BrokerSample(topics={"a": 40}),
        "three": BrokerSample(topics={"a": 1e9}),
    }
    assert topic_rates((0.0, before), (10.0, after)) == {"a": 6, "b": 0}


def test_values_that_are_no_numbers_are_left_out() -> None:
    page = b"sparklog_tail_bytes NaN\nsparklog_tail_bytes_limit x\nsparklog_wal_objects +Inf\n"
    assert parse_page(page) == BrokerSample()
    assert newest([]) == []


def test_rates_are_of_all_brokers_and_pass_over_a_restart() -> None:
    def look(at_s: float, **records: float) -> tuple[float, dict[str, BrokerSample]]:
        return at_s, {
            name: BrokerSample({"records": count}, {"produce": count})
            for name, count in records.items()
        }

    assert gauge_chart([look(-20), look(-10, a=1)], "produce") is None
    looks = [look(0, a=100, b=5), look(10, a=200, b=25), look(20, a=3, b=45), look(30)]
    assert list(growth(looks, "records")) == [(10, 10, 120), (20, 10, 20)]
    assert rate_chart(looks, "records") == {"times": [10, 20], "rates": [12, 2]}
    assert rate_chart(looks[:2], "records") is None
    assert gauge_chart([look(-10), *looks], "produce") == {
        "times": [0, 10, 20, 30],
        "rates": [100, 200, 45, None],
    }
    assert gauge_chart(looks, "fetch") is None
