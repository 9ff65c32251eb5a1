"""Retention's work on a partition, and its report; tests/spark runs it in tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import SnapshotRecords, create_snapshot, snapshot_records
from sparklog.cluster.publication import Publication, StagedPartition, encode
from sparklog.cluster.usage_reports import (
    UsageReport,
    decode_usage,
    encode_usage,
    usage_day,
)
from sparklog.core.clock import ManualClock
from sparklog.core.counters import RequestCount, by_kind, diff
from sparklog.core.errors import InvalidConfig, UnknownTopicOrPartition
from sparklog.log.cleanup.garbage import ORPHAN_AGE_MS
from sparklog.log.effects import run
from sparklog.log.layout import commit_key, topic_folder, usage_key, usage_sum_key
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.manifest import encode as encode_manifest
from sparklog.spark.jobs.job import FAILED
from sparklog.spark.jobs.partition_tasks import PartitionAnswer, chosen_topics, with_pins, work_on
from sparklog.spark.jobs.report import UpkeepReport, total_of
from sparklog.spark.jobs.retain import (
    RetainJob,
    parse_retain,
    retain_report,
    retained_beside,
    retained_by,
    with_unpublished,
)
from sparklog.store.base import Data, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.file import FileStore
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import numbered, values

JOB = RetainJob("memory://retain")


@pytest.fixture
def log(clock: ManualClock) -> Log:
    opened = Log(MemoryStore("retain", clock), clock=clock)
    opened.create_topic("t", 1, {"retention.bytes": "0"})
    return opened


def retained(log: Log, clock: ManualClock, job: RetainJob = JOB) -> Mapping[str, Any]:
    records = run(orphans.publication_records(clock.now_ms()), log.store)
    (work,) = with_unpublished(work_on(log.topics().values()), records)
    return retained_by(job, clock)(log, work)


def test_the_log_start_moves_first_and_objects_go_in_a_later_run(
    log: Log, clock: ManualClock
) -> None:
    partition = log.partition("t", 0)
    partition.append([numbered(0, 3)])
    partition.append([numbered(3, 2)])
    planned = retained(log, clock, replace(JOB, dry_run=True))
    assert (planned["expired_offsets"], planned["log_start_offset"]) == (5, 5)
    assert partition.view().log_start_offset == 0
    first = retained(log, clock)
    assert (first["expired_offsets"], first["deleted_objects"]) == (5, 0)
    assert partition.view().log_start_offset == 5
    clock.sleep_s(61)
    planned = retained(log, clock, replace(JOB, dry_run=True))
    second = retained(log, clock)
    assert planned["deleted_objects"] == second["deleted_objects"] == 2
    assert second["deleted_bytes"] > 0
    third = retained(log, clock)
    assert (third["expired_offsets"], third["deleted_objects"], third["waiting_objects"]) == (
        0,
        0,
        0,
    )


def test_objects_referenced_by_the_tail_are_deleted_like_others(
    log: Log, clock: ManualClock
) -> None:
    partition = log.partition("t", 0)
    for number in range(3):
        partition.append_staged([partition.stage([numbered(number, 1)])])
    folder = partition.layout.folder

    def left() -> int:
        return sum("/staged/" in info.key for info in log.store.list(folder))

    first = retained(log, clock)
    assert (first["expired_offsets"], left()) == (3, 3)
    assert (first["records_before"], first["records_after"]) == (3, 0)
    clock.sleep_s(61)
    assert retained(log, clock)["deleted_objects"] == 6
    assert left() == 0


def test_retention_deletes_nothing_by_a_newer_versions_setting(
    log: Log, clock: ManualClock
) -> None:
    log.partition("t", 0).append([numbered(0, 3)])
    (work,) = work_on(log.topics().values())
    newer = replace(work, configs={**work.configs, "retention.ms": "while.anybody.reads"})
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        retained_by(JOB, clock)(log, newer)
    assert log.partition("t", 0).view().log_start_offset == 0


def test_staged_objects_of_a_commit_record_stay_until_published(
    log: Log, clock: ManualClock
) -> None:
    log.alter_configs("t", {"retention.bytes": "-1"})
    partition = log.partition("t", 0)
    staged = partition.stage([numbered(0, 2)])
    clock.sleep_s(ORPHAN_AGE_MS / 1000 + 1)
    part = StagedPartition("t", log.topic("t").topic_id, 0, (staged,))
    record = Publication("q", 3, "e" * 32, clock.now_ms(), (part,))
    log.store.put(commit_key("q", 3), encode(record))
    assert retained(log, clock)["deleted_objects"] == 0
    log.store.put(commit_key("x", 0), b"damaged: what it would publish is not known")
    clock.sleep_s(ORPHAN_AGE_MS / 1000 + 1)
    assert retained(log, clock)["deleted_objects"] == 0
    log.store.delete(commit_key("x", 0))
    assert retained(log, clock)["deleted_objects"] == 1
    assert values(partition, 0, 0) == []


def test_topics_are_chosen_by_name(log: Log) -> None:
    log.create_topic("u", 2)
    image = log.refresh()
    assert [t.name for t in chosen_topics(image, [])] == ["t", "u"]
    assert [(w.topic, w.partition) for w in work_on(chosen_topics(image, ["u"]))] == [
        ("u", 0),
        ("u", 1),
    ]
    with pytest.raises(UnknownTopicOrPartition):
        chosen_topics(image, ["nosuch"])


def test_a_call_is_understood() -> None:
    job = parse_retain(["--root", "memory://x", "--topic", "a", "--topic", "b", "--dry-run"])
    assert (job.topics, job.dry_run, job.json) == (("a", "b"), True, False)
    assert job.orphan_age_ms == ORPHAN_AGE_MS
    assert parse_retain(["--root", "/x", "--orphan-hours", "2"]).orphan_age_ms == 7_200_000


def test_failed_partition_is_reported_and_fails_the_job() -> None:
    answers = (
        PartitionAnswer("t", 0, {"expired_offsets": 3}, "", {"get": (2, 90), "list": (1, 0)}),
        PartitionAnswer("t", 1, {}, "DataCorrupt: bad. object=x", {"get": (1, 10)}),
    )
    report = UpkeepReport(
        "done", 1.0, answers, {"expired_offsets": total_of(answers, "expired_offsets")}, ("line",)
    )
    assert report.ended_by == FAILED
    assert report.to_text().splitlines() == [
        "done",
        "line",
        "error: t-1: DataCorrupt: bad. object=x",
    ]
    told = json.loads(report.to_json())
    assert (told["expired_offsets"], told["failed"], told["requests"]) == (
        3,
        1,
        {"get": 3, "list": 1},
    )
    assert told["partitions"][1]["error"].startswith("DataCorrupt")
    assert UpkeepReport("done", 1.0, answers[:1], {}).ended_by is None


def counted(job: RetainJob, store: MemoryStore, clock: ManualClock) -> dict[str, int]:
    """Return the requests of a run over every partition, by kind."""
    counting = MeteredStore(store, lambda key: "")
    log = Log(counting, clock=clock)
    image = log.refresh()
    before = counting.counters.snapshot()
    for work in with_pins(work_on(image.topics.values()), SnapshotRecords()):
        details = {**work.details, "unpublished": [], "keep_staged": False}
        retained_by(job, clock)(log, replace(work, details=details))
    found = by_kind(diff(before, counting.counters.snapshot()))
    return {kind: count.requests for kind, count in found.items()}


def test_idle_retention_costs_a_listing_and_a_get_a_partition(
    clock: ManualClock,
) -> None:
    store = MemoryStore("idle", clock)
    log = Log(store, clock=clock)
    for name in ("a", "b"):
        log.create_topic(name, 2, {"retention.ms": "-1"})
        for number in range(2):
            log.partition(name, number).append([numbered(0, 3)])
            log.partition(name, number).absorb_tail()
    clock.sleep_s(100)
    assert counted(JOB, store, clock) == {"list": 4, "get": 4}
    create_snapshot(log, "s", ["a", "b"], clock=clock)
    assert counted(JOB, store, clock) == {"list": 4, "get": 4}, "pins are not asked for"


def test_retention_removes_ten_thousand_segments_without_reading_one(clock: ManualClock) -> None:
    store = MemoryStore("many", clock)
    log = Log(store, clock=clock)
    log.create_topic("t", 1, {"retention.bytes": "10", "retention.ms": "-1"})
    layout = log.partition("t", 0).layout
    count = 10_000
    entries = tuple(
        Entry(n, n + 1, layout.chain_name(n), 10, 1, 0, 0, 0, "0" * 32) for n in range(count)
    )
    for entry in entries:
        store.put(layout.key(entry.object), b"not a segment")
    made = Manifest(1, "0" * 32, 0, count, entries)
    store.put(layout.key(layout.manifest_name(1)), encode_manifest(made, layout))
    # Ten pages of a listing of the folder, and a page or two of a look before and after the change.
    assert counted(JOB, store, clock) == {"list": 11 + 4, "get": 2, "put": 1}
    clock.sleep_s(61)
    assert counted(JOB, store, clock) == {"list": 11 + 4, "get": 1, "delete": count - 1}
    assert counted(JOB, store, clock) == {"list": 1, "get": 1}


PAST_DAYS = 3


class _Failing(DelegatingStore):
    """A folder that may end its caller at a delete of usage reports, or refuse their puts."""

    ends = False
    refuses = False

    def delete(self, key: str) -> None:
        if self.ends and key.startswith("usage/"):
            raise RuntimeError("killed")
        super().delete(key)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        if self.refuses and key.startswith("usage/"):
            raise InvalidConfig(f"access denied. object={key}")
        return super().put_if_absent(key, data)


@pytest.fixture
def folder(tmp_path: Path) -> _Failing:
    return _Failing(FileStore(str(tmp_path)))


def with_reports(store: _Failing, clock: ManualClock) -> list[str]:
    """Begin a log; return the keys of usage reports of a past day and, as the last, of today."""
    Log(store, clock=clock).create_topic("t")
    past, today = usage_day(clock.now_ms(), PAST_DAYS), usage_day(clock.now_ms())
    keys = [usage_key(day, "ab" * 16, n) for day, n in ((past, 0), (past, 1), (today, 2))]
    for key in keys:
        report = UsageReport({"sparklog get": {("get", "t"): RequestCount(5, 50)}})
        store.put(key, encode_usage(report))
    return keys


def beside(
    store: _Failing, clock: ManualClock, job: RetainJob = JOB
) -> tuple[dict[str, int], list[str]]:
    records = run(orphans.publication_records(clock.now_ms()), store)
    snapshots, wals = run(snapshot_records(), store), run(orphans.list_wals(), store)
    log = Log(store, clock=clock)
    return retained_beside(log, job, log.refresh(), records, snapshots, wals, clock)


def usage_of(store: _Failing) -> list[str]:
    return [info.key for info in store.list("usage/")]


def test_usage_reports_of_past_days_become_a_sum(folder: _Failing, clock: ManualClock) -> None:
    keys = with_reports(folder, clock)
    sizes = sum(len(folder.get(key)) for key in keys[:2])
    planned = beside(folder, clock, replace(JOB, dry_run=True))
    assert usage_of(folder) == keys
    done, problems = beside(folder, clock)
    assert (done, problems) == planned
    assert (done["deleted_objects"], done["deleted_bytes"]) == (2, sizes)
    assert not problems
    sum_key = usage_sum_key(usage_day(clock.now_ms(), PAST_DAYS))
    assert usage_of(folder) == [sum_key, keys[2]]
    summed = decode_usage(folder.get(sum_key), sum_key)
    assert summed.reports == 2
    assert summed.programs == {"sparklog get": {("get", "t"): RequestCount(10, 100)}}
    report = json.loads(retain_report(JOB, (), done, problems, 1.0).to_json())
    assert (report["summed_usage_days"], report["deleted_objects"]) == (1, 2)
    assert beside(folder, clock)[0]["summed_usage_days"] == 0


def test_run_for_a_topic_leaves_usage_reports_alone(folder: _Failing, clock: ManualClock) -> None:
    keys = with_reports(folder, clock)
    assert beside(folder, clock, replace(JOB, topics=("t",))) == ({}, [])
    assert usage_of(folder) == keys


def test_usage_reports_go_after_their_sum_also_if_killed(
    folder: _Failing, clock: ManualClock
) -> None:
    keys = with_reports(folder, clock)
    sum_key = usage_sum_key(usage_day(clock.now_ms(), PAST_DAYS))
    folder.ends = True
    with pytest.raises(RuntimeError, match="killed"):
        beside(folder, clock)
    assert sorted(usage_of(folder)) == sorted([sum_key, *keys])
    stored = folder.get(sum_key)
    folder.ends = False
    done, problems = beside(folder, clock)
    assert (done["deleted_objects"], done["summed_usage_days"], problems) == (2, 0, [])
    assert folder.get(sum_key) == stored
    assert usage_of(folder) == [sum_key, keys[2]]


def test_damaged_usage_report_is_a_problem_of_the_run(folder: _Failing, clock: ManualClock) -> None:
    keys = with_reports(folder, clock)
    folder.put(keys[0], b"{}")
    done, problems = beside(folder, clock)
    assert [keys[0] in problem and "damaged" in problem for problem in problems] == [True]
    assert done["summed_usage_days"] == 1
    assert keys[0] not in usage_of(folder)


def test_retention_without_rights_to_usage_does_the_rest(
    folder: _Failing, clock: ManualClock
) -> None:
    keys = with_reports(folder, clock)
    log = Log(folder, clock=clock)
    gone = log.create_topic("gone")
    log.delete_topic("gone")
    late = topic_folder("gone", gone.topic_id) + "0/log/00000000000000000001.arrow"
    folder.put(late, b"of a writer that had not heard of it")
    folder.refuses = True
    done, problems = beside(folder, clock)
    assert (done["deleted_objects"], list(folder.list(late))) == (1, [])
    assert done["summed_usage_days"] == 0
    assert ["access denied" in problem for problem in problems] == [True]
    assert usage_of(folder) == keys
