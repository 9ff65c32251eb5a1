"""Bill: the requests to the object store by topic, and what they cost.

The counts are those of the stores themselves. They come from the brokers' pages for Prometheus,
from this process on a root, and from the history of jobs' runs. A broker that starts again counts
from zero; the bill goes on. Money is a price times a count. A month goes on from the time since the
console first looked; of jobs it has the runs of the last month.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from sparklog.cli.metrics_pages import page_url, samples_of
from sparklog.console.broker_activity import BrokerActivity
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.providers import read_bounded
from sparklog.core.counters import NOTHING, RequestCount, Snapshot, add_to, from_document
from sparklog.core.errors import InvalidConfig, SparklogError
from sparklog.spark.schedule.history import JobRun

HOURS_PER_MONTH: Final = 730
MONTH_MS: Final = HOURS_PER_MONTH * 3_600_000
GIB: Final = 1 << 30
LOOK_EVERY_S: Final = 5.0
"""A page that is loaded again sooner shows the same counts."""
AT_ONCE: Final = 8
"""Pages that are read at a time."""
REQUESTS: Final = "sparklog_store_requests_total"
BYTES: Final = "sparklog_store_bytes_total"
KINDS: Final = ("put", "list", "get", "head", "delete")


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices in one currency; the defaults are those of S3 Standard in us-east-1."""

    currency: str = "USD"
    put: float = 0.005
    """Per 1,000 requests, and so are the next ones."""
    list: float = 0.005
    get: float = 0.0004
    head: float = 0.0004
    delete: float = 0.0
    storage: float = 0.023
    """Per GiB and month."""
    read: float = 0.0
    """Per GiB that is read, such as to another region."""

    def of_request(self, kind: str) -> float:
        """Return the price of one request of a kind."""
        price: float = getattr(self, kind, 0.0)
        return price / 1000


