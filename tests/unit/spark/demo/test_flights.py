"""The demo's rows: where they come from, and in which order they are sent."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.spark.demo import flights
from sparklog.spark.demo.flights import TOPICS, original, package_folder, write_inputs

FLIGHTS = b"""carrier,tailnum,minute,time_hour
UA,N1,15,2013-02-01T10:00:00Z
AA,NA,0,2013-01-01T10:00:00Z
UA,N2,5,2013-02-01T10:00:00Z
DL,N3,59,2013-01-01T09:00:00Z
"""


def test_the_package_has_a_year_of_flights_planes_and_weather() -> None:
    folder = package_folder()
    lines = {topic: original(folder, topic).count(b"\n") - 1 for topic in TOPICS}
    assert lines == {"flights": 336_776, "planes": 3_322, "weather": 26_115}


def test_missing_package_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "PACKAGE", "no_such_package")
    with pytest.raises(InvalidRequest, match="make setup"):
        package_folder()


def test_flights_are_written_by_month_in_order_of_departure(tmp_path: Path) -> None:
    write_inputs({"flights": FLIGHTS}, tmp_path / "in")
    files = sorted((tmp_path / "in" / "flights").iterdir(), key=lambda f: f.stat().st_mtime)
    read = [list(csv.DictReader(io.StringIO(file.read_text()))) for file in files]
    assert [[row["carrier"] for row in rows] for rows in read] == [["DL", "AA"], ["UA", "UA"]]
    assert [row["tailnum"] for row in read[1]] == ["N2", "N1"]
    assert read[0][1]["tailnum"] == "NA"


def test_every_line_of_the_package_is_sent_once_and_unchanged(tmp_path: Path) -> None:
    folder = package_folder()
    data = original(folder, "weather")
    write_inputs({"weather": data}, tmp_path / "in")
    written = (tmp_path / "in" / "weather.csv").read_bytes()
    assert sorted(written.splitlines()) == sorted(data.splitlines())
    assert written.splitlines()[0] == data.splitlines()[0]
