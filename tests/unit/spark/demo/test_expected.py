"""The totals that the demo compares with, against the standard library's reading of the CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from sparklog.spark.demo.flights import TOPICS, original, package_folder
from sparklog.spark.demo.scene import Expected, expected_of

JULY_S = 1_372_636_800


@pytest.fixture(scope="module")
def originals() -> dict[str, bytes]:
    folder = package_folder()
    return {topic: original(folder, topic) for topic in TOPICS}


@pytest.fixture(scope="module")
def expected(originals: dict[str, bytes]) -> Expected:
    return expected_of(originals)


def _rows(data: bytes) -> Iterator[dict[str, str]]:
    return iter(csv.DictReader(io.StringIO(data.decode())))


def test_delays_add_up_by_carrier_and_hour(originals: dict[str, bytes], expected: Expected) -> None:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    arrived = Counter[tuple[str, str]]()
    for row in _rows(originals["flights"]):
        place = (row["carrier"], row["time_hour"])
        total = sums[place]
        total[0] += 1
        if row["dep_delay"] != "NA":
            total[1] += 1
            total[2] += int(row["dep_delay"])
        if row["arr_delay"] != "NA":
            arrived[place] += 1
            total[3] += int(row["arr_delay"])
    found = {
        (one["carrier"], one["hour"].strftime("%Y-%m-%dT%H:%M:%SZ")): one
        for one in expected.delays().to_pylist()
    }
    assert found.keys() == sums.keys()
    for place, (flights, departed, dep_delay, arr_delay) in sums.items():
        one = found[place]
        assert (one["flights"], one["departed"]) == (flights, departed)
        assert one["dep_delay"] == (dep_delay if departed else None)
        assert one["arr_delay"] == (arr_delay if arrived[place] else None)


def test_records_are_counted_by_key_and_some_have_none(
    originals: dict[str, bytes], expected: Expected
) -> None:
    counts = Counter(row["tailnum"] for row in _rows(originals["flights"]))
    counts[""] = counts.pop("NA")
    found = expected.keys("flights").to_pylist()
    assert {(one["key"] or b"").decode(): one["records"] for one in found} == counts
    assert counts[""] == 2512


def test_rows_are_counted_from_a_moment_on(originals: dict[str, bytes], expected: Expected) -> None:
    # Text of one format and one zone compares as time does.
    july = sum(row["time_hour"] >= "2013-07-01T00:00:00Z" for row in _rows(originals["weather"]))
    assert expected.since("weather", JULY_S) == july
    assert expected.since("planes", JULY_S) == 0
    assert expected.since("flights", 0) == expected.count("flights") == 336_776
