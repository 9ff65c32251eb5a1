"""The bill: counts of the stores themselves, prices, and the puts with another `flush.ms`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.cli.metrics_pages import samples_of
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import create_snapshot, drop_snapshot, snapshot_records
from sparklog.cluster.orphans import publication_records
from sparklog.cluster.usage_reports import UsageReport, encode_usage, usage_day
from sparklog.console.bill import (
    LOOK_EVERY_S,
    MONTH_MS,
    Bill,
    PriceList,
    jobs_reading,
    page_counts,
    puts_at,
    read_prices,
    requests_cost,
)
from sparklog.console.broker_view import BrokerView
from sparklog.console.root_view import RootView
from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.counters import (
    NOTHING,
    RequestCount,
    Snapshot,
    by_kind,
    by_label,
    from_document,
    to_document,
)
from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.effects import create, run
from sparklog.log.layout import usage_key
from sparklog.spark.jobs.compact import CompactJob, compacted_by
from sparklog.spark.jobs.retain import RetainJob, retained_by, retained_works
from sparklog.spark.schedule.history import JobRun, write_history
from sparklog.testing.cluster import SparklogCluster
from tests.harness.console_browser import Browser, browser_of
from tests.harness.fault_proxy import Action, FaultProxy, counted_store
from tests.harness.store_servers import free_port
from tests.harness.waiting import eventually

Opens = Callable[..., Browser]


def test_bill_of_a_root_agrees_with_its_store(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    for name, segments in (("orders", 30), ("flights", 5)):
        log.create_topic(name, 1)
        for _ in range(segments):
            values = pa.array([b"x" * 1000] * 10, pa.binary())
            log.partition(name, 0).append([pa.record_batch({"value": values})])
    store: Any = log.store
    counted = by_label(store.counters.snapshot())
    found = browser.get("/bill?flush=30000")
    rows = {one["topic"]: one for one in found["topics"]}
    for name in ("orders", "flights"):
        requests = sum(rows[name]["requests"].values())
        assert requests == pytest.approx(counted[name].requests, rel=0.01)
        assert rows[name]["requests"]["put"] >= 5
    assert rows["orders"]["cost"] > rows["flights"]["cost"] > 0
    assert rows["orders"]["cost"] == pytest.approx(
        requests_cost(
            PriceList(), {k: RequestCount(n, 0) for k, n in rows["orders"]["requests"].items()}
        )
    )
    assert rows["orders"]["bytes"] > 30 * 10
    page = browser.page("/bill?flush=30000")
    assert "With 30,000 ms" in page
    assert "WAL, metadata, other topics" in page


def test_bill_of_brokers_agrees_with_their_counters() -> None:
    port = free_port()
    config = {"metrics.port": str(port)}
    address = f"127.0.0.1:{port}"
    with SparklogCluster(config=config) as cluster:
        cluster.topic("flights", config={"flush.ms": "100"})
        for number in range(20):
            cluster.produce("flights", [str(number).encode()])
        with Consumer(cluster.bootstrap_servers) as consumer:
            consumer.assign({TopicPartition("flights", 0): EARLIEST})
            read = 0
            while read < 20:
                read += len(consumer.poll(100, 1.0))
        bill = Bill(PriceList(), {}, pages=lambda: {"one": address})
        assert bill.activity is not None
        for number in range(3):
            bill.activity.sample()
            cluster.produce("flights", [b"more"] * (number + 1))
        bill.activity.sample()
        view = BrokerView(cluster.bootstrap_servers, {}, bill=bill)
        with browser_of(view) as client:
            browser = Browser(client)
            before = _requests(address)
            found = browser.get("/bill")
            after = _requests(address)
            billed = sum(found["requests"].values())
            assert before * 0.99 <= billed <= after * 1.01
            (row,) = [one for one in found["topics"] if one["topic"] == "flights"]
            assert row["requests"]["put"] > 0
            assert (found["reports"], found["programs"]) == (None, [])
            assert "A console with <code>--root</code> shows them" in browser.page("/bill")
            traffic = browser.get("/overview")["traffic"]
            assert len(traffic["records"]["rates"]) == 3
            assert min(traffic["records"]["rates"]) > 0
            assert traffic["cost"] > 0
            assert traffic["brokers"][0]["produceMilliseconds"] > 0
            assert "Records that producers append" in browser.page("/")
            assert "Memory, WAL and latency" in browser.page("/brokers")
            (topic,) = browser.get("/topics")["topics"]
            assert topic["rate"] > 0
            assert "Records a second" in browser.page("/topics")
        view.close()


def _requests(address: str) -> int:
    samples = samples_of(f"http://{address}", "sparklog_store_requests_total")
    return int(sum(one.value for one in samples))


def load(cluster: SparklogCluster, log: Log, proxy: FaultProxy) -> None:
    """Produce, fetch what is stored, and clean up, with answers of 503 in between."""
    cluster.topic("orders", 2, config={"flush.ms": "100", "cleanup.policy": "compact"})
    with Producer(cluster.bootstrap_servers, {"linger.ms": 0}) as producer:
        for number in range(60):
            if number in (20, 40):
                for method in ("GET", "PUT"):
                    proxy.add(Action.ANSWER, method, "orders", times=2)
            value = b"%d " % number * 2000
            producer.send("orders", value, key=b"k%d" % (number % 4), partition=number % 2).result()
    eventually(
        lambda: all(log.partition("orders", n).view().end_offset == 30 for n in (0, 1)),
        "all records are flushed",
    )
    assert len(cluster.consume("orders", 60)) == 60
    create_snapshot(log, "kept", ["orders"], patience_s=30)
    drop_snapshot(log.store, "kept")
    job, snapshots = RetainJob(log.store.url, ("orders",)), run(snapshot_records(), log.store)
    records = run(publication_records(SYSTEM_CLOCK.now_ms()), log.store)
    for work in retained_works(log.refresh(), job, records, snapshots):
        compacted_by(CompactJob(log.store.url, force=True))(log, work)
        retained_by(job)(log, work)


def test_bill_agrees_with_the_requests_that_an_s3_server_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, address, clock = "s3://billed/log", f"127.0.0.1:{free_port()}", ManualClock()
    with ExitStack() as stack:
        proxy = stack.enter_context(counted_store(tmp_path / "s3", monkeypatch.setenv))
        config = {"metrics.port": address.rpartition(":")[2]}
        cluster = stack.enter_context(SparklogCluster(config=config, root=root))
        view = RootView(root)
        stack.callback(view.close)
        store: Any = view.storage().store
        load(cluster, view.storage(), proxy)
        counters = {"this console": store.counters.snapshot, address: page_counts(address)}
        view.bill = bill = Bill(PriceList(), counters, clock)

        def billed() -> dict[str, tuple[int, int]]:
            """Return requests and bytes of each kind; the page then shows the same counts."""
            clock.sleep_s(LOOK_EVERY_S)
            found = by_kind(bill.reading().totals)
            return {kind: (one.requests, one.bytes) for kind, one in sorted(found.items())}

        def at_rest() -> dict[str, tuple[int, int]] | None:
            """Return the bill at a moment without requests, once it agrees with the proxy."""
            served, found = proxy.billed(), billed()
            if proxy.running or served != proxy.billed():
                return None
            print(f"bill: served={served} billed={found}")
            agreed = all(found[kind] == pytest.approx(served[kind], rel=0.01) for kind in served)
            return found if agreed and found.keys() == served.keys() else None

        found = eventually(at_rest, "the bill is that of the server", 60)
        with browser_of(view) as client:
            page = Browser(client).get("/bill")
        assert page["requests"] == {kind: requests for kind, (requests, _) in found.items()}
        assert sum(row["written"] for row in page["topics"]) == found["put"][1]
        assert sum(row["read"] for row in page["topics"]) == found["get"][1]
        assert min(found["put"][0], found["get"][0], found["list"][0]) > 50
        assert found["delete"][0] > 0
        (row,) = [one for one in page["topics"] if one["topic"] == "orders"]
        assert row["requests"]["put"] >= 6


def test_bill_goes_on_over_a_restart_and_shows_a_failed_page() -> None:
    clock = ManualClock()
    counts: Snapshot = {("put", "a"): RequestCount(100, 1000)}

    def reads() -> Snapshot:
        return counts

    def fails() -> Snapshot:
        raise Unavailable("the page does not answer")

    bill = Bill(PriceList(), {"one": reads, "two": fails}, clock)
    first = bill.reading()
    assert first.totals == counts
    assert first.recent[("put", "a")] == NOTHING
    assert first.sources == [("one", ""), ("two", "the page does not answer")]
    clock.sleep_s(10)
    counts = {("put", "a"): RequestCount(7, 70), ("get", "b"): RequestCount(1, 9)}
    again = bill.reading()
    assert again.totals == {("put", "a"): RequestCount(107, 1070), ("get", "b"): RequestCount(1, 9)}
    assert again.recent[("put", "a")] == RequestCount(7, 70)
    assert again.seconds == 10
    counts = {("put", "a"): RequestCount(8, 80)}
    assert bill.reading().totals == again.totals, "read again after a while only"


def test_bill_takes_in_brokers_that_start_later() -> None:
    clock = ManualClock()
    puts = {("put", "a"): RequestCount(5, 50)}
    brokers: dict[str, str] = {}
    bill = Bill(PriceList(), {"one": lambda: puts}, clock, pages=lambda: brokers)
    assert bill.reading().sources == [("one", "")]
    brokers["broker 1"] = f"127.0.0.1:{free_port()}"
    clock.sleep_s(10)
    (_, (name, problem)) = bill.reading().sources
    assert name == "broker 1"
    assert "does not answer" in problem
    brokers.clear()
    clock.sleep_s(10)
    again = bill.reading()
    assert again.sources == [("one", "")]
    assert again.totals == puts


def test_bill_has_the_requests_of_jobs_in_the_history(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    log.create_topic("orders", 1)
    now_ms = SYSTEM_CLOCK.now_ms()
    old = JobRun("a", "tidy", "retain", "schedule", 1, 1, 1, outcome="done")
    counted: dict[str, Any] = {
        "orders": {"put": [1000, 5000], "get": [200, 7]},
        "gone": {"delete": [3, 0], "currency": [1, 1], "list": [-1, 0], "head": 5},
    }
    new = replace(old, run_id="b", started_ms=now_ms, requests=counted)
    runs = (replace(old, started_ms=now_ms - 2 * MONTH_MS, requests=counted), new)
    for one in (*runs, replace(old, run_id="c")):
        write_history(log, one, patience_s=1.0)
    reading = jobs_reading(runs, now_ms)
    assert reading.month == {
        ("put", "orders"): RequestCount(1000, 5000),
        ("get", "orders"): RequestCount(200, 7),
        ("delete", "gone"): RequestCount(3, 0),
    }
    assert reading.totals == {k: count + count for k, count in reading.month.items()}
    found = browser.get("/bill")
    assert (found["jobs"]["runs"], found["jobs"]["since"]) == (2, now_ms - 2 * MONTH_MS)
    (row,) = [one for one in found["topics"] if one["topic"] == "orders"]
    assert row["requests"]["put"] == 2000
    assert row["jobPercent"] == 100
    (shared,) = [one for one in found["topics"] if one["topic"] == ""]
    assert shared["requests"]["delete"] == 6
    assert "2 runs of the history" in browser.page("/bill")
    assert browser.get("/jobs/runs/b")["requests"] == 1203
    assert "1,203" in browser.page("/jobs/runs/b")


def test_bill_has_the_requests_that_programs_reported(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    log.create_topic("orders", 1)
    page = browser.page("/bill")
    assert "or Spark application has reported its requests yet" in page
    assert browser.get("/bill")["programs"] == []
    nasty, now_ms = "<script>alert(1)</script>", SYSTEM_CLOCK.now_ms()
    dear = {("put", "orders"): RequestCount(9000, 90), ("list", "gone"): RequestCount(50, 0)}
    cheap = {("get", "orders"): RequestCount(1000, 4096), ("head", ""): RequestCount(1, 0)}
    old, today = usage_day(now_ms, 40), usage_day(now_ms)
    for number, (day, data) in enumerate(
        (
            (old, encode_usage(UsageReport({"sparklog get": cheap}))),
            (today, encode_usage(UsageReport({"sparklog get": cheap, nasty: dear}))),
            (today, b"damaged"),
            (usage_day(now_ms, -9), b""),
        )
    ):
        log.run_program(create(usage_key(day, f"{number:032x}", 0), data))
    other = root_browser(str(log.store.url))
    found = other.get("/bill")
    reports = found["reports"]
    bad = reports.pop("damagedObjects")
    assert bad == [usage_key(today, f"{2:032x}", 0)]
    assert reports == {
        "count": 2, "since": old, "unread": 0, "ahead": 1, "damaged": 1, "problem": None
    }  # fmt: skip
    assert [one["program"] for one in found["programs"]] == [nasty, "sparklog get"]
    (_, got) = found["programs"]
    assert got["requests"] == {"put": 0, "list": 0, "get": 2000, "head": 2, "delete": 0}
    assert got["read"] == 2 * 4096
    assert got["cost"] == pytest.approx(2002 * 0.0004 / 1000)
    (row,) = [one for one in found["topics"] if one["topic"] == "orders"]
    assert (row["requests"]["put"], row["requests"]["get"]) == (9000, 2000)
    assert (row["programPercent"], row["jobPercent"]) == (100, 0)
    (shared,) = [one for one in found["topics"] if one["topic"] == ""]
    assert shared["requests"]["list"] >= 50
    page = other.page("/bill")
    assert "2 reports of commands" in page
    assert f"since {old} UTC" in page
    assert f"1 damaged object does not count:</span> <code>{bad[0]}</code>" in page
    assert "1 object has no day up to tomorrow" in page
    assert nasty not in page
    assert "&lt;script&gt;alert(1)" in page


def test_month_goes_on_with_the_reports_of_the_last_days(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    log.create_topic("orders", 1)
    puts = {("put", "orders"): RequestCount(1000, 0)}
    for number, days_ago in enumerate((40, 3)):
        day = usage_day(SYSTEM_CLOCK.now_ms(), days_ago)
        data = encode_usage(UsageReport({"nightly": puts}))
        log.run_program(create(usage_key(day, f"{number:032x}", 0), data))
    view = RootView(str(log.store.url))
    clock = ManualClock()
    view.bill = Bill(PriceList(), {}, clock)
    with browser_of(view) as client:
        other = Browser(client)
        (first,) = other.get("/bill")["topics"]
        assert first["monthly"] is None
        clock.sleep_s(LOOK_EVERY_S)
        (row,) = other.get("/bill")["topics"]
    view.close()
    assert row["cost"] == pytest.approx(2 * 1000 * 0.005 / 1000)
    assert row["monthly"] == pytest.approx(row["cost"] / 2)


def test_document_of_counts_has_the_busiest_topics_and_loses_none() -> None:
    counts = {
        ("put", "a"): RequestCount(5, 50),
        ("get", "a"): RequestCount(1, 10),
        ("put", "b"): RequestCount(2, 20),
        ("put", ""): RequestCount(1, 1),
        ("list", "c"): RequestCount(3, 0),
    }
    assert from_document(to_document(counts, 10)) == counts
    short = json.loads(json.dumps(to_document(counts, 2)))
    assert from_document(short) == {
        ("put", "a"): RequestCount(5, 50),
        ("get", "a"): RequestCount(1, 10),
        ("list", "c"): RequestCount(3, 0),
        ("put", ""): RequestCount(3, 21),
    }


def test_prices_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\nput = 1\nget = 0.5\nread = 10\n')
    prices = read_prices(path)
    counts = {"put": RequestCount(2000, 0), "get": RequestCount(1000, 1 << 30)}
    assert (prices.currency, requests_cost(prices, counts)) == ("EUR", 2 + 0.5 + 10)
    for wrong in ("puts = 1", "put = -1", "put = 'x'", "put = true", "currency = 1", "put ="):
        path.write_text(wrong)
        with pytest.raises(InvalidConfig):
            read_prices(path)


def test_puts_fall_with_flush_ms_down_to_flush_bytes() -> None:
    assert puts_at(600, 5_000, 30_000, 0, 1 << 26) == 100
    assert puts_at(600, 5_000, 2_500, 0, 1 << 26) == 1200
    assert puts_at(600, 5_000, 30_000, 300 * (1 << 26), 1 << 26) == 300
    assert puts_at(600, 5_000, 30_000, 900 * (1 << 26), 1 << 26) == 600
