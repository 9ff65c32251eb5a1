"""Splitting of a buffer into its batches."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, RecordTooLarge
from sparklog.protocol.records.memory_records import split_batches
from tests.harness.golden_batches import data_of

FIRST, SECOND = data_of("mixed-none"), data_of("commit")


def test_split_yields_batches_in_order_with_positions() -> None:
    found = list(split_batches(FIRST + SECOND + FIRST))
    assert [one.position for one in found] == [0, len(FIRST), len(FIRST) + len(SECOND)]
    assert [bytes(one.data) for one in found] == [FIRST, SECOND, FIRST]
    assert [one.header.is_control for one in found] == [False, True, False]


def test_split_of_an_empty_buffer_yields_nothing() -> None:
    assert list(split_batches(b"")) == []


@pytest.mark.parametrize("cut", range(1, len(SECOND)))
def test_truncated_tail_is_rejected_unless_allowed(cut: int) -> None:
    buffer = FIRST + SECOND[:cut]
    with pytest.raises(DataCorrupt, match="cut short"):
        list(split_batches(buffer))
    assert [bytes(one.data) for one in split_batches(buffer, allow_cut_tail=True)] == [FIRST]


def test_truncated_tail_of_another_format_is_always_rejected() -> None:
    with pytest.raises(DataCorrupt, match="message set of magic 1 refused"):
        list(split_batches(FIRST + data_of("magic-1"), allow_cut_tail=True))


def test_batch_over_the_limit_is_rejected_by_its_header() -> None:
    assert len(list(split_batches(FIRST, max_batch_bytes=len(FIRST)))) == 1
    with pytest.raises(RecordTooLarge, match=f"batch_bytes={len(FIRST)}"):
        list(split_batches(FIRST[:100], max_batch_bytes=len(FIRST) - 1))


def test_garbage_after_a_batch_is_rejected() -> None:
    with pytest.raises(DataCorrupt, match="magic 88 is unknown"):
        list(split_batches(FIRST + b"X" * 100))


def test_split_yields_views_without_copies() -> None:
    buffer = bytearray(FIRST)
    (one,) = split_batches(buffer)
    buffer[-1] ^= 1
    assert bytes(one.data) == bytes(buffer)
