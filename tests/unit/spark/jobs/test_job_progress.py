"""Progress of a job: on a terminal, in a file, and at the end."""

from __future__ import annotations

import io
import json

import pytest

from sparklog.core.clock import ManualClock
from sparklog.spark.jobs.progress import (
    JobProgress,
    ProgressReport,
    Tally,
    bytes_text,
    progress_text,
    rate,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_file_writes_a_line_now_and_then() -> None:
    clock, file = ManualClock(), io.StringIO()
    progress = JobProgress(file, clock)
    for second in range(1, 13):
        clock.sleep_s(1)
        progress.update(Tally(rows=1000 * second))
    progress.close()
    assert file.getvalue().splitlines() == [
        "5,000 records, 1,000 records/s, 5 s",
        "10,000 records, 1,000 records/s, 10 s",
    ]


def test_progress_on_a_terminal_overwrites_one_line_and_clears_it() -> None:
    clock, screen = ManualClock(), Terminal()
    progress = JobProgress(screen, clock)
    for rows in (1_000_000, 10):
        clock.sleep_s(1)
        progress.update(Tally(rows=rows))
    progress.close()
    first, second, blank, nothing = screen.getvalue().split("\r")[1:]
    assert first == "1,000,000 records, 1,000,000 records/s, 1 s"
    assert second.rstrip() == "10 records, 5 records/s, 2 s"
    assert len(second) == len(first)
    assert not blank.strip()
    assert not nothing
    assert "\n" not in screen.getvalue()


def test_time_before_the_start_does_not_count() -> None:
    clock = ManualClock()
    progress = JobProgress(io.StringIO(), clock)
    clock.sleep_s(60)
    progress.start()
    clock.sleep_s(2)
    assert progress.elapsed_s() == pytest.approx(2)


def test_progress_shows_tasks_and_bytes_when_known() -> None:
    said = progress_text(Tally(2000, 3 << 20, 1, 8), 4.0)
    assert said == "2,000 records, 3.0 MiB, 500 records/s, task 1 of 8, 4 s"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 62, "4096.0 PiB"),
    ],
)
def test_sizes_read_as_people_read_them(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_no_time_has_no_rate() -> None:
    assert rate(5, 0) == 0


def test_a_report_is_lines_for_people_and_one_object_for_programs() -> None:
    report = ProgressReport("produced", "t", 1000, 2048, 0.5, {"created": True}, ("  more",))
    assert report.to_text().splitlines() == [
        "produced 1,000 records (2.0 KiB) of t in 0.5 s: 2,000 records/s",
        "  more",
    ]
    assert json.loads(report.to_json()) == {
        "topic": "t", "rows": 1000, "bytes": 2048, "seconds": 0.5, "rows_per_second": 2000.0,
        "created": True,
    }  # fmt: skip
