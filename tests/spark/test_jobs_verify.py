"""Job verify.py: all partitions in tasks, a report of damage with the lost records, exit code 1."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import cast

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.verify import parse_verify, verify
from tests.harness.log_records import numbered

MakeLog = Callable[..., Log]


def test_damaged_partition_is_reported_and_the_others_are_whole(
    spark: SparkSession, log_root: str, make_log: MakeLog
) -> None:
    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    log = make_log(t=3)
    for number in range(3):
        log.partition("t", number).append([numbered(0, 4)])
    job = parse_verify(["--root", log_root])
    whole = verify(job, session, JobProgress(io.StringIO()))
    assert (whole.ended_by, whole.totals["damages"]) == (None, 0)
    assert len(whole.answers) == 4, "the registry, too"
    layout = log.partition("t", 1).layout
    key = layout.key(layout.chain_name(0))
    data = bytearray(log.store.get(key))
    data[data.index(b"value-0")] ^= 0xFF
    log.store.put(key, bytes(data))
    report = verify(job, session, JobProgress(io.StringIO()))
    assert report.ended_by == 1
    assert "t-1: offsets 0 to 4 lost" in report.to_text()
    assert key in report.to_text()
    told = json.loads(report.to_json())
    assert (told["damages"], told["lost_offsets"], told["failed"]) == (1, 4, 1)
    quick = verify(
        parse_verify(["--root", log_root, "--quick"]), session, JobProgress(io.StringIO())
    )
    assert quick.totals["damages"] == 0

    log.partition("t", 2).absorb_tail()
    manifest = log.partition("t", 2).layout
    log.store.put(manifest.key(manifest.manifest_name(1)), b"damaged")
    repairing = parse_verify(["--root", log_root, "--repair"])
    repaired = verify(repairing, session, JobProgress(io.StringIO()))
    assert (repaired.totals["mended"], repaired.ended_by) == (1, 1), "records of t-1 are lost"
    words = ["--root", log_root, "--drop-damaged", "t:1:0-4"]
    planned = verify(parse_verify([*words, "--dry-run"]), session, JobProgress(io.StringIO()))
    assert (planned.totals["mended"], planned.ended_by) == (1, 1)
    dropped = verify(parse_verify(words), session, JobProgress(io.StringIO()))
    assert (dropped.totals["mended"], dropped.ended_by) == (1, 3)
    assert "offsets 0 to 4 given up" in dropped.to_text()
    assert log.partition("t", 1).append([numbered(0, 1)]).base_offset == 4
    again = verify(parse_verify(words), session, JobProgress(io.StringIO()))
    assert "nothing is damaged there" in again.to_text()


class _WithoutContext:
    """A session as Spark Connect's: it has tables, and no context."""

    def __init__(self, spark: SparkSession) -> None:
        self.range = spark.range

    @property
    def sparkContext(self) -> object:  # noqa: N802 - Spark's name
        raise PySparkAttributeError("not supported in Spark Connect")


def test_tasks_run_in_a_session_that_has_no_context(
    spark: SparkSession, log_root: str, make_log: MakeLog
) -> None:
    log = make_log(t=20)
    log.partition("t", 7).append([numbered(0, 4)])
    job = parse_verify(["--root", log_root])
    without = cast("SparkSession", _WithoutContext(spark))
    report = verify(job, lambda _: without, JobProgress(io.StringIO()))
    assert (report.ended_by, report.totals["damages"]) == (None, 0)
    places = [(one.topic, one.partition) for one in report.answers]
    assert [place for place in places if place[0] == "t"] == [("t", number) for number in range(20)]
