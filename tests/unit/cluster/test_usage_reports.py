"""Usage reports: their objects, the sum of a day, and damage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cluster.usage_reports import (
    BYTES_MAX,
    KEPT_DAYS,
    LABELS_MAX,
    OTHER_PROGRAMS,
    PROGRAMS_MAX,
    READ_AT_ONCE,
    UsageReport,
    decode_usage,
    encode_usage,
    program_name,
    read_usage,
    sum_of,
    sum_up,
    usage_day,
    usage_listing,
)
from sparklog.core.clock import ManualClock
from sparklog.core.counters import RequestCount, Snapshot, add_to, by_kind
from sparklog.core.errors import DataCorrupt
from sparklog.log.checked_json import encode_checked
from sparklog.log.effects import run
from sparklog.log.layout import usage_key, usage_of_key, usage_sum_key
from sparklog.store.memory import MemoryStore

NONCE = "0123456789abcdef0123456789abcdef"
DAY_MS = 86_400_000
NOW_MS = 1_764_417_600_000  # 2025-11-29 12:00 UTC

counts = st.builds(RequestCount, st.integers(0, 1 << 40), st.integers(0, 1 << 50))
snapshots = st.dictionaries(
    st.tuples(st.sampled_from(["get", "put", "list"]), st.sampled_from(["", "t", "a.b-c"])),
    counts,
    max_size=9,
)
reports = st.builds(
    UsageReport,
    st.dictionaries(st.sampled_from(["sparklog get", "nightly", "Spark query"]), snapshots),
    st.integers(0, 1000),
)


def of(program: str, requests: int, topic: str = "t") -> UsageReport:
    return UsageReport({program: {("get", topic): RequestCount(requests, 10 * requests)}})


def kinds(report: UsageReport) -> dict[str, RequestCount]:
    total: dict[tuple[str, str], RequestCount] = {}
    for one in report.programs.values():
        add_to(total, one)
    return by_kind(total)


@given(reports)
def test_report_comes_back_as_it_was_stored(report: UsageReport) -> None:
    assert decode_usage(encode_usage(report), "k") == report


@given(st.lists(reports, max_size=4))
def test_sum_has_each_request_once(several: list[UsageReport]) -> None:
    total = sum_of(several)
    assert total.reports == sum(one.reports for one in several)
    expected: dict[tuple[str, str], RequestCount] = {}
    for report in several:
        for one in report.programs.values():
            add_to(expected, one)
    assert kinds(total) == by_kind(expected)


def test_many_programs_and_topics_stay_within_the_bound() -> None:
    topics: Snapshot = {("get", f"{'t' * 240}{n}"): RequestCount(n + 1, 7) for n in range(2000)}
    total = sum_of(UsageReport({f"p{n}": topics}) for n in range(PROGRAMS_MAX + 9))
    assert len(total.programs) == PROGRAMS_MAX
    assert OTHER_PROGRAMS in total.programs
    data = encode_usage(total)
    assert len(data) <= BYTES_MAX
    stored = decode_usage(data, "k")
    assert kinds(stored) == kinds(total)
    assert all(len(one) <= LABELS_MAX + 1 for one in stored.programs.values())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        encode_usage(of("p", 3))[:-9],
        encode_usage(of("p", 3)).replace(b"get", b"put"),
        encode_checked({"reports": 1}),
        encode_checked({"reports": -1, "programs": {}}),
        encode_checked({"reports": True, "programs": {}}),
        encode_checked({"reports": 1, "programs": {"p": 3}})[1:],
        b" " * (BYTES_MAX + 1),
    ],
)
def test_damaged_report_names_its_object(data: bytes) -> None:
    with pytest.raises(DataCorrupt, match=r"object=usage/2025"):
        decode_usage(data, "usage/2025-11-29/x.json")


def test_values_that_are_no_counts_are_left_out() -> None:
    counts = {"get": [1, -2], "put": [1, 2], "list": "x", "steal": [1, 2]}
    programs = {"p\x1b[2J": {"t": counts}, "q": [1]}
    found = decode_usage(encode_checked({"reports": 1, "programs": programs}), "k")
    assert found.programs == {"p[2J": {("put", "t"): RequestCount(1, 2)}}


def test_names_that_no_topic_has_count_as_no_topic() -> None:
    counts = {name: {"get": [1, 2]} for name in ("<i>", "t\n", "../t", "x" * 250, "", "t")}
    found = decode_usage(encode_checked({"reports": 1, "programs": {"p": counts}}), "k")
    assert found.programs == {
        "p": {("get", ""): RequestCount(5, 10), ("get", "t"): RequestCount(1, 2)}
    }


def test_names_of_programs_are_printable() -> None:
    assert program_name("sparklog get") == "sparklog get"
    assert program_name("\x1b]0;x\x07 é") == "]0;x"
    assert program_name("\n") == "unnamed"
    assert len(program_name("x" * 1000)) == 100


def test_keys_of_reports() -> None:
    assert usage_of_key(usage_key("2025-11-29", NONCE, 12)) == ("2025-11-29", False)
    assert usage_of_key(usage_sum_key("2025-11-29")) == ("2025-11-29", True)
    assert usage_of_key("usage/notes.txt") is None
    assert usage_day(NOW_MS) == "2025-11-29"
    assert usage_day(NOW_MS, 2) == "2025-11-27"


def stored(store: MemoryStore, day: str, sequence: int, requests: int) -> str:
    key = usage_key(day, NONCE, sequence)
    store.put(key, encode_usage(of("sparklog get", requests)))
    return key


def total_of(store: MemoryStore) -> int:
    """Return the GETs that a reader counts by USAGE-REPORTS-2."""
    listed = [info.key for info in run(usage_listing(""), store)]
    sums = {named[0] for key in listed if (named := usage_of_key(key)) and named[1]}
    kept = [k for k in listed if (n := usage_of_key(k)) and (n[1] or n[0] not in sums)]
    found = run(read_usage(kept), store)
    whole = sum_of(report for _, report in found if isinstance(report, UsageReport))
    return kinds(whole).get("get", RequestCount(0, 0)).requests


def test_past_days_are_summed_up_once(clock: ManualClock) -> None:
    store = MemoryStore("usage", clock)
    for sequence in range(3):
        stored(store, usage_day(NOW_MS, 3), sequence, 10)
    stored(store, usage_day(NOW_MS), 0, 5)
    assert total_of(store) == 35
    assert run(sum_up(NOW_MS, dry_run=True), store).summed == (usage_day(NOW_MS, 3),)
    assert not [key for key in store.list("usage/") if key.key.endswith("sum.json")]
    first = run(sum_up(NOW_MS), store)
    assert first.summed == (usage_day(NOW_MS, 3),)
    assert total_of(store) == 35
    # A process that ended before its deletes leaves them to the next one.
    again = run(sum_up(NOW_MS), store)
    assert not again.summed
    assert again.doomed == first.doomed
    for info in again.doomed:
        store.delete(info.key)
        assert total_of(store) == 35
    assert run(sum_up(NOW_MS), store).doomed == ()


def test_day_may_have_more_reports_than_are_read_at_once(clock: ManualClock) -> None:
    store = MemoryStore("usage", clock)
    day = usage_day(NOW_MS, 3)
    for sequence in range(2 * READ_AT_ONCE + 3):
        stored(store, day, sequence, sequence)
    before = total_of(store)
    assert len(run(sum_up(NOW_MS), store).doomed) == 2 * READ_AT_ONCE + 3
    assert total_of(store) == before
    summed = decode_usage(store.get(usage_sum_key(day)), "k")
    assert summed.reports == 2 * READ_AT_ONCE + 3


def test_reports_that_claim_too_much_do_not_spoil_the_sum(clock: ManualClock) -> None:
    store = MemoryStore("usage", clock)
    day = usage_day(NOW_MS, 3)
    for sequence in range(3):
        data = encode_usage(UsageReport(of("x" * sequence, 1).programs, (1 << 62) - 1))
        store.put(usage_key(day, NONCE, sequence), data)
    stored(store, day, 3, 10)
    run(sum_up(NOW_MS), store)
    assert total_of(store) == 13


def test_sum_of_long_ago_may_be_deleted(clock: ManualClock) -> None:
    store = MemoryStore("usage", clock)
    stored(store, usage_day(NOW_MS), 0, 5)
    run(sum_up(NOW_MS + 3 * DAY_MS), store)
    assert [i.key for i in run(sum_up(NOW_MS + KEPT_DAYS * DAY_MS), store).doomed] == [
        usage_key(usage_day(NOW_MS), NONCE, 0)
    ]
    later = run(sum_up(NOW_MS + (KEPT_DAYS + 1) * DAY_MS), store)
    assert {i.key for i in later.doomed} == {
        usage_key(usage_day(NOW_MS), NONCE, 0),
        usage_sum_key(usage_day(NOW_MS)),
    }


def test_damaged_and_foreign_objects_spoil_no_sum(clock: ManualClock) -> None:
    store = MemoryStore("usage", clock)
    day = usage_day(NOW_MS, 5)
    bad, good = stored(store, day, 0, 10), stored(store, day, 1, 20)
    store.delete(bad)
    store.put(bad, json.dumps({"format": 1}).encode())
    store.put(f"usage/{day}/notes.txt", b"mine")
    found = run(sum_up(NOW_MS), store)
    assert found.damaged == (bad,)
    assert [info.key for info in found.doomed] == [bad, good]
    assert total_of(store) == 20
