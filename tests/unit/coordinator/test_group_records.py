"""Records of `__consumer_offsets`: round trips, and rejection of malformed bytes."""

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
def test_offset_key_round_trips(key: OffsetKey) -> None:
    data = write_offset_key(key)
    assert key_kind(data) == 1
    assert read_offset_key(data) == key


@given(
    st.builds(OffsetValue, times, int32s, texts, times, st.just(-1), st.none() | st.uuids()),
)
def test_committed_offset_round_trips(value: OffsetValue) -> None:
    assert read_offset_value(write_offset_value(value)) == value


def test_offset_with_an_expiry_loses_its_epoch_as_in_kafka() -> None:
    value = OffsetValue(7, 3, "m", 10, expire_ms=99)
    assert read_offset_value(write_offset_value(value)) == OffsetValue(7, -1, "m", 10, 99)


@given(texts)
def test_group_key_round_trips(group_id: str) -> None:
    data = write_group_key(GroupKey(group_id))
    assert key_kind(data) == 2
    assert read_group_key(data) == GroupKey(group_id)


@given(groups)
def test_group_value_round_trips(value: GroupValue) -> None:
    assert read_group_value(write_group_value(value)) == value


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    for read in (read_offset_key, read_offset_value, read_group_key, read_group_value):
        try:
            read(data)
        except DataCorrupt:
            pass


@given(groups, st.data())
def test_truncated_group_is_rejected(value: GroupValue, draw: st.DataObject) -> None:
    data = write_group_value(value)
    with pytest.raises(DataCorrupt):
        read_group_value(data[: draw.draw(st.integers(0, len(data) - 1))])


def test_old_and_new_versions_are_decoded() -> None:
    v0 = bytes.fromhex("0000000000000000000500016d0000000000000064")
    assert read_offset_value(v0) == OffsetValue(5, -1, "m", 100)
    topic_id = UUID(int=1)
    v4 = bytes.fromhex("0004000000000000000500000002026d0000000000000064010010")
    assert read_offset_value(v4 + topic_id.bytes) == OffsetValue(5, 2, "m", 100, topic_id=topic_id)
    empty_v0 = bytes.fromhex("000000016300000004ffffffff00000000")
    assert read_group_value(empty_v0) == GroupValue("c", 4, None, None, -1, ())


# Records of a Kafka 4.3.1: a static consumer of the group `g-ünï` joined and committed.
KAFKAS_GROUP_KEY = "00020007672dc3bc6ec3af"
KAFKAS_NEW_GROUP = "0003000000000000ffffffff000001a1ff47441600000000"
KAFKAS_GROUP = (
    "00030008636f6e73756d657200000001000572616e67650029696e73742d34336162313131632d366439322d"
    "346633362d616439372d643065656537343233396431000001a1ff474427000000010029696e73742d343361"
    "62313131632d366439322d346633362d616439372d6430656565373432333964310004696e737400026d6500"
    "0a2f3132372e302e302e31000493e00000afc8000000170003000000010001740000000000000000ffffffff"
    "00000000001900000000000100017400000002000000000000000100000000"
)
KAFKAS_OFFSET_KEY = "00010007672dc3bc6ec3af00017400000001"
KAFKAS_OFFSET = (
    "000400000000000000050000000001000001a1ff4744cf0100108aa7e23d8f0946ada31f9a2e6ebef297"
)
KAFKAS_NOTE = (
    "00040000000000000003ffffffff066e6f746500000001a1ff4744dd0100108aa7e23d8f0946ada31f9a2e6ebef297"
)


def test_keys_equal_those_of_a_real_kafka() -> None:
    key = OffsetKey("g-ünï", "t", 1)
    assert read_offset_key(bytes.fromhex(KAFKAS_OFFSET_KEY)) == key
    assert write_offset_key(key).hex() == KAFKAS_OFFSET_KEY
    assert read_group_key(bytes.fromhex(KAFKAS_GROUP_KEY)) == GroupKey("g-ünï")
    assert write_group_key(GroupKey("g-ünï")).hex() == KAFKAS_GROUP_KEY


def test_groups_equal_those_of_a_real_kafka() -> None:
    value = read_group_value(bytes.fromhex(KAFKAS_GROUP))
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    (member,) = value.members
    assert value.leader == member.member_id
    assert (member.instance_id, member.client_id) == ("inst", "me")
    assert member.client_host == "/127.0.0.1"
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (300_000, 45_000)
    assert write_group_value(value).hex() == KAFKAS_GROUP
    new = read_group_value(bytes.fromhex(KAFKAS_NEW_GROUP))
    assert new == GroupValue("", 0, None, None, new.state_since_ms, ())
    assert write_group_value(new).hex() == KAFKAS_NEW_GROUP


def test_offsets_equal_those_of_a_real_kafka() -> None:
    value = read_offset_value(bytes.fromhex(KAFKAS_OFFSET))
    assert (value.offset, value.leader_epoch, value.metadata) == (5, 0, "")
    assert value.topic_id is not None
    assert write_offset_value(value).hex() == KAFKAS_OFFSET
    noted = read_offset_value(bytes.fromhex(KAFKAS_NOTE))
    # The zero at the end is the client's: librdkafka counts its C string's end.
    assert (noted.offset, noted.leader_epoch, noted.metadata) == (3, -1, "note\0")
    assert write_offset_value(noted).hex() == KAFKAS_NOTE
