"""Plain Produce requests and their answers: the general codec says the same of every frame."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.messages.builder import ResponseBuilder, build_request, build_request_part
from sparklog.protocol.topic_ids import topic_id_of
from tests.harness.random_messages import random_entity

VERSIONS = range(APIS[Api.PRODUCE].min, APIS[Api.PRODUCE].max + 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
uuids = st.binary(min_size=16, max_size=16).filter(any).map(lambda raw: UUID(bytes=raw))
batches = st.integers(0, 40_000).map(bytes) | st.binary(max_size=300)
partitions = st.lists(st.tuples(st.integers(0, 2**31 - 1), batches), max_size=200)
topics = st.lists(st.tuples(names, uuids, partitions), max_size=5)


def request_of(version: int, asked: Any, acks: int, timeout_ms: int) -> Any:
    def part(structure: str, **values: Any) -> Any:
        return build_request_part(Api.PRODUCE, version, structure, **values)

    return build_request(
        Api.PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            part(
                "TopicProduceData",
                name=name,
                topic_id=uuid,
                partition_data=tuple(
                    part("PartitionProduceData", index=number, records=records)
                    for number, records in parts
                ),
            )
            for name, uuid, parts in asked
        ),
    )


def frame_of(request: Any, client_id: str | None = "a client") -> bytes:
    return bytes(frames.encode_request(request, 77, client_id))[frames.SIZE_BYTES :]


def said(plain: produce_fast_path.PlainProduce) -> Any:
    return plain.header, plain.acks, plain.timeout_ms, [(t.key, t.partitions) for t in plain.topics]


def said_of_entity(header: Any, request: Any) -> Any:
    def key(topic: Any) -> str | None:
        if header.api_version < produce_fast_path.TOPIC_IDS_SINCE:
            return str(topic.name)
        return topic_id_of(topic.topic_id or UUID(int=0))

    timeout_ms = request.timeout // timedelta(milliseconds=1)
    found = [
        (key(topic), [(part.index, part.records) for part in topic.partition_data])
        for topic in request.topic_data
    ]
    return header, request.acks, timeout_ms, found


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    topics,
    st.sampled_from((-1, 0, 1, 7)),
    st.integers(0, 2**31 - 1),
    st.none() | names,
)
def test_a_plain_request_is_read_as_the_general_codec_reads_it(
    version: int, asked: Any, acks: int, timeout_ms: int, client_id: str | None
) -> None:
    frame = frame_of(request_of(version, asked, acks, timeout_ms), client_id)
    plain = produce_fast_path.read(frame)
    assert plain is not None
    assert said(plain) == said_of_entity(*frames.decode_request(frame))
    assert plain.by_id == (version >= 13)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), topics, st.randoms(use_true_random=False))
def test_an_answer_has_the_bytes_that_the_general_codec_writes(
    version: int, asked: Any, random: Random
) -> None:
    plain = produce_fast_path.read(frame_of(request_of(version, asked, -1, 1000)))
    assert plain is not None
    places = [
        (
            random.randrange(2**63),
            random.choice((-1, 0, 1_600_000_000_123)),
            random.randrange(2**63),
        )
        for topic in asked
        for _ in topic[2]
    ]
    found = iter(places)
    answer = ResponseBuilder(Api.PRODUCE, version)

    def part(number: int) -> Any:
        base_offset, time_ms, log_start_offset = next(found)
        return answer.entity(
            "PartitionProduceResponse",
            index=number,
            error_code=ErrorCode.none,
            base_offset=base_offset,
            log_append_time=None if time_ms < 0 else EPOCH + timedelta(milliseconds=time_ms),
            log_start_offset=log_start_offset,
            record_errors=(),
            error_message=None,
        )

    response = answer.response(
        responses=tuple(
            answer.entity(
                "TopicProduceResponse",
                name=name,
                topic_id=uuid,
                partition_responses=tuple(part(number) for number, _ in parts),
            )
            for name, uuid, parts in asked
        ),
        throttle_time=timedelta(0),
    )
    assert produce_fast_path.answer(plain, places) == frames.encode_response(plain.header, response)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VERSIONS), st.integers(0, 2**32))
def test_any_other_request_is_left_to_the_general_codec(version: int, seed: int) -> None:
    request = random_entity(load_request_schema(0, version), Random(seed))
    plain = produce_fast_path.read(frame_of(request))
    records = [p.records for t in request.topic_data for p in t.partition_data]
    if request.transactional_id is not None or None in records:
        assert plain is None
    else:
        assert plain is not None
        assert said(plain)[1:] == said_of_entity(plain.header, request)[1:]


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(VERSIONS), topics, st.randoms(use_true_random=False))
def test_hostile_bytes_are_read_as_by_the_general_codec_or_left_to_it(
    version: int, asked: Any, random: Random
) -> None:
    frame = bytearray(frame_of(request_of(version, asked, -1, 1000)))
    for _ in range(random.randrange(1, 4)):
        if random.random() < 0.3:
            del frame[random.randrange(len(frame) + 1) :]
        elif frame:
            frame[random.randrange(min(len(frame), 80))] = random.randrange(256)
    plain = produce_fast_path.read(bytes(frame))
    if plain is not None:
        assert said(plain) == said_of_entity(*frames.decode_request(bytes(frame)))


def test_a_tagged_field_is_left_to_the_general_codec() -> None:
    frame = frame_of(request_of(9, [], -1, 1000))
    assert produce_fast_path.read(frame) is not None
    tagged = frame[:-1] + b"\x01\x05\x01?"  # one field, number 5, of one byte
    frames.decode_request(tagged)
    assert produce_fast_path.read(tagged) is None


@pytest.mark.parametrize("version", [VERSIONS[0] - 1, VERSIONS[-1] + 1])
def test_a_version_that_is_not_answered_is_left_to_the_general_codec(version: int) -> None:
    frame = frame_of(request_of(9, [], -1, 1000))
    assert produce_fast_path.read(frame[:2] + version.to_bytes(2, "big") + frame[4:]) is None
