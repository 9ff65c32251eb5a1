"""Benchmark of the log cleaner: parsing its output, and the records that both systems get."""

from __future__ import annotations

from collections import Counter

from tests.bench.jobs.cleaner import Cleaning, cleanings
from tests.bench.jobs.keyed_rows import chunks
from tests.bench.jobs.plan import KeyedShape

LOG = """[2026-11-21 20:01:02,123] INFO Starting the log cleaner
[2026-11-21 20:01:05,123] INFO [kafka-log-cleaner-thread-0]:
	Log cleaner thread 0 cleaned log keyed-1-0 (dirty section = [0, 2000001])
	244.1 MB of log processed in 3.1 seconds (78.7 MB/sec).
	Indexed 244.1 MB in 1.6 seconds (152.6 Mb/sec, 51.6% of total time)
	Buffer utilization: 2.1%
	Cleaned 244.1 MB in 1.5 seconds (162.7 Mb/sec, 48.4% of total time)
	Start size: 244.1 MB (2,000,001 messages)
	End size: 12.2 MB (100,001 messages)
	95.0% size reduction (95.0% fewer messages)
 (org.apache.kafka.storage.internals.log.LogCleaner)
"""


def test_cleaning_is_read_from_the_cleaners_log_lines() -> None:
    assert cleanings(LOG, "keyed-1") == [Cleaning(2_000_001, 3.1, 2_000_001, 100_001)]
    assert cleanings(LOG, "keyed") == []
    assert cleanings("", "keyed-1") == []


def test_keyed_rows_are_the_same_each_time_and_have_every_key() -> None:
    shape = KeyedShape(records=700_000, keys=1000, value_bytes=8)
    [first, second] = chunks(shape)
    again, _ = chunks(shape)
    assert first == again
    assert (first.first, first.records, second.first) == (0, 500_000, 500_000)
    rows = first.rows()
    pairs = list(first.pairs())
    assert rows.column("key").to_pylist() == [key for key, _, _ in pairs]
    assert rows.column("value").to_pylist() == [value for _, value, _ in pairs]
    assert rows.column("timestamp").cast("int64").to_pylist() == [stamp for *_, stamp in pairs]
    counts = Counter(key for key, _, _ in pairs)
    assert len(counts) == 1000
    assert {len(key) for key in counts} == {16}
