"""The dashboard and the alert rules: each query against the pages of running brokers and jobs."""

from __future__ import annotations

import json
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import promql_parser as promql
import pytest
import yaml
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from sparklog.spark.schedule.history import DONE, JobRun
from sparklog.spark.schedule.metrics import JobMetrics, JobMetricsServer
from tests.interop.brokers import Brokers
from tests.interop.test_transactions import SETTINGS, made, read, write

FOLDER = Path(__file__).parents[2] / "conf" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$instance": ".*", "$topic": ".*"}
OF_THE_SCRAPE = {"instance", "job"}
"""Labels that Prometheus itself adds."""
TOPIC_COUNTERS = (
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "sparklog_flushed_bytes_total",
    "sparklog_history_bytes_total",
    "sparklog_unreadable_batches_total",
)
LOGIN_COUNTERS = (
    "kafka_server_socketservermetrics_failed_authentication_total",
    "kafka_server_socketservermetrics_successful_authentication_total",
)
QUIET = {
    **{name: {"topic"} for name in TOPIC_COUNTERS},
    **{name: {"listener", "mechanism"} for name in LOGIN_COUNTERS},
    "sparklog_refused_broker_calls_total": {"request"},
}
"""Labels of counters that have no sample with them before such an event."""


@dataclass
class Query:
    """One metric of a query: the labels that select it, and those that group it."""

    metric: str
    labels: set[str]


def queries(text: str) -> list[Query]:
    """Parse a query of PromQL, with Grafana's variables replaced."""
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    assert "$" not in text
    found: list[Query] = []

    def visit(node: Any, grouped: set[str]) -> None:
        if isinstance(node, promql.AggregateExpr):
            if node.modifier is not None:
                grouped = grouped | set(node.modifier.labels)
            visit(node.expr, grouped)
        elif isinstance(node, promql.Call):
            for each in node.args:
                visit(each, grouped)
        elif isinstance(node, promql.BinaryExpr):
            visit(node.lhs, grouped)
            visit(node.rhs, grouped)
        elif isinstance(node, promql.ParenExpr):
            visit(node.expr, grouped)
        elif isinstance(node, promql.MatrixSelector):
            visit(node.vector_selector, grouped)
        elif isinstance(node, promql.VectorSelector):
            matched = {each.name for each in node.matchers.matchers}
            found.append(Query(str(node.name), matched | grouped))
        else:
            assert isinstance(node, promql.NumberLiteral), node

    visit(promql.parse(text), set())
    return found


@pytest.fixture(scope="module")
def pages() -> dict[str, set[str]]:
    """The metrics of two brokers and of a schedule, each with the labels of its samples."""
    settings = {**SETTINGS, "metrics.port": "0"}
    jobs = JobMetrics()
    jobs.ended(
        JobRun("a" * 32, "nightly", "retain", "schedule", 0, 0, 1, outcome=DONE, exit_code=0)
    )
    server = JobMetricsServer(jobs, "127.0.0.1", 0)
    try:
        with Brokers(f"memory://{uuid4()}", count=2, settings=settings) as cluster:
            topic = made(cluster.bootstrap, 1)
            write(Producer({"bootstrap.servers": cluster.bootstrap}), topic, "x", partitions=1)
            assert read(cluster.bootstrap, topic, 1) == ["x"]
            ports = [*(one.metrics_port for one in cluster.ready), server.port]
            texts = [
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
                for port in ports
            ]
    finally:
        server.close()
    found: dict[str, set[str]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.setdefault(name, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_each_query_of_a_panel_has_metrics_and_labels(pages: dict[str, set[str]]) -> None:
    texts = [target["expr"] for panel in PANELS for target in panel["targets"]]
    texts += [rule["expr"] for rule in RULES]
    asked = [query for text in texts for query in queries(text)]
    assert len(texts) > 60
    assert {query.metric for query in asked} - set(pages) == set()
    for query in asked:
        labels = pages[query.metric] | QUIET.get(query.metric, set()) | OF_THE_SCRAPE
        assert query.labels <= labels, f"{query} has only {labels}"
    assert {name for name in QUIET if QUIET[name] <= pages[name]} == set()


def test_legends_and_texts_use_labels_that_the_query_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = {label for query in queries(target["expr"]) for label in query.labels}
            assert named <= kept | {"job"}, target
    for rule in RULES:
        texts = " ".join(rule["annotations"].values())
        named = set(re.findall(r"\$labels\.(\w+)", texts))
        assert named <= {label for query in queries(rule["expr"]) for label in query.labels}, rule


def test_rules_have_names_severities_and_texts() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_do_not_overlap_and_have_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert all(panel["description"] for panel in PANELS)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
