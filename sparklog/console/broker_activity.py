"""BrokerActivity: throughput and latency of brokers in the last hour, in the console's memory.

A thread reads the brokers' pages for Prometheus every `EVERY_S`, and keeps `SAMPLES_MAX` looks. So
a page of the console shows them without a request. Counters of a broker that started again count
from zero: its next interval is left out.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import Any, Final

from sparklog.cli.metrics_pages import page_url, read_page
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import Closeable

EVERY_S: Final = 15.0
SAMPLES_MAX: Final = 241
"""So the first and the last look are an hour apart."""
AT_ONCE: Final = 8

_TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
_TIMES: Final = "kafka_network_requestmetrics_totaltimems"
_CONNECTIONS: Final = "kafka_server_socketservermetrics_connection_count"
_GAUGES: Final = (
    "sparklog_tail_bytes",
    "sparklog_tail_bytes_limit",
    "sparklog_wal_objects",
    "sparklog_wal_waiting_seconds",
    _CONNECTIONS,
)
_COUNTERS: Final = (
    f"{_TRAFFIC}messagesin_total",
    f"{_TRAFFIC}bytesin_total",
    f"{_TRAFFIC}bytesout_total",
)
_STORE: Final = "sparklog_store_requests_total"
_LINE: Final = re.compile(
    rf"^({'|'.join((*_COUNTERS, *_GAUGES, _TIMES, _STORE))})(?:\{{([^}}\n]*)\}})? (\S+)$".encode(),
    re.MULTILINE,
)
_TOPIC: Final = re.compile(r'topic="([^"]+)"')
_KIND: Final = re.compile(r'kind="(\w+)"')


@dataclass(slots=True)
class BrokerSample:
    """One page: totals since the broker's start, and the values of that moment."""

    totals: dict[str, float] = field(default_factory=dict)
    """By name: `records`, `in` and `out` in bytes; requests to the store by `store` and kind."""
    gauges: dict[str, float] = field(default_factory=dict)
    """By name on the page; `produce` and `fetch` are 99 % of recent requests in ms."""
    topics: dict[str, float] = field(default_factory=dict)
    """Records that producers appended to each topic."""


_TOTALS: Final = dict(zip(_COUNTERS, ("records", "in", "out"), strict=True))
_QUANTILES: Final = {
    'request="Produce",quantile="0.99"': "produce",
    'quantile="0.99",request="Produce"': "produce",
    'request="Fetch",quantile="0.99"': "fetch",
    'quantile="0.99",request="Fetch"': "fetch",
}


def parse_page(body: bytes) -> BrokerSample:
    """Return the sample of a page; other lines and values that are no numbers are left out."""
    found = BrokerSample()
    for line in _LINE.finditer(body):
        name, labels, text = (part.decode("utf-8", "replace") for part in line.groups(b""))
        try:
            value = float(text)
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        kind = _KIND.search(labels)
        if name == _STORE and kind is not None:
            key = f"store {kind.group(1)}"
            found.totals[key] = found.totals.get(key, 0.0) + value
        elif name == _TIMES and labels in _QUANTILES:
            found.gauges[_QUANTILES[labels]] = value
        elif name == _COUNTERS[0] and (topic := _TOPIC.fullmatch(labels)) is not None:
            found.topics[topic.group(1)] = value
        elif name in _TOTALS and not labels:
            found.totals[_TOTALS[name]] = value
        elif name in _GAUGES and not labels:
            found.gauges[name] = value
    return found


Look = tuple[float, Mapping[str, BrokerSample]]
"""A time in s since 1970, and the samples by the brokers' names."""


