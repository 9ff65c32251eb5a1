"""Asking and listening where real brokers lead the topic: what is lost, and who waits how long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pytest

from sparklog.client.producer import Producer
from sparklog.cluster.log import Log, open_log
from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.errors import InvalidTopic, Unavailable
from sparklog.spark.schedule import listener
from sparklog.spark.schedule.history import (
    HISTORY_TOPIC,
    HistoryAppend,
    JobRequest,
    JobRun,
    KnownJob,
    encode,
    key_of,
    leading,
    read_history,
    write_history,
)
from sparklog.spark.schedule.listener import Listener
from sparklog.spark.schedule.requests import JobRequests
from sparklog.spark.schedule.runner import ScheduledJobs
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

JOB = KnownJob("nightly", "retain", "@daily", "UTC", (), True)


def request() -> JobRequest:
    """Return a request of this moment."""
    return JobRequest(uuid4().hex, "nightly", "asker:1", SYSTEM_CLOCK.now_ms())


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(listener, "BROKERS_EVERY_S", 0.2)


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root of a log whose history a broker leads."""
    root = (tmp_path_factory.mktemp("led") / "log").as_uri()
    with Brokers(root):
        with open_log(root) as log:
            be_led(log)
        yield root


@pytest.fixture
def log(led: str) -> Iterator[Log]:
    """The log."""
    with open_log(led) as opened:
        yield opened


def be_led(log: Log) -> None:
    """Create the history's topic, and wait until it has a leader."""
    write_history(log, JOB, patience_s=60)
    eventually(lambda: leading(log.refresh()), "a leader of the history")


class Ear(Listener):
    """A listener that says whether it knows where to read."""

    @property
    def listens(self) -> bool:
        return self._next is not None


class Application:
    """An application that records requests, and handles them as the test says."""

    def __init__(self, log: Log) -> None:
        self.ear = Ear(log, "host:1", cast("ScheduledJobs", self))
        self.heard: list[str] = []
        self.runs: list[str] = []
        self.at_first: Callable[[], None] = lambda: None
        self.begun: Callable[[str], None] = lambda run_id: None

    def reserve(self, name: str, run_id: str) -> bool:
        self.heard.append(run_id)
        if len(self.heard) == 1:
            self.at_first()
        return True

    def run_asked(self, name: str, run_id: str) -> None:
        self.runs.append(run_id)
        self.begun(run_id)


@contextmanager
def listening(log: Log) -> Iterator[Application]:
    """Yield an application that gets requests from now on."""
    application = Application(log)
    application.ear.start()
    try:
        eventually(lambda: application.ear.listens, "it listens")
        yield application
    finally:
        application.ear.stop(60)


def append(log: Log, key: bytes, document: object) -> None:
    """Append any record through the leader, as a client with access to the storage may."""
    value = json.dumps(document).encode()
    columns = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
    HistoryAppend(log, pa.RecordBatch.from_pydict(columns)).append()


def test_forged_request_of_a_client_is_rejected_and_not_run(log: Log) -> None:
    forged, asked = request(), request()
    evil = replace(JOB, arguments=("--root", "file:///elsewhere"))
    with listening(log) as application:
        addresses = leading(log.refresh())
        for record in (forged, evil, replace(forged, taker="host:1")):
            with pytest.raises(InvalidTopic), Producer(addresses) as producer:
                producer.send(HISTORY_TOPIC, encode(record), key=key_of(record), partition=0)
        write_history(log, asked, patience_s=60)
        eventually(lambda: application.runs, "what has access to the storage is heard")
        assert application.heard == [asked.request_id]
    assert read_history(log).jobs == {"nightly": JOB}


def test_an_odd_record_ends_no_listening(log: Log) -> None:
    with listening(log) as application:
        now_ms = SYSTEM_CLOCK.now_ms()
        good = {"request_id": "x", "job": "nightly", "asker": "", "asked_ms": now_ms}
        strange: list[dict[str, object]] = [
            {"job": []}, {"job": {}}, {"asked_ms": "?"}, {"asker": "\ud800"}
        ]  # fmt: skip
        documents: list[object] = [[], {}, *({**good, **one} for one in strange)]
        for document in documents:
            append(log, b"ask/x", document)
        asked = request()
        write_history(log, asked, patience_s=60)
        eventually(lambda: application.runs, "it hears what comes after")
        assert application.runs == application.heard == [asked.request_id]


@pytest.mark.parametrize("error", [RuntimeError("a defect"), Unavailable("the store is away")])
def test_listener_loses_no_record_after_an_error(log: Log, error: Exception) -> None:
    first, second = request(), request()
    with listening(log) as application:

        def fail() -> None:
            write_history(log, second, patience_s=60)
            raise error

        application.at_first = fail
        write_history(log, first, patience_s=60)
        eventually(lambda: len(application.runs) == 2, "both are run")
        assert application.runs == [first.request_id, second.request_id]


def test_brokers_with_new_addresses_are_found_without_loss(tmp_path: Path) -> None:
    root = (tmp_path / "log").as_uri()
    asked = request()
    with open_log(root) as log:
        with Brokers(root) as before:
            be_led(log)
            # Nothing is said while it listens here: its position is where it began.
            with_ear = listening(log)
            application = with_ear.__enter__()
        try:
            write_history(log, asked, patience_s=60)
            with Brokers(root) as after:
                assert before.bootstrap != after.bootstrap
                eventually(lambda: application.runs, "it hears what was said in the pause")
                application.ear.stop(60)
        finally:
            with_ear.__exit__(None, None, None)
    assert application.runs == [asked.request_id]


class Hasty(ManualClock):
    """A clock that goes on whenever it is looked at."""

    step_s = 0.01

    def monotonic_s(self) -> float:
        self.sleep_s(self.step_s)
        return super().monotonic_s()


TAKEN = "note: it runs at host:1; to end this command does not end the run"


@pytest.mark.parametrize(("messages", "step_s"), [([], 25.0), (["1 of 3"], 100.0)])
def test_silent_or_never_begun_run_is_given_up(
    log: Log, messages: list[str], step_s: float
) -> None:
    clock = Hasty()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if said == [TAKEN, *messages]:
            clock.step_s = step_s  # all is said: the silence goes by fast

    def begun(run_id: str) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        run = JobRun(run_id, "nightly", "retain", "by hand", now_ms, now_ms, now_ms, "host:1")
        for message in messages:
            write_history(log, replace(run, message=message), patience_s=60)

    asking = JobRequests(log, request(), say, clock)
    with listening(log) as application:
        application.begun = begun
        with pytest.raises(Unavailable, match="is not heard of any more; see `sparklog jobs"):
            asking.run()
    assert application.runs == [asking.request.request_id]
    assert said == [TAKEN, *messages]


def test_a_run_that_ends_while_it_is_waited_for_is_returned(log: Log) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    said: list[str] = []
    asking = JobRequests(log, request(), said.append)
    run_id = asking.request.request_id
    run = JobRun(run_id, "nightly", "retain", "by hand", now_ms, now_ms, now_ms, "host:1")
    ended = replace(run, outcome="done", exit_code=0, message="expired 3")

    def begun(run_id: str) -> None:
        other = replace(run, run_id="0" * 32, message="somebody else's")
        for word in (run, other, replace(run, message="1 of 3"), replace(run, message="1 of 3"),
                     ended):  # fmt: skip
            write_history(log, word, patience_s=60)

    with listening(log) as application:
        application.begun = begun
        assert asking.run() == ended
    assert said == [TAKEN, "1 of 3"]
