"""Reference batches: a round trip, and for any bytes a result or one kind of error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.core.errors import CorruptMessage, DataCorrupt, InvalidRecord, InvalidRequest
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.footer import reference_document
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference
from sparklog.log.tail.batch_validator import BatchRules, check_batch, check_replicated
from sparklog.log.tail.references import (
    OBJECTS_MAX,
    TEXT_BYTES_MAX,
    PendingReferences,
    ReferenceBatch,
    check_references,
    decode_references,
    encode_references,
    reference_batch,
)
from sparklog.log.tail.tail import Tail
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    REFERENCE_BIT,
    BatchHeader,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import BatchSettings, Codec, encode
from sparklog.store.memory import MemoryStore

LAYOUT = PartitionLayout("t", "A" * 22, 0)
RULES = BatchRules(max_message_bytes=1 << 20)
NONCES = st.text("0123456789abcdef", min_size=32, max_size=32)
STAMPS = st.integers(-(1 << 46), 1 << 40)


@st.composite
def references(draw: st.DrawFn) -> list[Reference]:
    found = []
    for nonce in draw(st.lists(NONCES, min_size=1, max_size=6, unique=True)):
        rows = draw(st.integers(1, 1 << 24))
        low, high = sorted((draw(STAMPS), draw(STAMPS)))
        name = LAYOUT.staged_name(nonce)
        size_bytes = draw(st.integers(1, 1 << 40))
        found.append(Reference(name, 0, rows, rows, size_bytes, nonce, low, high))
    return found


COMMITS = st.none() | st.builds(
    CommitStamp,
    st.builds(
        CommitKey, st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True), st.integers(0, 99)
    ),
    STAMPS,
)
BATCHES = st.builds(reference_batch, references(), COMMITS)


@given(batch=BATCHES)
def test_reference_batch_is_read_as_written(batch: ReferenceBatch) -> None:
    data = encode_references(batch)
    header = parse_header(data)
    assert header.is_reference
    assert header.end_offset == batch.count
    assert decode_references(data) == batch
    assert check_batch(data, RULES, now_ms=1 << 41).header == header
    (copied,) = check_replicated(data)
    assert copied.header == header


@given(batch=BATCHES, base=st.integers(0, 1 << 40), epoch=st.integers(1, 99))
def test_a_flush_makes_a_segment_that_points_where_the_batch_does(
    batch: ReferenceBatch, base: int, epoch: int
) -> None:
    tail = Tail(base)
    plain = encode(pa.record_batch({"value": pa.array([b"x", b"y"])}), base_offset=0)
    for data in (plain, encode_references(batch), plain):
        tail.append_as_leader(check_batch(data, RULES, now_ms=1 << 41), epoch)
    assert tail.first_reference == base + 2
    batches = tail.batches(base, tail.end_offset)
    before = build_flush(LAYOUT, batches, "a" * 32, codec="none")
    assert (before.batches, before.end_offset) == (1, base + 2)
    draft = build_flush(LAYOUT, batches[1:], "b" * 32, codec="none")
    segment = draft.segment
    assert (draft.batches, draft.base_offset, draft.end_offset) == (
        *(1, base + 2),
        base + 2 + batch.count,
    )
    assert (segment.kind, segment.led, segment.leader_epoch) == ("reference", True, epoch)
    assert (segment.references, segment.commit) == (batch.references, batch.commit)
    tail.trim(base + 2)
    assert tail.first_reference == base + 2
    tail.trim(draft.end_offset)
    assert tail.first_reference is None


@settings(max_examples=200)
@given(data=st.data(), batch=BATCHES)
def test_any_change_of_bytes_is_refused(data: st.DataObject, batch: ReferenceBatch) -> None:
    whole = bytearray(encode_references(batch))
    at = data.draw(st.integers(21, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptMessage, InvalidRecord)):
        check_batch(bytes(whole), RULES, now_ms=1 << 41)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=200)
@given(
    value=st.binary(max_size=60) | JSON.map(lambda x: json.dumps(x).encode()),
    count=st.integers(1, 9),
)
def test_other_bytes_with_the_reference_bit_are_rejected(value: bytes, count: int) -> None:
    with pytest.raises(InvalidRecord):
        check_batch(with_bit(value, count), RULES, now_ms=0)


@given(batch=BATCHES, change=st.data())
def test_document_that_contradicts_its_header_is_rejected(
    batch: ReferenceBatch, change: st.DataObject
) -> None:
    documents: list[dict[str, Any]] = [reference_document(one) for one in batch.references]
    one = change.draw(st.sampled_from(documents))
    field, value = change.draw(
        st.sampled_from(
            [
                ("rows", one["rows"] + 1),
                ("rows", -1),
                ("base", one["base"] + 1),
                ("end", one["end"] - 1),
                ("object", "log/00000000000000000000.arrow"),
                ("object", "../staged/" + "a" * 32 + ".arrow"),
                (
                    "object",
                    "staged/" + ("0" * 32 if one["nonce"] != "0" * 32 else "1" * 32) + ".arrow",
                ),
                ("nonce", "x"),
                ("max_timestamp", 1 << 41),
            ]
        )
    )
    one[field] = value
    text = json.dumps({"format": 1, "commit": None, "references": documents}).encode()
    with pytest.raises(InvalidRecord):
        check_batch(with_bit(text, batch.count), RULES, now_ms=1 << 41)


def with_bit(value: bytes, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """Return a batch of one record that says it is a reference batch."""
    row = pa.record_batch({"value": pa.array([value], pa.binary())})
    data = encode(row, BatchSettings(codec=codec), base_offset=0, last_offset=count - 1)
    header: BatchHeader = parse_header(data)
    changed = header._replace(attributes=header.attributes | REFERENCE_BIT, **fields)
    return seal_header(changed, data[HEADER_BYTES:]) + data[HEADER_BYTES:]


def test_producers_and_transactions_have_no_reference_batches() -> None:
    batch = reference_batch([staged(PartitionLog(MemoryStore("x"), LAYOUT), 2)], None)
    data = encode_references(batch)
    header = parse_header(data)
    for changed in (
        header._replace(producer_id=1, producer_epoch=0, base_sequence=0),
        header._replace(attributes=header.attributes | 0x20),
        header._replace(attributes=header.attributes | 0x10, producer_id=1),
        header._replace(attributes=header.attributes | 0x08),
        header._replace(base_offset=1),
    ):
        with pytest.raises(InvalidRecord):
            check_batch(seal_header(changed, data[HEADER_BYTES:]) + data[HEADER_BYTES:], RULES, 0)
    many = [replace(batch.references[0], nonce=f"{n:032x}") for n in range(OBJECTS_MAX + 1)]
    for wrong in (ReferenceBatch(()), reference_batch(many, None)):
        with pytest.raises(InvalidRequest, match="1 to 2,147,483,647"):
            encode_references(wrong)


def staged(log: PartitionLog, rows: int) -> Reference:
    return log.stage([pa.record_batch({"value": pa.array([b"v"] * rows)})])


def test_batch_is_rejected_unless_its_objects_match() -> None:
    store = MemoryStore("objects")
    log = PartitionLog(store, LAYOUT)
    other = PartitionLog(store, PartitionLayout("t", "A" * 22, 1))
    good = [staged(log, 2), staged(log, 3)]
    run(check_references(LAYOUT, reference_batch(good, None)), store)
    foreign = staged(other, 2)
    store.put_if_absent(LAYOUT.key(foreign.object), store.get(other.layout.key(foreign.object)))
    missing = replace(good[0], object=LAYOUT.staged_name("f" * 32), nonce="f" * 32)
    for wrong in (
        missing,
        foreign,
        replace(good[0], size_bytes=good[0].size_bytes + 1),
        replace(good[0], min_timestamp_ms=0),
        replace(good[0], rows=3, end=3),
    ):
        with pytest.raises(InvalidRecord):
            run(check_references(LAYOUT, reference_batch([good[1], wrong], None)), store)


def test_appended_commit_key_is_known_in_the_tail_and_the_log() -> None:
    store = MemoryStore("taken")
    log = PartitionLog(store, LAYOUT)
    pending = PendingReferences()
    view = run(take_leadership(PartitionView(LAYOUT), 1, "a" * 32), store)
    keyed = reference_batch([staged(log, 2)], CommitStamp(CommitKey("q", 5), 1))
    plain = reference_batch([staged(log, 3)], None)
    tail = Tail(view.end_offset)
    for batch in (keyed, plain):
        assert pending.find(batch, view) is None
        pending.took(batch, tail.end_offset)
        tail.append_as_leader(check_batch(encode_references(batch), RULES, 1 << 60), 1)
    older = reference_batch([staged(log, 1)], CommitStamp(CommitKey("q", 4), 1))
    newer = reference_batch([staged(log, 1)], CommitStamp(CommitKey("q", 6), 1))

    def check() -> None:
        assert pending.find(keyed, view) == (0, 2)
        assert pending.find(older, view) == (0, 2)
        assert pending.find(newer, view) is None
        assert pending.find(plain, view) == (2, 5)

    check()
    for left in (0, 1):
        batches = tail.batches(view.end_offset, tail.end_offset)
        assert len(batches) == 2 - left
        view = run(flush_at(view, build_flush(LAYOUT, batches, "b" * 32, codec="none"), 1), store)
        assert pending.flushed(view.end_offset)
        check()
    assert not pending.flushed(view.end_offset)
    rows = [r["offset"] for b in log.read(0, 5, ("offset",), view=view) for r in b.to_pylist()]
    assert rows == [0, 1, 2, 3, 4]
    with pytest.raises(DataCorrupt):
        decode_references(encode(pa.record_batch({"value": pa.array([b"{}"])}), base_offset=0))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * TEXT_BYTES_MAX,
        b"[" + b"[]," * (TEXT_BYTES_MAX // 3 - 2) + b"[]]",
        b"{}" + b" " * (120 << 20),
    ],
)
def test_decompression_bomb_is_rejected_before_it_is_built(text: bytes) -> None:
    data = with_bit(text, 1, codec=Codec.ZSTD)
    assert len(data) < 20_000
    with pytest.raises(InvalidRecord, match=r"too many values|more than the bound"):
        check_batch(data, RULES, now_ms=0)


def test_the_largest_batch_stays_within_the_bounds() -> None:
    nonces = (f"{number:032x}" for number in range(OBJECTS_MAX))
    staged = [
        Reference(
            PartitionLayout.staged_name(one), 0, 1 << 17, 1 << 17, 1 << 60, one, 1 << 41, 1 << 41
        )
        for one in nonces
    ]
    batch = reference_batch(staged, None)
    assert decode_references(encode_references(batch)) == batch
