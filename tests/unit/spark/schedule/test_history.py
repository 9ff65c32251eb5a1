"""The history of upkeep jobs: records of a topic, of which the newest of each run counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.topic import parse_topic_configs
from sparklog.spark.schedule.history import (
    DONE,
    HISTORY_CONFIGS,
    HISTORY_TOPIC,
    REPORT_BYTES_MAX,
    RUNNING,
    JobHistory,
    JobRequest,
    JobRun,
    KnownJob,
    decode,
    encode,
    key_of,
    read_history,
    write_history,
)
from sparklog.spark.schedule.run import Amounts, amounts_of

RUN = JobRun("f" * 32, "nightly", "retain", "schedule", 1000, 1010, 1010, "host:1")
JOB = KnownJob("nightly", "retain", "@daily", "UTC", ("--dry-run",), True, 5, "host:1")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log."""
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


def test_records_come_back_and_the_last_of_a_run_counts(log: Log) -> None:
    assert read_history(log) == JobHistory()
    ended = replace(RUN, outcome=DONE, exit_code=0, duration_ms=7, report={"expired_offsets": 3})
    other = replace(RUN, run_id="a" * 32, job="weekly", started_ms=2000)
    for record in (JOB, RUN, other, ended, ended):
        write_history(log, record, patience_s=0)
    history = read_history(log)
    assert history.jobs == {"nightly": JOB}
    assert history.newest_first() == [other, ended]
    assert history.newest_first("nightly") == [ended]
    assert history.last_run("weekly") == other
    assert history.last_run("never") is None
    assert other.outcome == RUNNING
    assert not other.ended


def test_history_is_read_only_from_the_given_time(log: Log) -> None:
    write_history(log, RUN, patience_s=0)
    now_ms = SYSTEM_CLOCK.now_ms()
    assert list(read_history(log, now_ms + 2 * 3_600_000).runs) == []
    assert list(read_history(log, now_ms).runs) == [RUN.run_id]


def test_the_topic_is_compacted_and_keeps_half_a_year(log: Log) -> None:
    write_history(log, RUN, patience_s=0)
    write_history(log, RUN, patience_s=0)
    topic = log.topic(HISTORY_TOPIC)
    assert topic.configs == HISTORY_CONFIGS
    settings = parse_topic_configs(topic.configs)
    assert settings["cleanup.policy"] == ("compact", "delete")
    assert topic.partitions == 1


def test_foreign_records_are_left_out(log: Log) -> None:
    write_history(log, RUN, patience_s=0)
    strange = [(b"run/x", b"{"), (b"run/x", encode(RUN)), (b"run/x", b"[]"), (b"other", b"{}"),
               (b"run/y", b'{"run_id": "y"}')]  # fmt: skip
    keys, values = zip(*strange, strict=True)
    rows = pa.RecordBatch.from_pydict({"key": list(keys), "value": list(values)})
    log.partition(HISTORY_TOPIC, 0).append([rows])
    assert list(read_history(log).runs) == [RUN.run_id]
    assert decode(key_of(RUN), None) is None
    assert decode(None, encode(RUN)) is None


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (b"run/5", {"run_id": 5}),
        (b"run/x", {"run_id": ["x"]}),
        (key_of(RUN), {"job": ["nightly"]}),
        (key_of(RUN), {"job": None}),
        (key_of(RUN), {"started_ms": "yesterday"}),
        (key_of(RUN), {"started_ms": None}),
        (key_of(RUN), {"started_ms": -1}),
        (key_of(RUN), {"heard_ms": 1 << 70}),
        (key_of(RUN), {"duration_ms": "long"}),
        (key_of(RUN), {"message": "\ud800"}),
        (key_of(RUN), {"report": {"deep": ["\ud800"]}}),
        (key_of(RUN), {"report": [1]}),
        (b"run/\xff", {"run_id": "\udcff"}),
        (b"ask/x", {"request_id": {}, "job": "nightly", "asker": "", "asked_ms": 1}),
        (b"ask/x", {"request_id": "x", "job": [], "asker": "", "asked_ms": 1}),
        (key_of(JOB), {"cron": 5}),
        (key_of(JOB), {"arguments": "--dry-run"}),
        (key_of(JOB), {"arguments": [5]}),
    ],
)
def test_a_record_with_an_odd_field_is_none_of_ours(key: bytes, fields: dict[str, Any]) -> None:
    good = {} if key.startswith(b"ask/") else json.loads(encode(JOB if key[:1] == b"j" else RUN))
    odd = json.dumps({**good, **fields}).encode()
    assert decode(key, odd) is None
    history = JobHistory()
    history.take([(key_of(RUN), encode(RUN)), (key, odd), (key_of(JOB), encode(JOB))])
    assert (history.newest_first(), history.jobs) == ([RUN], {"nightly": JOB})


def test_run_with_a_message_that_is_no_text_is_kept() -> None:
    ended = replace(RUN, outcome=DONE, message="no file f\xfcr /\udcff")
    assert decode(key_of(RUN), encode(ended)) == replace(ended, message="no file f\xfcr /?")


def test_a_record_of_boundless_depth_is_none_of_ours() -> None:
    deep = b'{"run_id":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert decode(b"run/x", deep) is None


def test_a_field_of_a_later_version_does_no_harm() -> None:
    for one in (RUN, JOB, JobRequest("x", "nightly", "host:1", 5, "host:2")):
        document = {**json.loads(encode(one)), "cost": 3}
        assert decode(key_of(one), json.dumps(document).encode()) == one


def test_a_long_report_leaves_its_partitions_out() -> None:
    partitions = [{"topic": "t", "partition": number} for number in range(20_000)]
    long = replace(RUN, report={"expired_offsets": 3, "partitions": partitions})
    data = encode(long)
    assert len(data) < REPORT_BYTES_MAX
    assert decode(key_of(long), data) == replace(RUN, report={"expired_offsets": 3})


def test_amounts_are_found_in_every_kind_of_report() -> None:
    works = {"rows_before": 5, "rows_after": 2, "bytes_before": 50, "bytes_after": 20}
    merged = {"rows_before": 1, "rows_after": 1, "bytes_before": 10, "bytes_after": 9}
    assert amounts_of({"compacted": works, "merged": merged}) == Amounts(6, 3, 60, 29)
    assert amounts_of({"rows": 4, "size_bytes": 40}) == Amounts(4, 4, 40, 40)
    assert amounts_of({"rows": 4, "bytes": 40}) == Amounts(4, 4, 40, 40)
    own = {"records_before": 9, "records_after": 7, "bytes_before": 90, "bytes_after": 70}
    assert amounts_of(own) == Amounts(9, 7, 90, 70)
    assert amounts_of({"expired_offsets": 3, "rows": None, "records_before": True}) == Amounts()
