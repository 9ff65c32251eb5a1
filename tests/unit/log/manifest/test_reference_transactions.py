"""Reference segments of transactions: what stands in the log before and after the marker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import Unavailable
from sparklog.log.cleanup.retention import RetentionPolicy, raise_to_retained
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, raise_log_start, with_tail
from sparklog.log.manifest.reference_transactions import outcomes, written_by
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.builder import draft_fence
from sparklog.log.segment.segment import ProducerBatch, Reference, Segment
from sparklog.log.tail.references import ReferencedObject, encode_references, reference_batch
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.header import TRANSACTIONAL_BIT, parse_header
from tests.harness.wire_batches import placed

LAYOUT = PartitionLayout("t", "A" * 22, 0)
NONCE = "a" * 32


def reference(number: int, rows: int = 5) -> Reference:
    nonce = f"{number:032x}"
    return Reference(LAYOUT.staged_name(nonce), 0, rows, rows, 99, nonce, 1_000, 2_000)


def referring(base: int, *objects: Reference, producer: int | None = 7) -> Segment:
    """Return what a flush makes of a reference batch at `base`."""
    enlisted = None if producer is None else ReferencedObject(producer, 3, 40)
    data = placed(encode_references(reference_batch(objects, None), enlisted), base, 1)
    return build_flush(LAYOUT, [data], NONCE, codec="none").segment


def marker(base: int, *, commit: bool, producer: int = 7) -> Segment:
    data = encode_end_transaction(
        EndTransactionMarker(is_commit=commit, coordinator_epoch=0),
        base_offset=base,
        timestamp_ms=1,
        producer_id=producer,
        producer_epoch=4,
        leader_epoch=1,
    )
    return build_flush(LAYOUT, [data], NONCE, codec="none").segment


def chain(*segments: Segment) -> PartitionView:
    view = PartitionView(LAYOUT)
    for one in segments:
        view = view.extended(one, 10)
    return view


FIRST = referring(0, reference(1), reference(2))
OTHER = referring(10, reference(3), producer=8)


def test_reference_segment_names_its_producer_and_has_no_rows() -> None:
    assert FIRST.rows == 0
    assert FIRST.producers == (ProducerBatch(7, 3, 40, 0, 10, TRANSACTIONAL_BIT),)
    plain = referring(0, reference(1), producer=None)
    assert (plain.rows, plain.producers) == (5, ())
    assert parse_header(
        encode_references(reference_batch([reference(1)], None), ReferencedObject(7, 3))
    ).has_producer_id


def test_the_first_marker_of_its_producer_decides() -> None:
    ends = [
        FIRST,
        OTHER,
        marker(15, commit=False, producer=9),
        marker(16, commit=False, producer=8),
        marker(17, commit=True),
    ]
    assert outcomes(ends[:2]) == {0: None, 10: None}
    assert outcomes(ends[:4]) == {0: None, 10: False}
    again = referring(18, reference(3), producer=8)
    assert outcomes([*ends, again]) == {0: True, 10: False, 18: None}
    assert outcomes([*ends, again, marker(23, commit=True, producer=8)])[18] is True


def test_references_in_the_tail_count_unless_aborted() -> None:
    assert [e.rows for e in chain(FIRST, OTHER).entries] == [5, 5, 5]
    committed = chain(FIRST, marker(10, commit=True))
    assert [(e.object, e.rows) for e in committed.entries][:2] == [
        (reference(1).object, 5),
        (reference(2).object, 5),
    ]
    aborted = chain(FIRST, marker(10, commit=False))
    gap = aborted.entries[0]
    assert (gap.object, gap.base_offset, gap.end_offset, gap.rows) == (
        LAYOUT.chain_name(0),
        *(0, 10, 0),
    )


def test_manifest_includes_only_decided_references() -> None:
    undecided = chain(FIRST, OTHER, marker(15, commit=True))
    taken = with_tail(undecided, 0)
    assert (taken.end_offset, len(taken.entries)) == (10, 2)
    assert absorb_tail(1, 0)(chain(OTHER_AT_START)) is None, "nothing to take in"
    decided = chain(FIRST, OTHER, marker(15, commit=True), marker(16, commit=False, producer=8))
    taken = with_tail(decided, 0)
    assert (taken.end_offset, [e.rows for e in taken.entries]) == (17, [5, 5, 0, 0, 0])


OTHER_AT_START = replace(OTHER, base_offset=0, end_offset=5)


def test_fence_before_an_open_transaction_stays_in_the_tail() -> None:
    fence = draft_fence(LAYOUT, NONCE, leader_epoch=1, led=True)
    view = chain(marker(0, commit=True, producer=9), fence.placed(1), fence.placed(1))
    assert with_tail(view, 0).position == (1, 2)
    opened = view.extended(replace(OTHER, base_offset=1, end_offset=6), 10)
    assert with_tail(opened, 0).position == (1, 0)
    assert raise_log_start(1)(opened) is not None
    assert [e.base_offset for e in opened.entries] == [0, 1]


def test_log_start_passes_an_open_transaction_but_not_into_it() -> None:
    view = chain(FIRST, marker(10, commit=True, producer=9))
    raised = raise_log_start(10)(view)
    assert raised is not None
    assert (raised.log_start_offset, [e.base_offset for e in raised.entries]) == (10, [10])
    with pytest.raises(Unavailable, match="transaction is open"):
        raise_log_start(5)(view)
    ended = chain(FIRST, marker(10, commit=True))
    started = raise_log_start(5)(ended)
    assert started is not None
    assert started.log_start_offset == 5


def test_retention_stops_before_an_open_transaction() -> None:
    old = referring(0, reference(1), producer=None)
    opened = referring(5, reference(2), reference(3))
    policy = RetentionPolicy.of(parse_topic_configs({"retention.bytes": "100"}))
    raised = raise_to_retained(policy, 3_000)(chain(old, opened))
    assert raised is not None
    assert raised.log_start_offset == 5


def test_each_object_of_a_transaction_has_its_own_sequences() -> None:
    view = chain(FIRST, OTHER)
    segments = [one.segment for one in view.tail]
    first, second, third = (written_by(segments, entry) for entry in view.entries)
    assert first == ProducerBatch(7, 3, 40, 0, 5, TRANSACTIONAL_BIT)
    assert second == ProducerBatch(7, 3, 45, 0, 5, TRANSACTIONAL_BIT)
    assert third is not None
    assert third.producer_id == 8
    plain = chain(referring(0, reference(1), producer=None))
    assert written_by([one.segment for one in plain.tail], plain.entries[0]) is None
