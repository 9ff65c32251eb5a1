"""Verification's command line and its work on a partition; tests/spark runs it in tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import PartitionState
from sparklog.cluster.named_snapshots import create_snapshot, drop_snapshot
from sparklog.core.errors import InvalidRequest
from sparklog.log.effects import run
from sparklog.log.layout import WalLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, encode
from sparklog.log.wal.sealing import seal
from sparklog.spark.jobs import verify
from sparklog.spark.jobs.partition_tasks import PartitionAnswer
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.verify import (
    DamagedRange,
    VerifyJob,
    parse_verify,
    verified_by,
    verify_report,
)
from sparklog.spark.jobs.verify_wals import with_stakes
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import numbered
from tests.harness.wire_batches import produced

ROOT = ("--root", "memory://x")


def parsed(*words: str) -> VerifyJob:
    return parse_verify([*ROOT, *words])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--repair", "--drop-damaged", "t:0:1-2"), "not allowed with"),
        (("--drop-damaged", "t:0:2-1"), "TOPIC:PARTITION:BASE-END"),
        (("--drop-damaged", "t:0"), "TOPIC:PARTITION:BASE-END"),
        (("--drop-damaged", "t:0:1-2", "--topic", "t"), "leave out --topic"),
        (("--drop-damaged", "t:0:1-2", "--quick"), "leave out --quick"),
        (("--drop-damaged", "__cluster_metadata:0:1-2"), "copy of the bucket"),
    ],
)
def test_wrong_call_is_reported(
    words: Sequence[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed(*words)
    assert stop.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_call_is_understood() -> None:
    job = parsed("--drop-damaged", "a.b-c:0:1-20", "--drop-damaged", "a.b-c:12:0-1", "--dry-run")
    assert job.drops == (DamagedRange("a.b-c", 0, 1, 20), DamagedRange("a.b-c", 12, 0, 1))
    assert job.changes
    assert not parsed("--dry-run").changes


def run_job(log: Log, *words: str) -> UpkeepReport:
    """Do what the job does, without Spark's tasks."""
    job = parsed(*words)
    works, problems, damaged = verify._works(job, log)
    answers = []
    for work in works:
        try:
            answer = PartitionAnswer(work.topic, work.partition, verified_by(job)(log, work))
        except InvalidRequest as error:
            answer = PartitionAnswer(work.topic, work.partition, {}, str(error))
        answers.append(verify._judged(answer))
    return verify_report(job, with_stakes(answers, damaged), 1.0, problems)


@pytest.fixture
def log() -> Log:
    opened = Log(MemoryStore("verify job"))
    opened.create_topic("t", 2)
    for number in range(2):
        opened.partition("t", number).append([numbered(0, 4)])
        opened.partition("t", number).append([numbered(4, 4)])
    return opened


def test_exit_codes_differ_for_repaired_given_up_and_left_damage(log: Log) -> None:
    assert run_job(log).ended_by is None
    registry = log._metadata.layout
    hint = registry.key(registry.snapshot_name(3))
    log.store.put(hint, b"damaged")
    assert run_job(log).ended_by == 1
    assert run_job(log, "--repair", "--dry-run").ended_by == 1
    repaired = run_job(log, "--repair")
    assert (repaired.ended_by, repaired.totals["mended"]) == (3, 1)
    assert run_job(log).ended_by is None

    layout = log.partition("t", 1).layout
    log.store.put(layout.key(layout.chain_name(4)), b"damaged")
    left = run_job(log, "--repair")
    assert (left.ended_by, left.totals["mended"]) == (1, 0)
    assert "t-1: offsets from 4 on lost" in left.to_text()
    drop = ("--drop-damaged", "t:1:4-8")
    assert run_job(log, *drop, "--dry-run").ended_by == 1
    given_up = run_job(log, *drop)
    assert given_up.ended_by == 3
    assert "offsets 4 to 8 given up" in given_up.to_text()
    assert log.partition("t", 1).append([numbered(0, 1)]).base_offset == 8
    assert "nothing is damaged there" in run_job(log, *drop).to_text()
    with pytest.raises(InvalidRequest, match="does not have"):
        run_job(log, "--drop-damaged", "t:7:4-8")