def read_prices(path: Path) -> PriceList:
    """Return the prices of a TOML file.

    Raises:
        InvalidConfig: it cannot be read, or names other prices than `PriceList` has.
    """
    try:
        found = tomllib.loads(read_bounded(path, "--prices"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"the prices are no TOML. file={path} problem={error}") from error
    known = {one.name for one in fields(PriceList)}
    unknown = sorted(found.keys() - known)
    if unknown:
        raise InvalidConfig(f"no such price: {unknown[0]!r}; there are {', '.join(sorted(known))}")
    currency = found.pop("currency", "USD")
    wrong = [n for n, price in found.items() if not _is_price(price)]
    if wrong or not isinstance(currency, str):
        raise InvalidConfig(f"prices are numbers from 0 on. price={[*wrong, 'currency'][0]}")
    return PriceList(currency=currency, **{name: float(price) for name, price in found.items()})


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


@dataclass(slots=True)
class _CounterSource:
    """One store's counters, and what they said last."""

    name: str
    read: Callable[[], Snapshot]
    last: Snapshot = field(default_factory=dict)
    problem: str = ""

    def advance(self) -> Snapshot:
        """Return the counts since the last call; all of them after a start from zero."""
        try:
            now = self.read()
        except SparklogError as error:
            self.problem = str(error)
            return {}
        self.problem = ""
        found = {}
        for key, count in now.items():
            before = self.last.get(key, NOTHING)
            found[key] = count if count.requests < before.requests else count - before
        self.last = now
        return found


@dataclass(frozen=True, slots=True)
class BillReading:
    """The counts up to now."""

    totals: Snapshot
    """Since the stores began to count."""
    recent: Snapshot
    """Since the console first looked."""
    seconds: float
    """The time of the recent ones."""
    sources: Sequence[tuple[str, str]]
    """Each source, and its problem or an empty text."""


@dataclass(frozen=True, slots=True)
class JobsReading:
    """The requests of jobs, by the history of their runs."""

    totals: Snapshot
    month: Snapshot
    """Of the runs that began in the last `MONTH_MS`."""
    runs: int
    """Runs that left their counts."""
    since_ms: int | None
    """When the first of them began."""


def jobs_reading(runs: Iterable[JobRun], now_ms: int) -> JobsReading:
    """Return the requests of runs; one that still goes on has left none."""
    totals: dict[tuple[str, str], RequestCount] = {}
    month: dict[tuple[str, str], RequestCount] = {}
    starts = []
    for one in runs:
        found = from_document(one.requests)
        if counts := {key: count for key, count in found.items() if key[0] in KINDS}:
            starts.append(one.started_ms)
            add_to(totals, counts)
            if one.started_ms > now_ms - MONTH_MS:
                add_to(month, counts)
    return JobsReading(totals, month, len(starts), min(starts, default=None))


CounterSources = Mapping[str, Callable[[], Snapshot]]
"""Readers of counters, by their names for people."""


class Bill:
    """Counts requests of several stores. Thread-safe."""

    def __init__(
        self,
        prices: PriceList,
        sources: CounterSources,
        clock: Clock = SYSTEM_CLOCK,
        *,
        pages: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """Read these counters; nothing is read yet.

        Args:
            prices: of requests and storage.
            sources: that are always there.
            clock: for times between two looks.
            pages: returns brokers' pages for Prometheus, by names for people. Brokers come and go.
        """
        self.prices = prices
        self.activity = None if pages is None else BrokerActivity(pages, clock)
        """Rates and latencies of the same pages; None without pages."""
        self._sources = {name: _CounterSource(name, read) for name, read in sources.items()}
        self._fixed = frozenset(sources)
        self._pages = pages
        self._clock = clock
        self._totals: dict[tuple[str, str], RequestCount] = {}
        self._first: Snapshot | None = None
        self._began_s = self._looked_s = 0.0
        self._lock = Lock()

    def reading(self) -> BillReading:
        """Return the counts. Cost: a page of each broker, at most every `LOOK_EVERY_S`."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._first is None or now_s - self._looked_s >= LOOK_EVERY_S:
                self._look_for_sources()
                with ThreadPoolExecutor(AT_ONCE, "sparklog-bill") as pool:
                    for counts in pool.map(_CounterSource.advance, self._sources.values()):
                        add_to(self._totals, counts)
                self._looked_s = now_s
            if self._first is None:
                self._first, self._began_s = dict(self._totals), now_s
            totals = dict(self._totals)
            recent = {k: count - self._first.get(k, NOTHING) for k, count in totals.items()}
            problems = [(one.name, one.problem) for one in self._sources.values()]
            return BillReading(totals, recent, self._looked_s - self._began_s, problems)

    def _look_for_sources(self) -> None:
        """Add new sources, and forget those that are gone; their counts stay."""
        pages = {} if self._pages is None else self._pages()
        found = {name: page_counts(page) for name, page in pages.items()}
        for name in self._sources.keys() - found.keys() - self._fixed:
            del self._sources[name]
        for name, read in found.items():
            self._sources.setdefault(name, _CounterSource(name, read))


def page_counts(address: str) -> Callable[[], Snapshot]:
    """Return the reader of a broker's page. Raises InvalidRequest: no address."""
    return partial(_page_counts, page_url(address))


def _page_counts(url: str) -> Snapshot:
    requests = {_key(one.labels): int(one.value) for one in samples_of(url, REQUESTS)}
    moved = {_key(one.labels): int(one.value) for one in samples_of(url, BYTES)}
    return {key: RequestCount(count, moved.get(key, 0)) for key, count in requests.items()}


def _key(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("kind", ""), labels.get("topic", "")


def requests_cost(prices: PriceList, counts: Mapping[str, RequestCount]) -> float:
    """Return the price of requests, by kind, and of the bytes that they read."""
    moved = sum(count.bytes for kind, count in counts.items() if kind == "get")
    return (
        sum(prices.of_request(kind) * count.requests for kind, count in counts.items())
        + moved / GIB * prices.read
    )


def puts_at(puts: float, flush_ms: int, other_ms: int, bytes_in: float, flush_bytes: int) -> float:
    """Return the puts with another `flush.ms`; never fewer than `flush.bytes` asks for.

    Args:
        puts: with the present setting.
        flush_ms: the present setting.
        other_ms: the other one.
        bytes_in: that these puts wrote.
        flush_bytes: the most bytes of one segment.
    """
    least = bytes_in / max(1, flush_bytes)
    return max(least, puts * flush_ms / max(1, other_ms)) if puts > least else puts
