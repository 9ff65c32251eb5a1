"""Records of `__consumer_offsets`: what is written is read again, and nonsense is refused."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.coordinator.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    key_kind,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
    write_group_key,
    write_group_value,
    write_offset_key,
    write_offset_value,
)
from sparklog.core.errors import DataCorrupt

texts = st.text(max_size=20)
optional_texts = st.none() | texts
int32s = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)
datas = st.binary(max_size=50)
members = st.builds(
    MemberValue, texts, optional_texts, texts, texts, timeouts, timeouts, datas, datas
)
groups = st.builds(
    GroupValue,
    texts,
    int32s,
    optional_texts,
    optional_texts,
    times,
    st.lists(members, max_size=3).map(tuple),
)


@given(st.builds(OffsetKey, texts, texts, int32s))
def test_the_key_of_an_offset_is_read_again(key: OffsetKey) -> None:
    data = write_offset_key(key)
    assert key_kind(data) == 1
    assert read_offset_key(data) == key


@given(
    st.builds(OffsetValue, times, int32s, texts, times, st.just(-1), st.none() | st.uuids()),
)
def test_a_committed_offset_is_read_again(value: OffsetValue) -> None:
    assert read_offset_value(write_offset_value(value)) == value


def test_an_offset_with_an_expiry_loses_its_epoch_as_in_kafka() -> None:
    value = OffsetValue(7, 3, "m", 10, expire_ms=99)
    assert read_offset_value(write_offset_value(value)) == OffsetValue(7, -1, "m", 10, 99)


@given(texts)
def test_the_key_of_a_group_is_read_again(group_id: str) -> None:
    data = write_group_key(GroupKey(group_id))
    assert key_kind(data) == 2
    assert read_group_key(data) == GroupKey(group_id)


@given(groups)
def test_a_group_is_read_again(value: GroupValue) -> None:
    assert read_group_value(write_group_value(value)) == value


@given(st.binary(max_size=80))
def test_whatever_the_bytes_they_are_read_or_refused(data: bytes) -> None:
    for read in (read_offset_key, read_offset_value, read_group_key, read_group_value):
        try:
            read(data)
        except DataCorrupt:
            pass


@given(groups, st.data())
def test_a_cut_group_is_refused(value: GroupValue, draw: st.DataObject) -> None:
    data = write_group_value(value)
    with pytest.raises(DataCorrupt):
        read_group_value(data[: draw.draw(st.integers(0, len(data) - 1))])


def test_old_and_new_versions_are_read() -> None:
    v0 = bytes.fromhex("0000000000000000000500016d0000000000000064")
    assert read_offset_value(v0) == OffsetValue(5, -1, "m", 100)
    topic_id = UUID(int=1)
    v4 = bytes.fromhex("0004000000000000000500000002026d0000000000000064010010")
    assert read_offset_value(v4 + topic_id.bytes) == OffsetValue(5, 2, "m", 100, topic_id=topic_id)
    empty_v0 = bytes.fromhex("000000016300000004ffffffff00000000")
    assert read_group_value(empty_v0) == GroupValue("c", 4, None, None, -1, ())
