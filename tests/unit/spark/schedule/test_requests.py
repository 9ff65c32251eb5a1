"""Requested runs of a job: the first application to accept it in the topic's order runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.core.clock import ManualClock
from sparklog.core.errors import Unavailable
from sparklog.spark.schedule.history import HISTORY_TOPIC, JobRequest, decode
from sparklog.spark.schedule.listener import OLD_MS, Listener
from sparklog.spark.schedule.requests import BEGUN_WITHIN_S, TAKEN_WITHIN_S, JobRequests
from sparklog.spark.schedule.runner import RunSlots, ScheduledJobs

NOON_MS = 1_795_262_400_000
REQUEST = JobRequest("f" * 32, "nightly", "host:9", NOON_MS)
OTHER = replace(REQUEST, request_id="e" * 32)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log."""
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    """Noon, until a test lets time pass."""
    return ManualClock(NOON_MS)


class Application:
    """An application that sees released records, and runs a job until the test ends it."""

    def __init__(self, log: Log, clock: ManualClock, name: str, at_once: int = 1) -> None:
        self.runs: list[tuple[str, str]] = []
        self.places = RunSlots(at_once)
        self.listener = Listener(log, name, cast("ScheduledJobs", self), clock)

    def reserve(self, name: str, run_id: str) -> bool:
        return self.places.reserve(run_id)

    def release(self, run_id: str) -> None:
        self.places.release(run_id)

    def run_asked(self, name: str, run_id: str) -> None:
        self.runs.append((name, run_id))


def words(log: Log) -> list[JobRequest]:
    """Return what the topic has, in its order."""
    if HISTORY_TOPIC not in log.refresh().topics:
        return []
    partition = log.partition(HISTORY_TOPIC, 0)
    found = []
    for batch in partition.read(0, partition.view().end_offset, ("key", "value")):
        for row in batch.to_pylist():
            word = decode(row["key"], row["value"])
            assert isinstance(word, JobRequest)
            found.append(word)
    return found


def test_the_first_word_counts_and_each_request_is_run_once(log: Log, clock: ManualClock) -> None:
    busy = Application(log, clock, "host:0", at_once=0)
    first, second = Application(log, clock, "host:1"), Application(log, clock, "host:2")
    everybody = (busy, first, second)
    for one in everybody:
        one.listener.handle(REQUEST)
        one.listener.handle(REQUEST)  # written twice, on its way
    told = words(log)
    assert [word.taker for word in told] == ["host:1", "host:2"]
    for one in everybody:
        for word in (*told, *told):
            one.listener.handle(word)
    assert first.runs == [("nightly", REQUEST.request_id)]
    assert second.runs == busy.runs == []
    assert second.places.reserve("x"), "its place is free again"
    assert not first.places.reserve("x")


def test_withdrawn_request_is_run_by_no_other_application(log: Log, clock: ManualClock) -> None:
    late = Application(log, clock, "host:1")
    late.listener.handle(REQUEST)
    late.listener.handle(replace(REQUEST, taker=REQUEST.asker))
    for word in words(log):
        late.listener.handle(word)
    assert late.runs == []
    assert late.places.reserve("x")


def test_second_request_is_not_accepted_before_the_first_begins(
    log: Log, clock: ManualClock
) -> None:
    one = Application(log, clock, "host:1")
    one.listener.handle(REQUEST)
    one.listener.handle(OTHER)
    (word,) = words(log)
    one.listener.handle(word)
    clock.sleep_s(1)
    one.listener.attend()
    assert one.runs == [("nightly", REQUEST.request_id)]
    assert len(words(log)) == 1
    # Its run is short: the second caller still waits for an answer, and gets one.
    one.release(REQUEST.request_id)
    one.listener.attend()
    assert [word.request_id for word in words(log)] == [REQUEST.request_id, OTHER.request_id]


def test_request_is_held_only_while_its_caller_waits(log: Log, clock: ManualClock) -> None:
    one = Application(log, clock, "host:1")
    assert one.places.reserve("x")
    one.listener.handle(REQUEST)
    one.listener.handle(OTHER)
    one.listener.handle(replace(OTHER, taker="host:2"))
    one.release("x")
    clock.sleep_s(TAKEN_WITHIN_S)
    one.listener.attend()
    assert words(log) == []
    assert one.places.reserve("y")


def test_slot_is_reserved_only_while_the_caller_waits_for_the_run(
    log: Log, clock: ManualClock
) -> None:
    one = Application(log, clock, "host:1")
    one.listener.handle(REQUEST)
    clock.sleep_s(BEGUN_WITHIN_S - 1)
    one.listener.attend()
    assert not one.places.reserve("x")
    clock.sleep_s(1)
    one.listener.attend()
    assert one.places.reserve("x")
    for word in words(log):
        one.listener.handle(word)
    assert one.runs == []


def test_an_old_request_is_not_taken(log: Log, clock: ManualClock) -> None:
    one = Application(log, clock, "host:1")
    one.listener.handle(replace(REQUEST, asked_ms=NOON_MS - OLD_MS))
    assert words(log) == []
    one.listener.handle(replace(OTHER, asked_ms=NOON_MS - OLD_MS + 1))
    assert [word.request_id for word in words(log)] == [OTHER.request_id]


def test_a_word_in_our_name_about_another_job_does_not_change_the_job(
    log: Log, clock: ManualClock
) -> None:
    one = Application(log, clock, "host:1")
    one.listener.handle(REQUEST)
    one.listener.handle(replace(REQUEST, job="none", taker="host:1"))
    assert one.runs == [("nightly", REQUEST.request_id)]


def test_failed_history_write_frees_the_place_in_time(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritten(*given: object, **settings: object) -> None:
        raise Unavailable("the leader is going")

    monkeypatch.setattr("sparklog.spark.schedule.listener.write_history", unwritten)
    one = Application(log, clock, "host:1")
    with pytest.raises(Unavailable):
        one.listener.handle(REQUEST)
    clock.sleep_s(BEGUN_WITHIN_S)
    one.listener.attend()
    assert one.places.reserve("x")


def test_request_is_not_sent_without_a_leader_of_the_topic(log: Log) -> None:
    said: list[str] = []
    assert JobRequests(log, REQUEST, said.append).run() is None
    assert (said, HISTORY_TOPIC in log.refresh().topics) == ([], False)
