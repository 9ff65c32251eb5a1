"""Finding a key gives what reading everything and comparing gives, on any log, cheaper."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from sparklog.core.config.topic import parse_topic_configs
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.partition.partition_log import DEFAULT_COLUMNS, LogConfig, PartitionLog
from sparklog.log.schema import read_schema
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch

KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 70]) | st.binary(max_size=3)
APPENDS = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=8),
        st.booleans(),
        st.sampled_from(["append", "stage"]),
    ),
    min_size=1,
    max_size=6,
)
POLICY = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))


@settings(max_examples=60, deadline=None)
@given(
    appends=APPENDS,
    key=KEYS.filter(lambda key: key is not None),
    start=st.floats(0, 1),
    job=st.sampled_from(["", "compact", "merge"]),
    indexes=st.booleans(),
)
def test_finding_is_reading_and_comparing(
    appends: list[tuple[list[tuple[bytes | None, bytes | None]], bool, str]],
    key: bytes,
    start: float,
    job: str,
    indexes: bool,
) -> None:
    store = MemoryStore("find")
    for records, indexed, how in appends:
        log = PartitionLog(store, LAYOUT, LogConfig(indexes_keys=indexed))
        rows = batch([value for _, value in records], keys=[key for key, _ in records])
        if how == "append":
            log.append([rows])
        else:
            log.append_staged([log.stage([rows])])
    log = PartitionLog(store, LAYOUT)
    log.delete_records(int(start * log.view().end_offset))
    with ThreadPoolExecutor(2) as pool:
        compactor = Compactor(store, LAYOUT, POLICY, Encoding("lz4", None, indexes), pool)
        if job == "compact":
            compactor.compact(force=True)
        elif job:
            compactor.merge()
    view = log.view()
    everything = pa.Table.from_batches(
        log.read(view.log_start_offset, view.end_offset, view=view), read_schema(DEFAULT_COLUMNS)
    )
    expected = [row for row in everything.to_pylist() if row["key"] == key]
    found = log.find(key)
    assert [row for part in found.records for row in part.to_pylist()] == expected
    assert found.rows == len(expected)
    newest = log.find(key, ("offset", "value"), newest_only=True)
    assert [row for part in newest.records for row in part.to_pylist()] == [
        {"offset": row["offset"], "value": row["value"]} for row in expected[-1:]
    ]
    assert 0 <= newest.searched <= newest.segments <= found.segments
