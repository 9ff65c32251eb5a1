"""From a job's end to an exit code and one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.spark.jobs.job import OpenSession, failure_line, run_job
from sparklog.spark.jobs.progress import JobProgress, ProgressReport
from sparklog.spark.jobs.verify import parse_verify

REPORT = ProgressReport("produced", "t", 3, 0, 1.0)
TRACE = """[PYTHON_DATA_SOURCE_ERROR] Failed to write: Traceback (most recent call last):
  File "worker.py", line 1, in main
sparklog.core.errors.InvalidPartitions: a row asks for a partition. topic=t partition=9

JVM stacktrace:
org.apache.spark.sql.AnalysisException
\tat org.apache.spark.Some.thing(Some.scala:1)
"""


@dataclass(frozen=True)
class Words:
    json: bool = False


def _run(body: Callable[[], ProgressReport], *, as_json: bool = False) -> int:
    def parse(argv: Sequence[str]) -> Words:
        return Words(as_json)

    def job(words: Words, open_session: OpenSession, progress: JobProgress) -> ProgressReport:
        return body()

    return run_job("test", parse, job, [])


def _raises(error: BaseException) -> Callable[[], ProgressReport]:
    def body() -> ProgressReport:
        raise error

    return body


def test_report_is_text_on_standard_error_and_json_on_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(lambda: REPORT) == 0
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("produced 3 records of t")
    assert _run(lambda: REPORT, as_json=True) == 0
    said = capsys.readouterr()
    assert said.out.startswith('{"topic":"t","rows":3')
    assert not said.err


def test_an_error_is_one_line_and_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_raises(UnknownTopicOrPartition("no such topic. topic=t"))) == 1
    assert capsys.readouterr().err == "error: no such topic. topic=t\n"


def test_an_error_of_the_system_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_raises(FileNotFoundError(2, "No such file", "x.csv"))) == 1
    assert capsys.readouterr().err == "error: No such file: x.csv\n"


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        _run(_raises(ZeroDivisionError()))


def test_an_interrupt_is_130_and_a_wrong_call_2() -> None:
    assert _run(_raises(KeyboardInterrupt())) == 130
    assert _run(_raises(SystemExit(2))) == 2


def test_sigterm_ends_a_job_with_143_and_leaves_the_old_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def body() -> ProgressReport:
        os.kill(os.getpid(), signal.SIGTERM)
        SYSTEM_CLOCK.sleep_s(30)  # the signal ends it
        return REPORT

    assert _run(body) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_sparklogs_message_is_found_in_sparks_trace() -> None:
    line = failure_line(OSError(TRACE))
    assert line == "a row asks for a partition. topic=t partition=9"


def test_sparks_own_words_lose_their_trace_and_their_line_breaks() -> None:
    text = "[PATH_NOT_FOUND] Path\n  does not exist: x.\n\nJVM stacktrace:\norg.apache…"
    assert failure_line(OSError(text)) == "[PATH_NOT_FOUND] Path does not exist: x."


def test_java_error_is_reported_by_its_message() -> None:
    text = (
        "An error occurred while calling o1180.save.\n: org.apache.spark.SparkException: [SOME] "
        "Nothing to be found.\n\tat org.apache.spark.Some.thing(Some.scala:1)\n"
        "Caused by: java.lang.ClassNotFoundException: some.Class\n\t... 16 more"
    )
    assert failure_line(Py4JError(text)) == "[SOME] Nothing to be found."


def test_a_message_without_end_is_cut() -> None:
    assert len(failure_line(OSError("x" * 100_000))) < 3000


def test_wrong_call_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    def body(*_: object) -> ProgressReport:
        raise AssertionError("it was called wrongly")

    assert run_job("test", parse_verify, body, ["--root", "r", "--metrics-file"]) == 2
    assert capsys.readouterr().err.count("expected one argument") == 1
