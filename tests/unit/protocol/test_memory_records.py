"""Splitting a buffer into the batches it holds."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, RecordTooLarge
from sparklog.protocol.memory_records import split_batches
from tests.unit.protocol.golden import data_of

FIRST, SECOND = data_of("mixed-none"), data_of("commit")


def test_batches_come_in_order_with_their_places() -> None:
    found = list(split_batches(FIRST + SECOND + FIRST))
    assert [one.position for one in found] == [0, len(FIRST), len(FIRST) + len(SECOND)]
    assert [bytes(one.data) for one in found] == [FIRST, SECOND, FIRST]
    assert [one.header.is_control for one in found] == [False, True, False]


def test_an_empty_buffer_holds_no_batch() -> None:
    assert list(split_batches(b"")) == []


@pytest.mark.parametrize("cut", range(1, len(SECOND)))
def test_a_cut_tail_is_refused_from_a_producer_and_left_out_for_a_fetcher(cut: int) -> None:
    buffer = FIRST + SECOND[:cut]
    with pytest.raises(DataCorrupt, match="cut short"):
        list(split_batches(buffer))
    assert [bytes(one.data) for one in split_batches(buffer, allow_cut_tail=True)] == [FIRST]


def test_a_cut_tail_of_another_format_is_refused_even_for_a_fetcher() -> None:
    with pytest.raises(DataCorrupt, match="message set of magic 1 refused"):
        list(split_batches(FIRST + data_of("magic-1"), allow_cut_tail=True))


def test_a_batch_over_the_limit_is_refused_before_its_bytes_are_there() -> None:
    assert len(list(split_batches(FIRST, max_batch_bytes=len(FIRST)))) == 1
    with pytest.raises(RecordTooLarge, match=f"batch_bytes={len(FIRST)}"):
        list(split_batches(FIRST[:100], max_batch_bytes=len(FIRST) - 1))


def test_garbage_after_a_batch_is_refused() -> None:
    with pytest.raises(DataCorrupt, match="magic 88 is unknown"):
        list(split_batches(FIRST + b"X" * 100))


def test_views_are_taken_without_copying() -> None:
    buffer = bytearray(FIRST)
    (one,) = split_batches(buffer)
    buffer[-1] ^= 1
    assert bytes(one.data) == bytes(buffer)
