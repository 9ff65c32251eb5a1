"""The page of the bill: requests and their price by topic, also with another `flush.ms`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from sparklog.client.values import ConfigResource
from sparklog.cluster.metadata.image import Topic
from sparklog.console.bill import (
    GIB,
    HOURS_PER_MONTH,
    KINDS,
    JobsReading,
    PriceList,
    jobs_reading,
    puts_at,
    requests_cost,
)
from sparklog.console.cluster_view import ClusterView
from sparklog.console.program_usage import UsageReading
from sparklog.console.resources import PAGE, BoundedValues, FieldSpec, PageResource, RowPage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.counters import NOTHING, RequestCount, Snapshot
from sparklog.core.errors import InvalidRequest, SparklogError

BILL_ROWS: Final = 50
SHARED: Final = ""
"""The WAL, the metadata, and topics that the principal does not see."""
FLUSH_MAX: Final = 86_400_000


def show_bill(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the requests and the cost of each topic and program, the dearest first.

    Cost: a page of each broker, the history of jobs, new usage reports, and the sizes and settings
    of one page of topics.

    Raises:
        InvalidRequest: the console has no counters.
    """
    bill = view.bill
    if bill is None:
        raise InvalidRequest(
            "the console knows no counters; give it the brokers' pages for Prometheus with "
            "--metrics-page HOST:PORT"
        )
    reading, prices = bill.reading(), bill.prices
    topics = view.topics()
    jobs, jobs_problem = _jobs(view)
    usage = UsageReading() if view.usage is None else view.usage.reading()
    totals = _by_topic(topics, reading.totals, jobs.totals, usage.totals)
    recent = _by_topic(topics, reading.recent)
    month = _by_topic(topics, jobs.month, usage.month)
    of_jobs, of_programs = _by_topic(topics, jobs.totals), _by_topic(topics, usage.totals)
    names = sorted(totals, key=lambda name: (-requests_cost(prices, totals[name]), name))
    page = RowPage.of(len(names), values.whole("page"), BILL_ROWS)
    shown = names[page.first : page.first + BILL_ROWS]
    sizes = _sizes(view, [topics[name] for name in shown if name in topics])
    flush = _flush_settings(view, [name for name in shown if name in topics])
    other_ms = values.optional_whole("flush")
    rows = [
        _row(
            name, TopicCounts(
                totals[name], recent.get(name, {}), of_jobs.get(name, {}),
                of_programs.get(name, {}), month.get(name, {}),
            ),
            reading.seconds, prices, sizes.get(name), flush.get(name), other_ms,
        )
        for name in shown
    ]  # fmt: skip
    every = {kind: _sum(one.get(kind, NOTHING) for one in totals.values()) for kind in KINDS}
    return {
        **page.document(),
        "currency": prices.currency,
        "seconds": round(reading.seconds),
        "flush": other_ms,
        "sources": [
            {"name": name, "problem": problem or None} for name, problem in reading.sources
        ],
        "jobs": {"runs": jobs.runs, "since": jobs.since_ms, "problem": jobs_problem},
        "reports": None if view.usage is None else _reports(usage),
        "cost": requests_cost(prices, every),
        "requests": {kind: count.requests for kind, count in every.items()},
        "topics": rows,
        "programs": _programs(usage, prices),
    }


def _reports(usage: UsageReading) -> dict[str, Any]:
    """Return which usage reports the bill counts, and which it does not."""
    return {
        "count": usage.reports,
        "since": usage.since,
        "unread": usage.unread,
        "ahead": usage.ahead,
        "damaged": usage.damaged,
        "damagedObjects": list(usage.damaged_names),
        "problem": usage.problem or None,
    }


def _programs(usage: UsageReading, prices: PriceList) -> list[dict[str, Any]]:
    """Return the requests of each program; a reading has a bounded number of them."""
    costs = {name: requests_cost(prices, counts) for name, counts in usage.programs.items()}
    return [
        {"program": name, **_moved(usage.programs[name]), "cost": costs[name]}
        for name in sorted(costs, key=lambda name: (-costs[name], name))
    ]


def _moved(counts: Mapping[str, RequestCount]) -> dict[str, Any]:
    """Return requests by kind, and bytes."""
    return {
        "requests": {kind: counts.get(kind, NOTHING).requests for kind in KINDS},
        "written": counts.get("put", NOTHING).bytes,
        "read": counts.get("get", NOTHING).bytes,
    }


