from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Browser as ChromiumBrowser
from starlette.testclient import TestClient

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.named_snapshots import create_snapshot
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.cluster.usage_reports import UsageReport, encode_usage, usage_day
from sparklog.console.root_view import RootView
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.counters import RequestCount
from sparklog.log.effects import create
from sparklog.log.layout import usage_key
from sparklog.log.schema import HEADERS
from sparklog.registry.decisions import ParsedOf, RegistryDecision, SchemaCandidate, register
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.registry.state import RegistryState
from sparklog.spark.schedule.history import JobRun, KnownJob, write_history
from tests.harness.chromium import axe_script, launched
from tests.harness.console_browser import NASTY, Browser, browser_of
from tests.harness.stored_shares import (
    configure_group,
    dead_letter_headers,
    store_share_group,
)


def append(log: Log, topic: str, partition: int, rows: dict[str, Any]) -> None:
    log.partition(topic, partition).append([pa.record_batch(rows)])


def _registered(
    candidate: SchemaCandidate, state: RegistryState, parsed: ParsedOf
) -> RegistryDecision:
    return register(state, candidate, parsed)


@pytest.fixture(scope="module")
def filled_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root with topics, a snapshot, two schemas and usage reports."""
    root = str(tmp_path_factory.mktemp("console"))
    with open_log(root) as log:
        log.create_topic("flights", 3, {"sparklog.key.index": "bloom"})
        log.create_topic("nasty", 1, {"max.message.bytes": "60000000"})
        log.create_topic("empty", 2)
        for segment in range(4):
            for partition in range(3):
                numbers = range(segment * 10, segment * 10 + 10)
                append(
                    log,
                    "flights",
                    partition,
                    {
                        "timestamp": pa.array([1_790_000_000_000 + n * 1000 for n in numbers]),
                        "key": [f"N{n}".encode() for n in numbers],
                        "value": [json.dumps({"n": n}).encode() for n in numbers],
                    },
                )
        count = len(NASTY)
        append(
            log,
            "nasty",
            0,
            {
                "key": pa.array([b"<i>k"] * count, pa.binary()),
                "value": pa.array(NASTY, pa.binary()),
                "headers": pa.array([[{"key": "t\x1b", "value": b"<u>"}]] * count, HEADERS),
            },
        )
        create_snapshot(log, "kept", ["flights"])
        run = JobRun("r1", "tidy", "retain", "schedule", 1_790_000_000_000, 1_790_000_000_000,
                     1_790_000_060_000, "app", "done", 0, 60_000, message="<b>kept</b>",
                     report={"topics": 3}, log="14:14:00 warning: <i>slow</i>")  # fmt: skip
        tidy = KnownJob("tidy", "retain", "0 3 * * *", "UTC", ("--topic", "flights"), True)
        for record in (run, tidy):
            write_history(log, record, patience_s=1.0)
        written = log.create_topic("written", 1)
        staged = log.partition("written", 0).stage([pa.record_batch({"value": [b"v"]})])
        publish(log, "q1", 0, [StagedPartition("written", written.topic_id, 0, (staged,))])
        store_share_group(log, "g", "flights")
        counts = {("get", "flights"): RequestCount(7, 700), ("put", ""): RequestCount(1, 0)}
        report = UsageReport({"sparklog consume": counts, "<b>nightly</b> " + "x" * 80: counts})
        today = usage_day(SYSTEM_CLOCK.now_ms())
        for number, data in enumerate((encode_usage(report), b"damaged")):
            log.run_program(create(usage_key(today, f"{number:032x}", 0), data))
        log.create_topic("dlq.flights", 1)
        configure_group(log, "g", {"errors.deadletterqueue.topic.name": "dlq.flights"})
        letter = [{"key": name, "value": text}
                  for name, text in dead_letter_headers("g", "flights", 0, 7)]  # fmt: skip
        append(log, "dlq.flights", 0, {"value": [b"v"], "headers": pa.array([letter], HEADERS)})
        schemas = SchemaRegistry(RootSchemaLog(log))
        for kind in ("long", "double"):
            content = read_content({"schema": f'"{kind}"'})
            candidate = schemas.candidate("flights-value", content)
            schemas.change(partial(_registered, candidate))
    return root


@pytest.fixture(scope="module")
def chromium() -> Iterator[ChromiumBrowser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_script(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def root_browser(
    tmp_path: Path,
) -> Iterator[Callable[..., Browser]]:
    """Opens consoles of new, empty roots, or of a given one."""
    views: list[RootView] = []
    clients: list[TestClient] = []

    def opened(root: str = "", **settings: Any) -> Browser:
        view = RootView(root or str(tmp_path / "log"))
        views.append(view)
        client = browser_of(view, **settings)
        client.__enter__()
        clients.append(client)
        return Browser(client, view.storage())

    yield opened
    for client in clients:
        client.__exit__()
    for view in views:
        view.close()
