"""ProgramUsage: each request once, whenever the reader looks and retention sums days up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reports import (
    BYTES_MAX,
    KEPT_DAYS,
    LABELS_MAX,
    OTHER_PROGRAMS,
    PROGRAMS_MAX,
    UsageReport,
    encode_usage,
    sum_up,
    usage_day,
)
from sparklog.console import program_usage
from sparklog.console.bill import LOOK_EVERY_S
from sparklog.console.program_usage import ProgramUsage, UsageReading
from sparklog.core.clock import ManualClock
from sparklog.core.counters import RequestCount, by_kind, by_label
from sparklog.core.errors import Unavailable
from sparklog.log.effects import create, run
from sparklog.log.layout import usage_key, usage_sum_key
from sparklog.store.base import ObjectInfo
from sparklog.store.memory import MemoryStore

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class AwayStore(MemoryStore):
    """A store that fails after some more gets, or at once."""

    def __init__(self) -> None:
        super().__init__("usage")
        self.gets_left: int | None = None

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if self.gets_left is not None:
            if self.gets_left == 0:
                raise Unavailable("the store is away")
            self.gets_left -= 1
        return super().get(key, start, end)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        if self.gets_left == 0:
            raise Unavailable("the store is away")
        return super().list(prefix, start_after)


class Usage:
    """A root with usage reports, and a reader of them."""

    def __init__(self, reads_max: int = 5000) -> None:
        self.clock = ManualClock()
        self.store = AwayStore()
        self.log = Log(self.store, clock=self.clock, read_threads=1)
        self.reader = self.new_reader(reads_max)
        self._numbers = count()

    def new_reader(self, reads_max: int = 5000) -> ProgramUsage:
        return ProgramUsage(self.log, self.clock, reads_max=reads_max)

    def day(self, days_ago: int = 0) -> str:
        return usage_day(self.clock.now_ms(), days_ago)

    def add(self, requests: int, days_ago: int = 0, program: str = "sparklog get") -> str:
        report = UsageReport({program: {("get", "orders"): RequestCount(requests, 10)}})
        return self.put(self.new_key(self.day(days_ago)), encode_usage(report))

    def new_key(self, day: str) -> str:
        return usage_key(day, f"{next(self._numbers):032x}", 0)

    def put(self, key: str, data: bytes) -> str:
        self.log.run_program(create(key, data))
        return key

    def put_sum(self, requests: int, reports: int, days_ago: int) -> None:
        counts = {("get", "orders"): RequestCount(requests, 10)}
        data = encode_usage(UsageReport({"sparklog get": counts}, reports))
        self.put(usage_sum_key(self.day(days_ago)), data)

    def look(self) -> UsageReading:
        self.clock.sleep_s(LOOK_EVERY_S)
        return self.reader.reading()

    def retain(self) -> None:
        upkeep = run(sum_up(self.clock.now_ms()), self.store)
        for info in upkeep.doomed:
            self.store.delete(info.key)


def gets(reading: UsageReading) -> int:
    return by_kind(reading.totals).get("get", RequestCount(0, 0)).requests


@pytest.fixture
def usage() -> Iterator[Usage]:
    made = Usage()
    yield made
    made.log.close()


def test_empty_root_has_no_reports(usage: Usage) -> None:
    assert usage.look() == UsageReading()


def test_reports_count_once_by_topic_and_program(usage: Usage) -> None:
    usage.add(3, 1)
    usage.add(4)
    usage.add(5, program="nightly")
    first = usage.look()
    assert first.totals == {("get", "orders"): RequestCount(12, 30)}
    assert first.programs == {
        "sparklog get": {"get": RequestCount(7, 20)}, "nightly": {"get": RequestCount(5, 10)},
    }  # fmt: skip
    assert (first.reports, first.since, first.unread) == (3, usage.day(1), 0)
    usage.add(6)
    usage.store.gets_left = 1
    assert gets(usage.look()) == 18, "the new report is the only one that is read"
    assert usage.store.gets_left == 0


def test_two_looks_have_some_seconds_between_them(usage: Usage) -> None:
    usage.look()
    usage.add(1)
    assert gets(usage.reader.reading()) == 0
    assert gets(usage.look()) == 1


def test_sum_of_a_day_replaces_reports_that_counted(usage: Usage) -> None:
    usage.add(3, 2)
    usage.add(4, 2)
    usage.add(5)
    assert gets(usage.look()) == 12
    usage.put_sum(100, 9, 2)
    replaced = usage.look()
    assert (gets(replaced), replaced.reports) == (105, 10)
    usage.add(50, 2)
    assert usage.look() == replaced, "a report that comes after its day's sum does not count"
    assert usage.new_reader().reading() == replaced


def test_a_look_reads_a_bounded_number_of_reports() -> None:
    usage = Usage(reads_max=3)
    for days_ago in (20, 10, 1, 0):
        usage.add(1, days_ago)
        usage.add(1, days_ago)
    usage.put_sum(7, 2, 20)
    first = usage.look()
    assert (gets(first), first.unread) == (3, 4), "newer days first"
    usage.add(1)
    second = usage.look()
    assert (gets(second), second.unread, second.since) == (6, 2, usage.day(10))
    third = usage.look()
    assert (gets(third), third.unread) == (14, 0)
    assert third == usage.new_reader().reading()
    usage.log.close()


def test_a_look_reads_a_bounded_number_of_bytes(
    usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(encode_usage(UsageReport({"x": {("get", "orders"): RequestCount(1, 10)}})))
    monkeypatch.setattr(program_usage, "LOOK_BYTES_MAX", 7 * size)
    monkeypatch.setattr(program_usage, "BYTES_AT_ONCE", 2 * size)
    for _ in range(10):
        usage.add(1, program="x")
    large = usage.put(usage.new_key(usage.day()), b" " * (BYTES_MAX + 1))
    first = usage.look()
    assert (gets(first), first.unread, first.damaged_names) == (0, 10, (large,))
    second = usage.look()
    assert (gets(second), second.unread) == (7, 3)
    last = usage.look()
    assert (gets(last), last.unread) == (10, 0)


def test_names_of_reports_have_a_bound(usage: Usage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_usage, "NAMES_MAX", 2)
    for _ in range(5):
        usage.add(1, 2)
    assert usage.look().unread == 3
    assert (usage.look().unread, gets(usage.look())) == (3, 2)
    usage.retain()
    summed = usage.look()
    assert (summed.unread, gets(summed), summed.reports) == (0, 5, 5)


def test_damaged_objects_are_named_and_do_not_count(usage: Usage) -> None:
    usage.add(3)
    bad = usage.put(usage.new_key(usage.day()), b"{}")
    large = usage.put(usage.new_key(usage.day()), b" " * (BYTES_MAX + 1))
    found = usage.look()
    assert (gets(found), found.reports, found.damaged) == (3, 1, 2)
    assert set(found.damaged_names) == {bad, large}
    assert usage.look() == found
    usage.clock.sleep_s(2 * DAY_S)
    usage.retain()
    summed = usage.look()
    assert (gets(summed), summed.damaged) == (3, 0), "the sum replaces damaged reports, too"
    for _ in range(9):
        usage.put(usage.new_key(usage.day()), b"?")
    several = usage.look()
    assert (several.damaged, len(several.damaged_names)) == (9, 5)


def test_damaged_sum_still_replaces_the_reports(usage: Usage) -> None:
    usage.add(3, 2)
    usage.add(4)
    usage.look()
    key = usage.put(usage_sum_key(usage.day(2)), b"damaged")
    found = usage.look()
    assert (gets(found), found.damaged_names) == (4, (key,))
    assert found == usage.new_reader().reading()


def test_month_has_the_reports_of_thirty_days(usage: Usage) -> None:
    usage.add(1, 30)
    usage.add(2, 29)
    usage.add(4)
    found = usage.look()
    assert gets(found) == 7
    assert by_kind(found.month)["get"].requests == 6
    usage.clock.sleep_s(DAY_S)
    assert by_kind(usage.look().month)["get"].requests == 4


def test_days_long_ago_and_days_to_come_do_not_count(usage: Usage) -> None:
    usage.add(1, KEPT_DAYS + 1)
    usage.add(2, KEPT_DAYS)
    usage.add(4, -1)
    usage.add(8, -2)
    usage.put(usage.new_key(f"{usage.day()[:8]}99"), b"")
    usage.put(f"usage/{usage.day()}/notes.txt", b"")
    found = usage.look()
    assert (gets(found), found.ahead, found.damaged) == (6, 2, 0)
    usage.clock.sleep_s(DAY_S)
    later = usage.look()
    assert (gets(later), later.ahead) == (12, 1)
    assert later == usage.new_reader().reading()


def test_read_days_are_not_listed_again(usage: Usage) -> None:
    usage.add(1, 9)
    usage.add(2, 1)
    assert gets(usage.look()) == 3
    usage.add(70, 9)
    assert gets(usage.look()) == 3
    usage.clock.sleep_s(5 * DAY_S)
    assert gets(usage.look()) == 3
    usage.retain()
    assert gets(usage.look()) == 3, "a sum has the requests of the reports"
    assert gets(usage.new_reader().reading()) == 73


def test_clock_that_goes_back_counts_nothing_twice(usage: Usage) -> None:
    usage.add(1)
    usage.look()
    usage.clock.sleep_s(9 * DAY_S)
    usage.add(2)
    assert gets(usage.look()) == 3
    usage.clock._start_ms -= round(9 * DAY_S * 1000)
    assert gets(usage.look()) == 3


def test_store_that_is_away_takes_no_counts_away(usage: Usage) -> None:
    for _ in range(100):
        usage.add(1)
    usage.store.gets_left = 70
    found = usage.look()
    assert (gets(found), found.unread, found.problem) == (64, 36, "the store is away")
    usage.store.gets_left = 0
    assert usage.look() == found
    usage.store.gets_left = None
    whole = usage.look()
    assert (gets(whole), whole.unread, whole.problem) == (100, 0, "")


def test_many_topics_and_programs_keep_their_sums(usage: Usage) -> None:
    for number in range(3):
        for part in range(20):
            topics = {("get", f"{part}-{n}"): RequestCount(1, 1) for n in range(LABELS_MAX)}
            report = UsageReport({f"{number}-{part}": topics})
            usage.put(usage.new_key(usage.day(number)), encode_usage(report))
    found = usage.look()
    assert gets(found) == 3 * 20 * LABELS_MAX
    assert len(by_label(found.totals)) <= 3 * LABELS_MAX + 1
    assert len(found.programs) == PROGRAMS_MAX
    assert OTHER_PROGRAMS in found.programs
    assert sum(one["get"].requests for one in found.programs.values()) == gets(found)


def test_kinds_that_the_format_has_not_do_not_count(usage: Usage) -> None:
    counts = {("get", ""): RequestCount(1, 1), ("poke", ""): RequestCount(5, 5)}
    usage.put(usage.new_key(usage.day()), encode_usage(UsageReport({"x": counts})))
    found = usage.look()
    assert found.totals == {("get", ""): RequestCount(1, 1)}
    assert found.programs == {"x": {"get": RequestCount(1, 1)}}


def test_several_threads_count_each_report_once(usage: Usage) -> None:
    for _ in range(200):
        usage.add(1)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: usage.reader.reading(), range(8)))
    assert {gets(one) for one in found} == {200}


actions = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 9), st.integers(0, 2)),
    st.tuples(st.just("retain"), st.just(0), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 60), st.just(0)),
    st.tuples(st.just("look"), st.just(0), st.just(0)),
)


@given(st.lists(actions, max_size=30))
def test_frequent_looks_agree_with_a_first_look(steps: list[tuple[str, int, int]]) -> None:
    usage = Usage(reads_max=2)
    for name, number, days_ago in steps:
        if name == "add":
            usage.add(number, days_ago, f"program {number % 3}")
        elif name == "retain":
            usage.retain()
        elif name == "wait":
            usage.clock.sleep_s(number * HOUR_S)
        else:
            usage.look()
    while usage.look().unread:
        pass
    assert usage.look() == usage.new_reader().reading()
    usage.log.close()
