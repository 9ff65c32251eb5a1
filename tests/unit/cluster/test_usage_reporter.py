"""UsageReporter: each request is reported once, also when puts fail."""

from __future__ import annotations

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reporter import UsageReporter, reported_usage
from sparklog.cluster.usage_reports import UsageReport, read_usage, sum_of, usage_listing
from sparklog.core.clock import ManualClock
from sparklog.core.counters import RequestCount, by_kind
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import (
    InvalidConfig,
    OutcomeUnknown,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.log.effects import run
from sparklog.log.layout import topic_of_key
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore


class _Refusing(DelegatingStore):
    """Refuses reports while `refuses` says so; may lose the answer to a put that it does."""

    refuses = False
    loses = False
    unclear = 0
    """Number of puts that happen, and whose outcome is unknown."""
    hides = False
    """Refuses to read reports."""

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        if key.startswith("usage/") and self.refuses:
            raise Unavailable("no rights here")
        outcome = super().put_if_absent(key, data)
        if key.startswith("usage/") and self.loses:
            raise Unavailable("the answer was lost")
        if key.startswith("usage/") and self.unclear:
            self.unclear -= 1
            return PutOutcome.UNKNOWN
        return outcome

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if key.startswith("usage/") and self.hides:
            raise InvalidConfig("no rights here")
        return super().get(key, start, end)


@pytest.fixture
def store(clock: ManualClock) -> _Refusing:
    return _Refusing(MemoryStore("usage-reporter", clock))


@pytest.fixture
def log(store: _Refusing, clock: ManualClock) -> Log:
    return Log(MeteredStore(store, label_of=topic_of_key), clock=clock)


def reported(store: ObjectStore) -> UsageReport:
    keys = [info.key for info in run(usage_listing(""), store)]
    found = run(read_usage(keys), store)
    assert all(isinstance(one, UsageReport) for _, one in found)
    return sum_of(one for _, one in found if isinstance(one, UsageReport))


def requests(report: UsageReport, program: str = "test") -> dict[str, int]:
    return {kind: one.requests for kind, one in by_kind(report.programs[program]).items()}


def counted(log: Log) -> dict[str, int]:
    return {kind: one.requests for kind, one in by_kind(log.requests()).items()}


def reporter_of(log: Log, clock: ManualClock) -> UsageReporter:
    return UsageReporter(log, "test", clock=clock, entropy=SeededEntropy(7))


def test_reports_add_up_to_the_stores_own_counters(
    log: Log, store: _Refusing, clock: ManualClock
) -> None:
    reporter = reporter_of(log, clock)
    reporter.report()
    assert not run(usage_listing(""), store)  # nothing was requested
    log.create_topic("t")
    reporter.report()
    log.topic("t")
    log.refresh()
    reporter.report()
    reporter.report()
    assert requests(reported(store)) == counted(log)
    assert reported(store).reports == 2
    assert RequestCount(0, 0) not in reported(store).programs["test"].values()


def test_refused_report_is_tried_again_under_its_name(
    log: Log, store: _Refusing, clock: ManualClock
) -> None:
    reporter = reporter_of(log, clock)
    log.create_topic("t")
    store.refuses = True
    with pytest.raises(Unavailable):
        reporter.report()
    log.refresh()
    store.refuses, store.loses = False, True
    with pytest.raises(Unavailable):
        reporter.report()
    store.loses = False
    reporter.report()  # the one whose answer was lost
    reporter.report()  # what came since
    assert reported(store).reports == 2
    # The puts that were refused or repeated count as well: the store had them.
    assert requests(reported(store)) == counted(log)


def test_reporter_needs_no_right_to_read_reports(
    log: Log, store: _Refusing, clock: ManualClock
) -> None:
    reporter = reporter_of(log, clock)
    log.create_topic("t")
    store.hides = True
    store.unclear = 2
    reporter.report()
    store.unclear = 4
    log.refresh()
    with pytest.raises(OutcomeUnknown, match="object=usage/"):
        reporter.report()
    log.refresh()
    reporter.report()
    reporter.report()  # what came since
    store.hides = False
    assert reported(store).reports == 3
    assert requests(reported(store)) == counted(log)


def test_program_that_may_not_report_ends_all_the_same(log: Log, store: _Refusing) -> None:
    store.refuses = True
    with reported_usage(log, "test"):
        log.create_topic("t")
    assert not run(usage_listing(""), store)


def test_report_has_the_requests_that_others_counted(
    log: Log, store: _Refusing, clock: ManualClock
) -> None:
    log.create_topic("t")
    tasks = {("get", "t"): RequestCount(7, 70), ("head", ""): RequestCount(1, 0)}
    reporter = UsageReporter(log, "test", counted=tasks, clock=clock, entropy=SeededEntropy(7))
    reporter.report()
    log.refresh()
    reporter.report()
    found, own = requests(reported(store)), counted(log)
    assert found == {**own, "get": own.get("get", 0) + 7, "head": 1}


def test_end_reports_the_last_requests(log: Log, store: _Refusing) -> None:
    log.create_topic("u")
    with pytest.raises(UnknownTopicOrPartition), reported_usage(log, "test"):
        log.topic("t")
    assert requests(reported(store)) == counted(log)


def test_program_without_requests_leaves_no_report(log: Log, store: _Refusing) -> None:
    with reported_usage(log, "test"):
        pass
    assert not run(usage_listing(""), store)


def test_root_without_a_log_gets_no_report(log: Log, store: _Refusing) -> None:
    with pytest.raises(UnknownTopicOrPartition), reported_usage(log, "test"):
        log.topic("t")
    assert counted(log)
    assert not list(store.list(""))
