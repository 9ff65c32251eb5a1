"""Loads of a large log, on an idle machine: pages, the live tail, and searches of a slow store.

`make soak` runs them. They print their figures.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cli.target import opened_store
from sparklog.cluster.log import open_log
from sparklog.cluster.metadata import changes as registry
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.console import root_view
from sparklog.console.broker_view import BrokerView
from sparklog.console.live_tail import QUEUE_ROWS, TailQueue
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


def test_live_tail_holds_its_memory_for_ten_minutes() -> None:
    with SparklogCluster() as cluster:
        cluster.topic("flights", partitions=4)
        stop = threading.Event()

        def produce() -> None:
            while not stop.wait(1.0):
                cluster.produce("flights", [b"x" * 500] * RATE)

        producing = threading.Thread(target=produce)
        view = BrokerView(cluster.bootstrap_servers, {})
        queue = TailQueue("auto")
        tailing = threading.Thread(target=view.follow, args=("flights", range(4), queue.take))
        producing.start()
        tailing.start()
        seen, sizes = 0, []
        for second in range(MINUTES * 60):
            time.sleep(1.0)  # the tail's own time is what is measured
            rows, skipped = queue.drain()
            assert len(rows) <= QUEUE_ROWS
            seen += len(rows) + skipped
            if second % 60 == 59:
                sizes.append(resident_bytes())
        queue.stopped = True
        stop.set()
        producing.join()
        tailing.join(30)
        view.close()
        mebibytes = [size >> 20 for size in sizes]
        print(f"live tail: records={seen} MiB of the process by minute={mebibytes}")
        assert seen > 0.7 * RATE * MINUTES * 60
        assert sizes[-1] < 1.2 * sizes[2]


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
