"""The table of APIs, unsupported versions, and messages built for any version."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from sparklog.core.entropy import SeededEntropy, new_topic_id
from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.protocol.api_keys import APIS, Api, advertised
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import ResponseBuilder, build_request
from sparklog.protocol.messages.frames import RequestHeader, UnsupportedVersion
from sparklog.protocol.messages.schemas import request_schema, response_schema
from sparklog.protocol.topic_ids import topic_id_of, uuid_of


def test_every_version_in_the_table_has_a_request_and_a_response() -> None:
    for api, versions in APIS.items():
        for version in range(versions.min, versions.max + 1):
            assert int(request_schema(api, version).__api_key__) == api.value
            assert response_schema(api, version).__version__ == version


def test_advertised_versions_start_produce_at_zero() -> None:
    told = {key: (lowest, highest) for key, lowest, highest in advertised()}
    assert told[Api.PRODUCE] == (0, 13)
    assert told[Api.FETCH] == (4, 18)
    assert Api.BROKER_HEARTBEAT not in told
    assert 0 not in APIS[Api.PRODUCE]


@pytest.mark.parametrize(("key", "version"), [(18, 6), (18, -1), (0, 2), (9_999, 0), (-1, 0)])
def test_unsupported_version_error_has_the_header(key: int, version: int) -> None:
    frame = struct.pack(">hhi", key, version, 7) + b"\xff" * 9
    with pytest.raises(UnsupportedVersion) as refused:
        frames.decode_request(frame)
    assert refused.value.header == RequestHeader(key, version, 7)
    assert refused.value.kafka_code == 35


def test_bytes_after_a_request_are_ignored() -> None:
    frame = bytes(frames.encode_request(build_request(Api.API_VERSIONS, 0), 1, None))[4:]
    assert frames.decode_request(frame)[0].client_id is None
    assert frames.decode_request(frame + b"\0\0\0") == frames.decode_request(frame)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\0\0\0\0"])
def test_frame_shorter_than_a_header_is_rejected(frame: bytes) -> None:
    with pytest.raises(InvalidRequest, match="shorter"):
        frames.decode_request(frame)


def test_response_shorter_than_a_correlation_id_is_rejected() -> None:
    with pytest.raises(DataCorrupt, match="shorter"):
        frames.correlation_id_of(b"\0")


@pytest.mark.parametrize("version", [0, 3, 4])
def test_response_header_of_api_versions_never_has_tags(version: int) -> None:
    answer = ResponseBuilder(Api.API_VERSIONS, version).response(
        error_code=ErrorCode.none, api_keys=(), throttle_time=timedelta(0)
    )
    frame = frames.encode_response(RequestHeader(18, version, 9), answer)
    assert struct.unpack_from(">iih", frame)[1:] == (9, 0)


def test_message_takes_the_fields_of_its_version() -> None:
    broker = {"node_id": 1, "host": "h", "port": 9, "rack": "r"}
    oldest = ResponseBuilder(Api.METADATA, 0).entity("MetadataResponseBroker", **broker)
    newest = ResponseBuilder(Api.METADATA, 13).entity("MetadataResponseBroker", **broker)
    assert not hasattr(oldest, "rack")
    assert newest.rack == "r"


def test_field_that_no_version_has_raises() -> None:
    with pytest.raises(TypeError, match="no version has it"):
        ResponseBuilder(Api.METADATA, 1).entity("MetadataResponseBroker", node_id=1, hots="h")
    with pytest.raises(TypeError, match="no such structure"):
        ResponseBuilder(Api.METADATA, 1).entity("Broker")


def test_missing_field_raises() -> None:
    with pytest.raises(TypeError, match="missing"):
        ResponseBuilder(Api.METADATA, 1).entity("MetadataResponseBroker", node_id=1)


def test_null_in_a_required_field_raises() -> None:
    broker = ResponseBuilder(Api.METADATA, 0).entity(
        "MetadataResponseBroker", node_id=1, host=None, port=1
    )
    answer = ResponseBuilder(Api.METADATA, 0).response(brokers=(broker,), topics=())
    with pytest.raises(TypeError, match="may not be null"):
        frames.encode_response(RequestHeader(3, 0, 1), answer)


def test_topic_id_round_trips() -> None:
    topic_id = new_topic_id(SeededEntropy(4))
    assert topic_id_of(uuid_of(topic_id)) == topic_id
    with pytest.raises(ValueError, match="not a topic id"):
        uuid_of("short")


def test_too_long_text_is_rejected_in_flexible_messages_too() -> None:
    def frame(length: int) -> bytes:
        request = build_request(
            Api.HEARTBEAT,
            4,
            group_id="g" * length,
            generation_id=1,
            member_id="",
            group_instance_id=None,
        )
        return bytes(frames.encode_request(request, 1, "test"))[4:]

    assert len(frames.decode_request(frame(32_767))[1].group_id) == 32_767
    with pytest.raises(InvalidRequest):
        frames.decode_request(frame(32_768))
