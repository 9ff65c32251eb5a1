"""Loads of a large log, on an idle machine: pages, the live tail, and searches of a slow store.

`make soak` runs them. They print their figures.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser as Chromium

from sparklog.cli.target import opened_store
from sparklog.client.producer import Producer
from sparklog.cluster.log import open_log
from sparklog.cluster.metadata import changes as registry
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.console import root_view
from sparklog.coordinator.group_records import (
    OffsetKey,
    OffsetValue,
    write_offset_key,
    write_offset_value,
)
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_topic_id
from sparklog.store.delegating_store import DelegatingStore
from sparklog.testing.cluster import SparklogCluster
from tests.bench.common.process_memory import children
from tests.harness.chromium import opened
from tests.harness.console_browser import Browser

pytestmark = pytest.mark.soak

Opens = Callable[..., Browser]

PAGE_S = 1.0
MINUTES = 10
RATE = 1000


def test_first_pages_of_a_large_log_take_under_a_second(
    root_browser: Opens, tmp_path: Path
) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None

    def five_thousand(image: MetadataImage) -> list[Record]:
        return [
            record
            for number in range(5000)
            for record in registry.create_topic(
                image, f"topic-{number:04}", new_topic_id(SYSTEM_ENTROPY), 1, {}
            )
        ]

    log._decide(five_thousand)
    log.create_topic("__consumer_offsets", 1, by_cluster=True)
    where = [OffsetKey(f"group-{number:05}", "topic-0000", 0) for number in range(10_000)]
    value = write_offset_value(OffsetValue(7, -1, "", 1_790_000_000_000))
    rows = {"key": [write_offset_key(one) for one in where], "value": [value] * len(where)}
    log.partition("__consumer_offsets", 0).append([pa.record_batch(rows)])
    fresh = root_browser(str(tmp_path / "log"))
    for path in ("/topics", "/groups", "/"):
        answer = fresh.client.get(path)
        seconds = answer.elapsed.total_seconds()
        print(f"first page: path={path} seconds={seconds:.2f}")
        assert answer.status_code == 200
        assert seconds < PAGE_S, path


class SlowStore(DelegatingStore):
    """A store whose reads take 50 ms."""

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        SYSTEM_CLOCK.sleep_s(0.05)  # as an object store does
        return self._store.get(key, start, end)


def test_key_in_a_million_records_is_found_within_a_second(
    root_browser: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "flights")
    with open_log(root) as log:
        log.create_topic("flights", 1, {"sparklog.key.index": "bloom"})
        for segment in range(100):
            keys = [
                f"N{number}".encode() for number in range(segment * 10_000, (segment + 1) * 10_000)
            ]
            batch = pa.record_batch({"key": keys, "value": [b"x" * 100] * len(keys)})
            log.partition("flights", 0).append([batch])
    monkeypatch.setattr(root_view, "opened_store", lambda name: SlowStore(opened_store(name)))
    browser = root_browser(root)
    browser.page("/topics")
    answer = browser.client.get("/api/v1/topics/flights/search?key=N142280")
    seconds = answer.elapsed.total_seconds()
    cost = answer.json()["cost"]
    print(f"key search: seconds={seconds:.2f} cost={cost}")
    assert [row["offset"] for row in answer.json()["records"]] == [142_280]
    assert seconds < PAGE_S


@contextmanager
def console_process(scratch: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Run `sparklog console` by itself; the URL and the id of the process.

    It ends with this process, however that ends; then `scratch`, a new folder, is removed.
    """
    scratch.mkdir()
    program = Path(sys.prefix) / "bin" / "sparklog"
    guard = [sys.executable, "-m", "tests.peers.guard", str(scratch)]
    command = [*guard, str(program), "console", "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"].rstrip("/")
            (pid,) = children()[process.pid]
            yield url, pid
        finally:
            process.communicate(b"T", timeout=30)


def produce_at_rate(cluster: SparklogCluster, stop: threading.Event) -> None:
    """Send `RATE` records a second, ten times a second."""
    with Producer(cluster.bootstrap_servers) as producer:
        while not stop.wait(0.1):
            for _ in range(RATE // 10):
                producer.send("flights", b"x" * 500)
            producer.poll()


def test_live_tail_holds_its_memory_for_ten_minutes(chromium: Chromium, tmp_path: Path) -> None:
    stop = threading.Event()
    with ExitStack() as stack:
        cluster = stack.enter_context(SparklogCluster(root=str(tmp_path / "log")))
        cluster.topic("flights", partitions=4)
        url, pid = stack.enter_context(
            console_process(tmp_path / "console", "--bootstrap-server", cluster.bootstrap_servers)
        )
        producing = threading.Thread(target=produce_at_rate, args=(cluster, stop))
        producing.start()
        stack.callback(producing.join)
        stack.callback(stop.set)
        page = stack.enter_context(closing(chromium.new_context())).new_page()
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        opened(page, f"{url}/topics/flights/records")
        page.get_by_role("button", name="Follow live").click()
        sizes: list[int] = []
        heaps: list[int] = []
        slowest, words = 0.0, ""
        started = time.monotonic()
        while len(sizes) < MINUTES:
            time.sleep(1.0)  # the tail's own time is what is measured
            began = time.monotonic()
            words = page.text_content("#tail-state") or ""
            slowest = max(slowest, time.monotonic() - began)
            if began - started >= 60 * (len(sizes) + 1):
                sizes.append(resident_bytes(pid) >> 20)
                devtools.send("HeapProfiler.collectGarbage")
                metrics = devtools.send("Performance.getMetrics")["metrics"]
                heaps += [round(m["value"]) >> 10 for m in metrics if m["name"] == "JSHeapUsedSize"]
        rows = page.locator("#records tbody tr").count()
        print(
            f"live tail: {words} rows={rows} slowest_answer_s={slowest:.2f} "
            f"console_MiB_by_minute={sizes} page_KiB_by_minute={heaps}"
        )
        seen = sum(int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*", words))
        assert words.startswith("Live:")
        assert seen > 0.8 * RATE * MINUTES * 60
        assert rows <= 300
        assert slowest < PAGE_S
        assert sizes[-1] < 1.1 * sizes[2]
        assert heaps[-1] < 1.5 * heaps[2]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
