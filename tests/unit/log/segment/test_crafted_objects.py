"""Objects with right checksums and wrong arrays: each reader refuses them, and names the object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import DataCorrupt, InvalidRecord, InvalidRequest
from sparklog.core.types import NO_PRODUCER_ID
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.manifest import decode as decode_manifest
from sparklog.log.manifest.manifest import encode as encode_manifest
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.partition.partition_log import LogConfig
from sparklog.log.partition.whole_reader import read_whole
from sparklog.log.repair.verify import verify
from sparklog.log.schema import HEADERS, READ_TYPES
from sparklog.log.segment.builder import build_records, build_rows
from sparklog.log.segment.column_reader import fetch
from sparklog.log.segment.footer import from_metadata, to_metadata
from sparklog.log.segment.segment import ProducerBatch, Segment
from sparklog.log.tail.batch_validator import BatchRules
from sparklog.log.tail.referenced_schemas import check_piece, pieces_to_check
from sparklog.log.tail.references import open_referenced, reference_batch
from sparklog.protocol.records.header import TRANSACTIONAL_BIT
from sparklog.protocol.records.schema_check import KnownSchemas
from sparklog.store.memory import MemoryStore
from tests.harness.crafted_objects import Craft, craft, crafted_manifest, node, numbers
from tests.harness.log_records import LAYOUT, batch, open_partition

PLAIN = LogConfig(codec="none")
INT32_MAX = 2**31 - 1
ROWS = 4
RECORDS = batch(
    [b"\0\0\0\0\7one", b"\0\0\0\0\7two", b"\0\0\0\0\7", b"\0\0\0\0\7three"],
    keys=[b"a", b"b", b"c", b"d"],
    timestamps_ms=[1, 2, 3, 4],
    headers=[[("h", b"1"), ("i", None)], [], [("j", b"22")], None],
)
# The buffers of the columns: timestamp 0 and 1, key 2 to 4, value 5 to 7, headers 8 to 16.
KEY_ENDS, VALUE_ENDS, LIST_ENDS, NAME_ENDS, HEADER_ENDS = 3, 6, 9, 12, 15
NAMES_OF_OBJECTS = 5  # of a manifest's columns base, end and object
VALUES_ARRAY, LIST_ARRAY, HEADERS_ARRAY, NAMES_ARRAY = 2, 3, 4, 5

CRAFTS = (
    Craft("a value ends before it begins", numbers(VALUE_ENDS, 2, 3), "non-monotonic"),
    Craft("a value begins before the data", numbers(VALUE_ENDS, 1, -7), "non-monotonic"),
    Craft("the first value begins before the data", numbers(VALUE_ENDS, 0, -7), "[Nn]egative"),
    Craft("the last value ends behind the data", numbers(VALUE_ENDS, 4, INT32_MAX), "larger than"),
    Craft("an inner value ends behind the data", numbers(VALUE_ENDS, 2, INT32_MAX), "bounds|mono"),
    Craft("a key ends behind the data", numbers(KEY_ENDS, 4, 1 << 20), "larger than"),
    Craft("a key ends before it begins", numbers(KEY_ENDS, 1, 3, 2), "non-monotonic"),
    Craft("a list has more headers than there are", numbers(LIST_ENDS, 4, 1 << 20), "larger than"),
    Craft("a list ends before it begins", numbers(LIST_ENDS, 1, 3, 2), "non-monotonic"),
    Craft("a list begins before the first header", numbers(LIST_ENDS, 1, -1), "non-monotonic"),
    Craft("a header's name ends behind the data", numbers(NAME_ENDS, 3, 1 << 20), "larger than"),
    Craft("a header's name ends before it begins", numbers(NAME_ENDS, 1, 3, 2), "non-monotonic"),
    Craft("a header's value is behind the data", numbers(HEADER_ENDS, 3, 1 << 20), "larger than"),
    Craft("more values than offsets", node(VALUES_ARRAY, 1 << 20, 0), "too small"),
    Craft("fewer values than keys", node(VALUES_ARRAY, ROWS - 1, 0), "same length"),
    Craft("a negative number of values", node(VALUES_ARRAY, -1, 0), "[Nn]egative|length"),
    Craft("more nulls than the bitmap has", node(LIST_ARRAY, ROWS, 3), "[Nn]ull"),
    Craft("nulls without a bitmap", node(VALUES_ARRAY, ROWS, 1), "too small"),
    Craft("more headers than names", node(HEADERS_ARRAY, 1 << 20, 0), "[Ss]truct|length"),
    Craft("more names than offsets", node(NAMES_ARRAY, 1 << 20, 0), "too small"),
)
crafts = pytest.mark.parametrize("crafted", CRAFTS, ids=[one.name for one in CRAFTS])


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def spoilt(crafted: Craft) -> tuple[MemoryStore, str]:
    """Return a store with a crafted segment and a plain one, and the key of the first."""
    store = MemoryStore("crafted")
    log = open_partition(store, PLAIN)
    log.append([RECORDS])
    log.append([batch([b"newer"], keys=[b"a"])])
    return store, craft(store, LAYOUT, LAYOUT.chain_name(0), crafted.change)


def view_of(store: MemoryStore) -> PartitionView:
    return run(refresh(PartitionView(LAYOUT)), store)


def scan(store: MemoryStore, pool: ThreadPoolExecutor) -> None:
    list(open_partition(store).read(0, ROWS, tuple(READ_TYPES)))


def history(store: MemoryStore, pool: ThreadPoolExecutor) -> None:
    run(HistoryReader(LAYOUT, HistoryCache(1 << 20)).read(view_of(store), 0, 1 << 20), store)


def replay(store: MemoryStore, pool: ThreadPoolExecutor) -> None:
    run(read_whole(view_of(store), 0, ROWS, ("key", "value", "headers")), store)


def compact(store: MemoryStore, pool: ThreadPoolExecutor) -> None:
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    Compactor(store, LAYOUT, policy, Encoding("lz4"), pool).compact(force=True)


READERS = (scan, history, replay, compact)


def test_a_segment_written_anew_without_a_change_is_read(pool: ThreadPoolExecutor) -> None:
    store, _ = spoilt(Craft("nothing", lambda file, message: None, ""))
    for read in READERS:
        read(store, pool)
    assert verify(store, LAYOUT, pool, deep=True, now_ms=1 << 42).damages == ()


@crafts
@pytest.mark.parametrize("read", READERS)
def test_reader_refuses_a_crafted_array_and_names_the_object(
    crafted: Craft,
    read: Callable[[MemoryStore, ThreadPoolExecutor], None],
    pool: ThreadPoolExecutor,
) -> None:
    store, key = spoilt(crafted)
    with pytest.raises(DataCorrupt, match=crafted.reason) as refused:
        read(store, pool)
    assert f"object={key}" in str(refused.value)


@crafts
def test_verify_reports_a_crafted_array(crafted: Craft, pool: ThreadPoolExecutor) -> None:
    store, key = spoilt(crafted)
    (found,) = verify(store, LAYOUT, pool, deep=True, now_ms=1 << 42).damages
    assert (found.object, found.lost_base, found.lost_end) == (key, 0, ROWS)


@crafts
def test_leader_refuses_a_reference_to_a_crafted_array(crafted: Craft) -> None:
    store = MemoryStore("crafted")
    staged = open_partition(store, PLAIN).stage([RECORDS])
    key = craft(store, LAYOUT, staged.object, crafted.change)
    rules = BatchRules.of(
        parse_topic_configs(
            {"sparklog.schema.validation": "true", "sparklog.key.schema.validation": "true"}
        )
    )
    # The footer has checksums as text, so the crafted object may have another size.
    staged = replace(staged, size_bytes=len(store.get(key)))
    (one,) = reference_batch([staged], None).references
    (segment,) = run(open_referenced(LAYOUT, [one]), store)
    (piece,) = pieces_to_check(LAYOUT, one, segment, rules)
    fetched = run(fetch(piece), store)
    assert fetched is not None
    with pytest.raises(InvalidRecord, match=crafted.reason) as refused:
        check_piece(piece, fetched, rules, KnownSchemas.of([7], []))
    assert f"object={key}" in str(refused.value)


@pytest.mark.parametrize("offsets", [(-1, 2, 3), (0, 2, 5), (2, 2, 3), (0, 3, 3), (0, 3, 2)])
@pytest.mark.parametrize("read", [scan, history, replay])
def test_stored_offsets_must_rise_within_their_batch(
    offsets: tuple[int, ...],
    read: Callable[[MemoryStore, ThreadPoolExecutor], None],
    pool: ThreadPoolExecutor,
) -> None:
    store, name = MemoryStore("gaps"), LAYOUT.chain_name(0)
    about = Segment(LAYOUT.topic_id, LAYOUT.partition, 0, 5, 3, "a" * 32, codec="none")
    rows = batch([b"v"] * 3, timestamps_ms=[1, 2, 3])
    rows = rows.append_column("offset", pa.array([0, 2, 3], pa.int64()))
    draft = build_rows(about, ("offset", "timestamp", "value"), [rows])
    store.put(LAYOUT.key(name), draft.at(0))
    read(store, pool)
    key = craft(store, LAYOUT, name, numbers(1, 0, *offsets, kind="q"))
    with pytest.raises(DataCorrupt, match=f"a stored offset is .* object={key}"):
        read(store, pool)


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"x"}], [None]])
@pytest.mark.parametrize("read", READERS)
def test_a_header_without_a_name_is_damage_of_its_object(
    headers: list[object],
    read: Callable[[MemoryStore, ThreadPoolExecutor], None],
    pool: ThreadPoolExecutor,
) -> None:
    store, name = MemoryStore("foreign"), LAYOUT.chain_name(0)
    rows = batch([b"v"] * ROWS, keys=[b"k"] * ROWS, timestamps_ms=[1] * ROWS)
    rows = rows.append_column("headers", pa.array([headers, None, [], None], HEADERS))
    store.put(LAYOUT.key(name), build_records(LAYOUT, [rows], "a" * 32, codec="none").at(0))
    with pytest.raises(DataCorrupt, match=f"has no key.* object={LAYOUT.key(name)}"):
        read(store, pool)
    (found,) = verify(store, LAYOUT, pool, deep=True, now_ms=1 << 42).damages
    assert (found.object, found.lost_base, found.lost_end) == (LAYOUT.key(name), 0, ROWS)


def test_a_header_without_a_name_is_not_appended() -> None:
    log = open_partition(MemoryStore("ours"))
    for headers in ([{"key": None, "value": b"x"}], [None]):
        rows = pa.record_batch({"value": [b"v"], "headers": pa.array([headers], HEADERS)})
        with pytest.raises(InvalidRequest, match="has no key"):
            log.append([rows])
    hidden = pa.array([[{"key": None, "value": b"x"}], [{"key": "h", "value": None}]], HEADERS)
    log.append([pa.record_batch({"value": [b"v"], "headers": hidden.slice(1)})])
    (read,) = log.read(0, 1)
    assert read.column("headers").to_pylist() == [[{"key": "h", "value": None}]]


def test_footer_that_fits_no_batch_is_damage_of_its_object(pool: ThreadPoolExecutor) -> None:
    store, name = MemoryStore("foreign"), LAYOUT.chain_name(0)
    draft = build_records(LAYOUT, [RECORDS], "a" * 32, codec="none")
    of_none = ProducerBatch(NO_PRODUCER_ID, 0, 0, 0, ROWS, TRANSACTIONAL_BIT)
    foreign = replace(draft, segment=replace(draft.segment, producers=(of_none,)))
    store.put(LAYOUT.key(name), foreign.at(0))
    with pytest.raises(DataCorrupt, match=f"producer id.* object={LAYOUT.key(name)}"):
        history(store, pool)


def test_rows_of_an_index_must_be_those_of_the_segment() -> None:
    part = build_records(LAYOUT, [RECORDS], "a" * 32, codec="none").segment
    for rows in (-1, 3, 5, 1 << 40):
        wrong = replace(part, batches=(replace(part.batches[0], rows=rows),))
        with pytest.raises(DataCorrupt, match=r"rows.* object=crafted"):
            from_metadata(to_metadata(wrong), LAYOUT, "crafted")


def test_manifest_with_a_crafted_array_is_refused() -> None:
    entry = Entry(0, 5, LAYOUT.chain_name(0), 1, 5, 1, 1, -1, "a" * 32)
    manifest = Manifest(end_offset=5, entries=(entry,))
    data = encode_manifest(manifest, LAYOUT)
    as_it_was = crafted_manifest(data, lambda file, message: None)
    assert decode_manifest(as_it_was, LAYOUT, "crafted") == manifest
    for wrong in (1 << 30, -1):
        crafted = crafted_manifest(data, numbers(NAMES_OF_OBJECTS, 1, wrong))
        with pytest.raises(DataCorrupt, match="object=crafted"):
            decode_manifest(crafted, LAYOUT, "crafted")
