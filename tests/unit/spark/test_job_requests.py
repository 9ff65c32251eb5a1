"""Who runs a job that somebody asked for: the first that says so, in the order of the topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.cluster.open import Log, open_log
from sparklog.spark.job_history import HISTORY_TOPIC, JobRequest, decode
from sparklog.spark.job_requests import Asking, Listener

REQUEST = JobRequest("f" * 32, "nightly", "host:9", 1000)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log."""
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


class Application:
    """One that hears what the test lets it hear."""

    def __init__(self, log: Log, name: str, *, is_free: bool = True) -> None:
        self.runs: list[tuple[str, str]] = []
        self.listener = Listener(
            log, name, lambda job: is_free, lambda job, run_id: self.runs.append((job, run_id))
        )


def words(log: Log) -> Iterator[JobRequest]:
    """Yield what the topic has, in its order."""
    partition = log.partition(HISTORY_TOPIC, 0)
    for batch in partition.read(0, partition.view().end_offset, ("key", "value")):
        for row in batch.to_pylist():
            word = decode(row["key"], row["value"])
            assert isinstance(word, JobRequest)
            yield word


def test_the_first_word_counts_and_each_request_is_run_once(log: Log) -> None:
    busy = Application(log, "host:0", is_free=False)
    first, second = Application(log, "host:1"), Application(log, "host:2")
    everybody = (busy, first, second)
    for one in everybody:
        one.listener.hear(REQUEST)
        one.listener.hear(REQUEST)  # written twice, on its way
    told = list(words(log))
    assert [word.taker for word in told] == ["host:1", "host:2"]
    for one in everybody:
        for word in (*told, *told):
            one.listener.hear(word)
    assert first.runs == [("nightly", REQUEST.request_id)]
    assert second.runs == busy.runs == []


def test_what_was_taken_back_is_run_by_nobody_else(log: Log) -> None:
    late = Application(log, "host:1")
    late.listener.hear(REQUEST)
    late.listener.hear(replace(REQUEST, taker=REQUEST.asker))
    for word in words(log):
        late.listener.hear(word)
    assert late.runs == []


def test_where_no_broker_leads_the_topic_nobody_is_asked(log: Log) -> None:
    said: list[str] = []
    assert Asking(log, REQUEST, said.append).run() is None
    assert (said, HISTORY_TOPIC in log.refresh().topics) == ([], False)
