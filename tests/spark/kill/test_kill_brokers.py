"""The sink's driver at the end of a batch, without Spark: it publishes while brokers are killed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.publication import publish
from sparklog.spark.sink.leader_sink import LeaderAppends
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.writer import stage_rows
from tests.harness.waiting import eventually
from tests.spark.kill.brokers import KilledBrokers
from tests.spark.kill.points import Point, reached, write_plan

PARTITIONS = 2
BATCHES = 6
ROWS = 100


def settled(log: Log, brokers: int) -> bool:
    """Return True if all brokers serve, and none recovers a partition."""
    image = log.refresh()
    alive = [broker for broker in image.brokers.values() if broker.eligible]
    led = all(p.leader >= 0 and not p.recovering for _, p in image.partitions())
    return len(alive) == brokers and led


def test_a_batch_is_there_once_though_its_leader_was_killed_with_it(tmp_path: Path) -> None:
    """Killed with the batch durable and unanswered; killed with it flushed and not noted."""
    root, plan = str(tmp_path / "log"), tmp_path / "plan"
    taken = r"broker \d: after put wal/.*/0*[1-9]\d*\.arrow"
    flushed = r"broker \d: after put topics/t~.*/log/0*[1-9]\d*\.arrow"
    with open_log(root) as log:
        log.create_topic("t", PARTITIONS)
        write_plan(plan, [Point(taken, "itself"), Point(flushed, "itself")])
        with KilledBrokers(tmp_path, root, plan) as brokers:
            places = [log.partition("t", n) for n in range(PARTITIONS)]
            eventually(lambda: all(place.view().is_led for place in places), "brokers lead all")
            for batch in range(BATCHES):
                numbers = [b"%d" % n for n in range(batch * ROWS, (batch + 1) * ROWS)]
                rows = pa.RecordBatch.from_pydict({"key": numbers, "value": numbers})
                parts = stage_rows(log, SinkOptions("", "t"), ["key", "value"], iter([rows]))
                publish(log, "query", batch, parts, append_led=LeaderAppends(log, None))
            assert reached(plan) == 2, brokers.said()
            # A broker that is stopped while it begins hands nothing over.
            eventually(lambda: settled(log, brokers.count), "all brokers live and lead")
        assert brokers.restarts >= 2
        found: list[int] = []
        for number in range(PARTITIONS):
            place = log.partition("t", number)
            view = place.view()
            assert not view.is_led, "drained brokers hand back"
            of_one = [
                int(value)
                for batch in place.read(0, view.end_offset, ("value",), view=view)
                for value in batch.column("value").to_pylist()
            ]
            assert of_one == sorted(of_one)
            found += of_one
    assert sorted(found) == list(range(BATCHES * ROWS))