class BrokerActivity(Closeable):
    """The samples of the last hour. Thread-safe."""

    def __init__(self, pages: Callable[[], Mapping[str, str]], clock: Clock = SYSTEM_CLOCK) -> None:
        """Read the pages that `pages` returns, by names for people; nothing before `start`."""
        self._pages = pages
        self._clock = clock
        self._looks: deque[Look] = deque(maxlen=SAMPLES_MAX)
        self._rates: Mapping[str, float] | None = None
        self._lock = Lock()
        self._closed = Event()
        self._thread = Thread(target=self._run, name="sparklog-activity", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def sample(self) -> None:
        """Read all pages now; one that does not answer has no sample."""
        pages = self._pages()
        with ThreadPoolExecutor(AT_ONCE, "sparklog-activity") as pool:
            read = dict(zip(pages, pool.map(_sample, pages.values()), strict=True))
        found = {name: sample for name, sample in read.items() if sample is not None}
        look = (self._clock.now_ms() / 1000, found)
        with self._lock:
            if self._looks:
                self._rates = topic_rates(self._looks[-1], look)
                for one in self._looks[-1][1].values():
                    one.topics = {}  # of thousands of topics only the newest look is kept
            self._looks.append(look)

    def topic_rates(self) -> Mapping[str, float] | None:
        """Return the records a second that producers append, by topic; None before two looks."""
        with self._lock:
            return self._rates

    def looks(self) -> Sequence[Look]:
        """Return all looks, the oldest first."""
        with self._lock:
            return list(self._looks)

    def _run(self) -> None:
        while not self._closed.is_set():
            self.sample()
            self._closed.wait(EVERY_S)


def _sample(address: str) -> BrokerSample | None:
    try:
        return parse_page(read_page(page_url(address), "/metrics"))
    except SparklogError:
        return None


def topic_rates(before: Look, after: Look) -> dict[str, float]:
    """Return the records a second between two looks, by topic, of brokers that are in both."""
    seconds = max(after[0] - before[0], 1.0)
    rates: dict[str, float] = {}
    for broker in before[1].keys() & after[1].keys():
        known = before[1][broker].topics
        for topic, count in after[1][broker].topics.items():
            grown = max(0.0, count - known.get(topic, 0.0))
            rates[topic] = rates.get(topic, 0.0) + grown / seconds
    return rates


def growth(looks: Sequence[Look], name: str) -> Iterator[tuple[float, float, float]]:
    """Yield the end of each interval in s since 1970, its seconds, and how a total has grown."""
    for (before_s, before), (at_s, after) in pairwise(looks):
        grown = [
            sample.totals.get(name, 0.0) - before[broker].totals.get(name, 0.0)
            for broker, sample in after.items()
            if broker in before
        ]
        if at_s > before_s and grown:
            yield at_s, at_s - before_s, sum(one for one in grown if one > 0)


def rate_chart(looks: Sequence[Look], name: str) -> dict[str, list[float]] | None:
    """Return times in s since 1970 and a total's growth a second; None below two intervals."""
    found = list(growth(looks, name))
    if len(found) < 2:
        return None
    return {
        "times": [at_s for at_s, _, _ in found],
        "rates": [grown / seconds for _, seconds, grown in found],
    }


def gauge_chart(looks: Sequence[Look], name: str) -> dict[str, list[Any]] | None:
    """Return times in s since 1970 and the largest value of any broker; None below two looks."""
    found = [
        (at_s, [one.gauges[name] for one in samples.values() if name in one.gauges])
        for at_s, samples in looks
    ]
    while found and not found[0][1]:  # before the first request
        del found[0]
    if sum(bool(values) for _, values in found) < 2:
        return None
    return {
        "times": [at_s for at_s, _ in found],
        "rates": [max(values, default=None) for _, values in found],
    }


def newest(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Return the newest values of each broker as JSON values."""
    samples = looks[-1][1] if looks else {}
    return [
        {
            "broker": name,
            "memory": one.gauges.get("sparklog_tail_bytes"),
            "memoryLimit": one.gauges.get("sparklog_tail_bytes_limit"),
            "walObjects": _whole(one.gauges.get("sparklog_wal_objects")),
            "walWaitingSeconds": one.gauges.get("sparklog_wal_waiting_seconds"),
            "connections": _whole(one.gauges.get(_CONNECTIONS)),
            "produceMilliseconds": one.gauges.get("produce"),
            "fetchMilliseconds": one.gauges.get("fetch"),
        }
        for name, one in sorted(samples.items())
    ]


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