def _jobs(view: ClusterView) -> tuple[JobsReading, str | None]:
    """Return the requests of jobs, and why they are not known."""
    try:
        runs = view.jobs().runs.values()
    except SparklogError as error:
        return jobs_reading((), 0), str(error)
    return jobs_reading(runs, SYSTEM_CLOCK.now_ms()), None


def _by_topic(topics: Collection[str], *parts: Snapshot) -> dict[str, dict[str, RequestCount]]:
    """Return the sum of some counts by topic and kind; hidden topics count as shared."""
    found: dict[str, dict[str, RequestCount]] = {}
    for (kind, label), count in chain.from_iterable(part.items() for part in parts):
        own = found.setdefault(label if label in topics else SHARED, {})
        own[kind] = own.get(kind, NOTHING) + count
    return found


def _sum(counts: Any) -> RequestCount:
    return sum(counts, NOTHING)


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """The requests of one topic, by kind."""

    totals: Mapping[str, RequestCount]
    """Those of jobs and programs, too."""
    recent: Mapping[str, RequestCount]
    """Since the console first looked, without jobs and programs."""
    jobs: Mapping[str, RequestCount]
    programs: Mapping[str, RequestCount]
    month: Mapping[str, RequestCount]
    """Of jobs and programs in the last month."""


def _row(
    name: str,
    counts: TopicCounts,
    seconds: float,
    prices: PriceList,
    size_bytes: int | None,
    flush: tuple[int, int] | None,
    other_ms: int | None,
) -> dict[str, Any]:
    totals, recent = counts.totals, counts.recent
    cost = requests_cost(prices, totals)
    put_cost = prices.of_request("put") * totals.get("put", NOTHING).requests
    per_month = HOURS_PER_MONTH * 3600 / seconds if seconds > 0 else None
    monthly = None
    if per_month is not None:
        monthly = requests_cost(prices, recent) * per_month
        monthly += requests_cost(prices, counts.month)
    other = None
    puts = recent.get("put", NOTHING)
    if per_month is not None and monthly is not None and flush and other_ms is not None:
        left = puts_at(puts.requests, flush[0], other_ms, puts.bytes, flush[1])
        other = monthly - (puts.requests - left) * prices.of_request("put") * per_month
    return {
        "topic": name,
        **_moved(totals),
        "cost": cost,
        "putPercent": round(100 * put_cost / cost) if cost else None,
        "jobPercent": round(100 * requests_cost(prices, counts.jobs) / cost) if cost else None,
        "programPercent": (
            round(100 * requests_cost(prices, counts.programs) / cost) if cost else None
        ),
        "monthly": monthly,
        "bytes": size_bytes,
        "storage": None if size_bytes is None else size_bytes / GIB * prices.storage,
        "flush": None if flush is None else flush[0],
        "otherMonthly": other,
    }


def _sizes(view: ClusterView, topics: list[Topic]) -> dict[str, int]:
    try:
        found = view.sizes(topics)
    except SparklogError:
        return {}
    sizes: dict[str, int] = {}
    for tp, size in found.items():
        sizes[tp.topic] = sizes.get(tp.topic, 0) + size
    return sizes


def _flush_settings(view: ClusterView, names: list[str]) -> dict[str, tuple[int, int]]:
    """Return `flush.ms` and `flush.bytes` of topics, where the principal may see settings."""
    if not names:
        return {}
    try:
        with view.administered() as admin:
            found = admin.configs(ConfigResource.TOPIC, names)
    except SparklogError:
        return {}
    settings = {}
    for name, given in found.items():
        values = {one.name: one.value for one in given}
        settings[name] = (
            _whole(values.get("flush.ms"), "flush.ms"),
            _whole(values.get("flush.bytes"), "flush.bytes"),
        )
    return settings


def _whole(text: str | None, name: str) -> int:
    return int(text if text else str(TOPIC_SETTINGS[name].default))


PAGES: Final = (
    PageResource(
        "/bill", "bill", "Show requests to the store and their price by topic and program.",
        "bill.html", show_bill,
        (
            FieldSpec(
                "flush", "compare with this flush.ms", "integer", least=1, most=FLUSH_MAX
            ),
            PAGE,
        ),
    ),
)  # fmt: skip
