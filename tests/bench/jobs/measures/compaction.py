"""Compacting one partition, beside Kafka's cleaner, and whether both keep the same records."""

from __future__ import annotations

import numpy as np

from sparklog.cluster.log import open_log
from tests.bench.common.command import Run
from tests.bench.common.results import Measure
from tests.bench.common.rounds import turns
from tests.bench.common.targets import RateTimesPeer
from tests.bench.jobs.cleaner import SETTINGS, Kept, clean_by_kafka, kept_by_kafka, record_hash
from tests.bench.jobs.job_process import run_job_process
from tests.bench.jobs.keyed_rows import TOPIC, fill
from tests.bench.jobs.plan import JobsPlan, KeyedShape
from tests.peers.kafka import KafkaCluster

GROUP = "compaction, records per second"
TIMES_KAFKA = 3.0


def measure_compaction(run: Run[JobsPlan]) -> None:
    """Compact the same records on both sides, in turns; each round begins with a new topic."""
    shape = run.plan.compacted
    sides = [name for name in ("sparklog", "kafka") if name in run.systems]
    kept: dict[str, Kept] = {}
    with KafkaCluster(1, SETTINGS, parent_folder=run.work) as kafka:
        for number, side in turns(sides, run.plan.rounds):
            if side == "kafka":
                kept[side] = _by_kafka(run, kafka, shape, number)
            else:
                kept[side] = _by_sparklog(run, shape, number)
    if len(kept) == 2:
        _check_same(run, kept["sparklog"], kept["kafka"])


def _by_kafka(run: Run[JobsPlan], kafka: KafkaCluster, shape: KeyedShape, number: int) -> Kept:
    topic = f"{TOPIC}-{number}"
    done = clean_by_kafka(kafka, topic, shape)
    run.results.check_equal(f"kafka cleaned all of {topic}", done.end_offset, shape.records)
    _add(run, "in the task, or the cleaner's thread", "kafka", shape.records / done.seconds, number)
    _add(run, "as a job, without Spark's start", "kafka", shape.records / done.seconds, number)
    return kept_by_kafka(kafka, topic, shape.records)


def _by_sparklog(run: Run[JobsPlan], shape: KeyedShape, number: int) -> Kept:
    folder = run.work / f"compacted-{number}"
    root = (folder / "log").as_uri()
    fill(root, shape)
    done = run_job_process("compact", folder, "--root", root, "--topic", TOPIC, "--force")
    [partition] = done.report["partitions"]
    rows, seconds = done.report["compacted"]["rows_before"], done.report["seconds"]
    run.results.check_equal("sparklog compacted all", rows, shape.records)
    _add(
        run, "in the task, or the cleaner's thread", "sparklog", rows / partition["seconds"], number
    )
    _add(run, "as a job, without Spark's start", "sparklog", rows / seconds, number)
    _add(run, "as a job, from its process's start", "sparklog", rows / done.seconds, number)
    return _kept(root)


def _add(run: Run[JobsPlan], how: str, system: str, value: float, number: int) -> None:
    targets = (RateTimesPeer("kafka", TIMES_KAFKA),) if "process" not in how else ()
    shape = run.plan.compacted
    size = f"{shape.records / 1e6:g} M records of {shape.keys / 1e6:g} M keys"
    measure = Measure(f"compact {size}, {how}", "records/s", targets, GROUP)
    run.results.add(measure, system, value, number)


def _kept(root: str) -> Kept:
    offsets: list[int] = []
    hashes: list[int] = []
    with open_log(root) as log:
        partition = log.partition(TOPIC, 0)
        view = partition.view()
        columns = ("offset", "key", "value")
        for batch in partition.read(view.log_start_offset, view.end_offset, columns):
            found = [batch.column(name).to_pylist() for name in columns]
            offsets += found[0]
            hashes += map(record_hash, found[1], found[2])
    return Kept(np.array(offsets, np.int64), np.array(hashes, np.int64))


def _check_same(run: Run[JobsPlan], ours: Kept, theirs: Kept) -> None:
    told = f"sparklog {len(ours.offsets):,} records, kafka {len(theirs.offsets):,}"
    same = np.array_equal(ours.offsets, theirs.offsets)
    run.results.check("the same offsets are kept as Kafka keeps", same, told)
    same = same and np.array_equal(ours.hashes, theirs.hashes)
    run.results.check("the same keys and values are kept as Kafka keeps", same, told)
