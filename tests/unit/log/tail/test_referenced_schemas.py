"""The schemas of records in staged objects: which object a leader takes, which record it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import InvalidRecord, UnknownSchema
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.column_reader import fetch
from sparklog.log.segment.segment import Reference, Segment, UnreadBatch
from sparklog.log.tail import referenced_schemas
from sparklog.log.tail.batch_validator import BatchRules
from sparklog.log.tail.referenced_schemas import check_piece, pieces_to_check, unfolded_bytes
from sparklog.log.tail.references import open_referenced, reference_batch
from sparklog.protocol.records.schema_check import KnownSchemas
from sparklog.store.memory import MemoryStore

KNOWN = KnownSchemas.of([7], [])
GOOD = b"\0\0\0\0\7x"
LAYOUT = PartitionLayout("t", "T" * 22, 0)
VALUES = BatchRules.of(parse_topic_configs({"sparklog.schema.validation": "true"}))
KEYS = BatchRules.of(parse_topic_configs({"sparklog.key.schema.validation": "true"}))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Staged:
    """Objects in a store, checked as the parts of one batch."""

    def __init__(self, *objects: dict[str, pa.Array]) -> None:
        self.store = MemoryStore("staged")
        log = PartitionLog(self.store, LAYOUT)
        staged = [log.stage([pa.record_batch(columns)]) for columns in objects]
        self.references = reference_batch(staged, None).references
        self.segments = run(open_referenced(LAYOUT, self.references), self.store)

    def check(self, rules: BatchRules = VALUES) -> int:
        """Check all objects; returns how many pieces were read."""
        pieces = 0
        for one, segment in zip(self.references, self.segments, strict=True):
            pieces += checked(self.store, one, segment, rules)
        return pieces


def checked(store: MemoryStore, one: Reference, segment: Segment, rules: BatchRules) -> int:
    found = list(pieces_to_check(LAYOUT, one, segment, rules))
    for piece in found:
        fetched = run(fetch(piece), store)
        assert fetched is not None
        assert unfolded_bytes(piece) >= sum(len(data) for _, data in fetched)
        check_piece(piece, fetched, rules, KNOWN)
    return len(found)


def binary(values: Sequence[bytes | None]) -> dict[str, pa.Array]:
    return {"value": pa.array(values, pa.binary())}


def test_first_record_at_fault_is_named_by_its_place_in_the_batch() -> None:
    many: list[bytes | None] = [GOOD] * 40_000
    many[33] = None
    assert Staged(binary(many), binary([GOOD])).check() == 2
    bare = [*many[:33_333], b"bare", *many[33_334:]]
    with pytest.raises(InvalidRecord, match=r"first_refused=73333: .*no id .*=33333") as refused:
        Staged(binary(many), binary(bare)).check()
    assert type(refused.value) is InvalidRecord
    assert [one.batch_index for one in refused.value.record_errors] == [73_333]
    with pytest.raises(UnknownSchema, match=r"first_refused=1: .* first_unknown_schema='id 8'"):
        Staged(binary([GOOD, b"\0\0\0\0\x08x"])).check()


def test_schema_in_a_header_counts_and_so_does_that_of_a_key() -> None:
    named = pa.array([[{"key": "__value_schema_id", "value": GOOD[:5]}], None], HEADERS)
    Staged({**binary([b"bare", GOOD]), "headers": named}).check()
    with pytest.raises(InvalidRecord, match="first_refused=1: the value carries no id"):
        Staged({**binary([b"bare", b"bare"]), "headers": named}).check()
    keyed = {"key": pa.array([GOOD, None, b"bare"], pa.binary()), **binary([b"bare"] * 3)}
    with pytest.raises(InvalidRecord, match="first_refused=2: the key carries no id"):
        Staged(keyed).check(KEYS)


def test_objects_without_the_column_are_not_read() -> None:
    assert Staged(binary([b"bare"])).check(KEYS) == 0


def test_objects_that_could_hide_records_are_refused() -> None:
    staged = Staged(binary([GOOD, GOOD]))
    (one,), (segment,) = staged.references, staged.segments
    (index,) = segment.batches
    hiding = (
        replace(segment, unread=(UnreadBatch(0, 2, b"batch"),)),
        replace(segment, column_names=("offset", *segment.column_names)),
        replace(segment, batches=(replace(index, end=0),)),
        replace(segment, batches=()),
        replace(segment, batches=(index, index)),
    )
    for other in hiding:
        with pytest.raises(InvalidRecord, match="not all records of an object can be checked"):
            checked(staged.store, one, other, VALUES)


def test_object_with_too_large_a_record_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(VALUES, decompressed_bytes_max=1)
    large = [GOOD + b"x" * 1000]
    Staged(binary(large)).check(small)
    monkeypatch.setattr(referenced_schemas, "PIECE_BYTES", 1000)
    Staged(binary(large)).check()
    with pytest.raises(InvalidRecord, match=r"larger than a produced batch may be"):
        Staged(binary(large)).check(small)


def test_damaged_object_is_refused_as_an_invalid_record() -> None:
    staged = Staged(binary([GOOD, GOOD]))
    (piece,) = pieces_to_check(LAYOUT, staged.references[0], staged.segments[0], VALUES)
    fetched = run(fetch(piece), staged.store)
    assert fetched is not None
    damaged = [(at, data[:-1] + bytes([data[-1] ^ 1])) for at, data in fetched]
    with pytest.raises(InvalidRecord, match="checksum"):
        check_piece(piece, damaged, VALUES, KNOWN)
    staged.store.delete(LAYOUT.key(staged.references[0].object))
    assert run(fetch(piece), staged.store) is None
