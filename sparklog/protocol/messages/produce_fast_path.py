"""Fast path for plain Produce requests and their responses, without the general codec.

A busy broker handles thousands of these a second, with one batch each. They are all alike: no
transaction, no tagged field, no missing batch. `read` decodes such a frame into a few tuples. It
returns None for any other, which `messages` then decodes or rejects. `answer` encodes successful
responses only; the handler builds those with errors. Sans-IO.
Source: Kafka 4.3 ProduceRequest.json and ProduceResponse.json; KIP-482, KIP-516.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages.frames import SIZE_BYTES, RequestHeader
from sparklog.protocol.topic_ids import topic_id_of

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
START_OFFSET_SINCE: Final = 5
RECORD_ERRORS_SINCE: Final = 8
PARTS_MAX: Final = 1000
"""Limit for topics of a request, and partitions of a topic, on the fast path."""

_KEY: Final = b"\0\0"
"""The first bytes of a Produce request: its API key."""
_VERSIONS: Final = frozenset(range(APIS[Api.PRODUCE].min, APIS[Api.PRODUCE].max + 1))
_HEADER: Final = struct.Struct(">hhih")
_ACKS: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PLACE: Final = struct.Struct(">ihqqq")
"""Partition, error code, base offset, append time and log start offset in a response."""
_UUID_BYTES: Final = 16
_IDS_KEPT: Final = 4096
_NULL: Final = -1
_NONE: Final = b"\0"
"""No tagged field; also an empty or null value of a flexible version."""
_NO_ERRORS: Final = b"\0\0\0\0\xff\xff"
"""No record errors and no message, before flexible versions."""
_NO_ERRORS_FLEXIBLE: Final = b"\x01\0\0"
"""The same in flexible versions, and no tagged field of the partition."""
_CONTINUES: Final = 0x80
_LAST_SHIFT: Final = 28


class ProducedTopic(NamedTuple):
    """The batches for one topic."""

    key: str
    """The topic's name; since version 13 its id in Kafka's spelling."""
    raw_key: bytes
    """The same as bytes of the request, with its length."""
    partitions: list[tuple[int, memoryview]]
    """Number and batch of each partition; the batch is a view of the frame."""


class PlainProduce(NamedTuple):
    """A Produce request without a transaction."""

    header: RequestHeader
    acks: int
    timeout_ms: int
    topics: list[ProducedTopic]
    frame: bytes
    """The whole request, for a response that is not a plain success."""
    by_id: bool
    """True if the request names topics by their ids."""


Placed = tuple[int, int, int]
"""Result of an append:

base offset, append time in milliseconds since the Unix epoch or -1, and log start offset.
"""


Cut = TypeVar("Cut", bytes, memoryview)


class _NotPlain(Exception):
    """The request does not fit the fast path."""


def read(frame: bytes) -> PlainProduce | None:
    """Return a request from its frame (without size), None if it is not a plain Produce request.

    Bytes after it are ignored. The batches are not checked.
    """
    if frame[:2] != _KEY:
        return None
    try:
        return _read(frame)
    except (_NotPlain, struct.error, IndexError, UnicodeDecodeError):
        return None


def _read(frame: bytes) -> PlainProduce:
    key, version, correlation_id, size = _HEADER.unpack_from(frame)
    if version not in _VERSIONS:
        raise _NotPlain
    at = _HEADER.size
    client_id = None
    if size >= 0:
        client_id = _whole(frame, at, size).decode()
        at += size
    flexible = version >= FLEXIBLE_SINCE
    if flexible:
        at = _no_tags(frame, at)
        transactional = frame[at] != 0
        at += 1
    else:
        transactional = _INT16.unpack_from(frame, at)[0] != _NULL
        at += _INT16.size
    if transactional:
        raise _NotPlain
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    count, at = _length(frame, at + _ACKS.size, flexible=flexible)
    topics = []
    for _ in range(_few(count)):
        topic, at = _topic(frame, at, version)
        topics.append(topic)
    if flexible:
        _no_tags(frame, at)
    header = RequestHeader(key, version, correlation_id, client_id)
    return PlainProduce(header, acks, timeout_ms, topics, frame, version >= TOPIC_IDS_SINCE)


def _topic(frame: bytes, at: int, version: int) -> tuple[ProducedTopic, int]:
    flexible = version >= FLEXIBLE_SINCE
    begin = at
    if version >= TOPIC_IDS_SINCE:
        key = _topic_id(_whole(frame, at, _UUID_BYTES))
        at += _UUID_BYTES
    else:
        if flexible:
            size, at = _length(frame, at, flexible=True)
        else:
            size, at = _INT16.unpack_from(frame, at)[0], at + _INT16.size
        key = _whole(frame, at, size).decode()
        at += size
    raw_key = frame[begin:at]
    count, at = _length(frame, at, flexible=flexible)
    partitions = []
    view = memoryview(frame)
    for _ in range(_few(count)):
        number = _INT32.unpack_from(frame, at)[0]
        size, at = _length(frame, at + _INT32.size, flexible=flexible)
        partitions.append((number, _whole(view, at, size)))
        at += size
        if flexible:
            at = _no_tags(frame, at)
    if flexible:
        at = _no_tags(frame, at)
    return ProducedTopic(key, raw_key, partitions), at


@lru_cache(_IDS_KEPT)
def _topic_id(raw: bytes) -> str:
    return topic_id_of(UUID(bytes=raw))


def _whole(frame: Cut, at: int, size: int) -> Cut:
    found = frame[at : at + size]
    if size < 0 or len(found) != size:
        raise _NotPlain
    return found


def _few(count: int) -> int:
    if not 0 <= count <= PARTS_MAX:
        raise _NotPlain
    return count


def _no_tags(frame: bytes, at: int) -> int:
    if frame[at]:
        raise _NotPlain
    return at + 1


def _length(frame: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Return the length of the next value, and its position; the length is -1 for null."""
    if not flexible:
        return _INT32.unpack_from(frame, at)[0], at + _INT32.size
    byte = frame[at]
    at += 1
    if byte < _CONTINUES:
        return byte - 1, at
    value = shift = 0
    while byte >= _CONTINUES:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LAST_SHIFT:
            raise _NotPlain
        byte = frame[at]
        at += 1
    return (value | byte << shift) - 1, at


def answer(asked: PlainProduce, places: Iterable[Placed], throttle_ms: int = 0) -> bytearray:
    """Return the frame of a successful response, in the order of the request."""
    version = asked.header.api_version
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(SIZE_BYTES)
    out += _INT32.pack(asked.header.correlation_id)
    if flexible:
        out += _NONE
    place = iter(places)
    _put_count(out, len(asked.topics), flexible=flexible)
    for topic in asked.topics:
        out += topic.raw_key
        _put_count(out, len(topic.partitions), flexible=flexible)
        for number, _ in topic.partitions:
            packed = _PLACE.pack(number, 0, *next(place))
            out += packed if version >= START_OFFSET_SINCE else packed[:-8]
            if flexible:
                out += _NO_ERRORS_FLEXIBLE
            elif version >= RECORD_ERRORS_SINCE:
                out += _NO_ERRORS
        if flexible:
            out += _NONE
    out += _INT32.pack(throttle_ms)
    if flexible:
        out += _NONE
    _INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    return out


def _put_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if not flexible:
        out += _INT32.pack(count)
        return
    count += 1
    while count >= _CONTINUES:
        out.append(count & 0x7F | _CONTINUES)
        count >>= 7
    out.append(count)