def test_a_registry_that_cannot_be_read_is_looked_at_alone(log: Log) -> None:
    registry = log._metadata.layout
    log.store.put(registry.key(registry.chain_name(0)), b"damaged")
    fresh = Log(log.store)
    report = run_job(fresh)
    assert report.ended_by == 1
    assert [a.topic for a in report.answers] == ["__cluster_metadata"]
    assert "only the registry was looked at" in report.to_text()


def test_snapshots_of_deleted_topics_are_verified_too(log: Log) -> None:
    snapshot = create_snapshot(log, "s", ["t"])
    whole = run_job(log)
    assert (whole.ended_by, len(whole.answers)) == (None, 3)
    log.delete_topic("t")
    whole = run_job(log)
    assert (whole.ended_by, len(whole.answers)) == (None, 3)
    layout = snapshot.partitions[1].layout
    log.store.delete(layout.key(layout.chain_name(4)))
    missing = run_job(log)
    assert missing.ended_by == 1
    assert "a snapshot misses offsets 4 to 8" in missing.to_text()
    log.store.delete(layout.key(layout.pin_name(snapshot.partitions[1].pin)))
    assert "a pin that a snapshot names is missing" in run_job(log).to_text()
    drop_snapshot(log.store, "s")
    log.store.put("snapshots/bad.json", b"{}")
    told = run_job(log)
    assert (told.ended_by, len(told.answers)) == (None, 1)
    assert "a snapshot is damaged; drop it" in told.to_text()


def test_root_without_a_log_is_not_reported_as_sound() -> None:
    with pytest.raises(InvalidRequest, match="no log under this root"):
        run_job(Log(MemoryStore("no log")))


WAL = WalLayout(1, "a" * 32)


def led_with_a_lost_window(log: Log) -> None:
    """Leave a log whose second window is gone: it had offsets 10 and 11 of t-0."""
    topic = log.topic("t")

    def batch(base_offset: int) -> WalBatch:
        made = produced([1_000] * 2, base_offset=base_offset, leader_epoch=1)
        return WalBatch(topic.topic_id, 0, base_offset, 1, bytes(made.data))

    windows = {0: [], 1: [batch(8)], 3: [batch(12)]}
    for sequence, batches in windows.items():
        kind = WalKind.WINDOW if sequence else WalKind.REGISTRATION
        header = WalHeader(kind, sequence, 0, "1" * 32, acknowledged=sequence - 1)
        log.store.put_if_absent(WAL.key(sequence), encode(WAL, header, batches))
    for layout in topic.layouts():
        view = run(refresh(PartitionView(layout)), log.store)
        run(take_leadership(view, 1, "2" * 32), log.store)
    run(seal(WAL, "3" * 32), log.store)
    name = WAL.folder.removeprefix("wal/").rstrip("/")
    state = PartitionState((1,), (1,), 1, 2, recovering=True, wals=(name,))
    log._decide(lambda _: [state.record(topic.topic_id, 0)])


def test_lost_window_is_named_and_given_up_with_its_offsets(log: Log) -> None:
    led_with_a_lost_window(log)
    report = run_job(log, "--topic", "t")
    (failed,) = report.failures
    assert (failed.topic, failed.partition) == ("t", 0)
    assert "offsets 10 to 12 are lost; they were acknowledged" in failed.error
    assert f"--drop-damaged t:0:10-12 object={WAL.key(2)} problem=it is missing" in failed.error
    planned = run_job(log, "--drop-damaged", "t:0:10-12", "--dry-run")
    assert planned.failures == []
    assert len(run_job(log, "--topic", "t").failures) == 1
    assert run_job(log, "--drop-damaged", "t:0:10-12").failures == []
    assert run_job(log, "--topic", "t").failures == []
    view = log.partition("t", 0).view()
    assert [(e.base_offset, e.end_offset, e.rows) for e in view.entries] == [
        (0, 4, 4),
        (4, 8, 4),
        (8, 10, 2),
        (10, 12, 0),
        (12, 14, 2),
    ]
