"""The codec of messages: kio's own reader and writer agree, and hostile bytes are refused."""

from __future__ import annotations

import io
import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages import frames as messages
from sparklog.protocol.messages.decoder import ELEMENTS_MAX, Cursor, Malformed, decoder
from sparklog.protocol.messages.encoder import put_entity, put_varint
from tests.harness.random_messages import message_types, random_entity

TYPES = message_types()
REQUESTS: list[Any] = [t for t in TYPES if t.__name__.endswith("Request")]


def encoded(entity: Any) -> bytes:
    out = bytearray()
    put_entity(out, entity)
    return bytes(out)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_kio_reads_our_messages_and_writes_the_same_bytes(api: Api) -> None:
    for entity_type in (t for t in TYPES if t.__api_key__ == api):
        for seed in range(12):
            entity = random_entity(entity_type, Random(seed))
            data = encoded(entity)
            reference = io.BytesIO()
            entity_writer(entity_type)(reference, entity)
            assert data == reference.getvalue()
            assert entity_reader(entity_type)(data, 0) == (entity, len(data))
            cursor = Cursor(data)
            assert decoder(entity_type)(cursor) == entity
            assert cursor.at == len(data)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_request_and_its_response_survive_their_frames(api: Api) -> None:
    for request_type in (t for t in REQUESTS if t.__api_key__ == api):
        request = random_entity(request_type, Random(1))
        frame = bytes(messages.encode_request(request, 77, "a client"))
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        header, read = messages.decode_request(frame[4:])
        assert (header.correlation_id, header.client_id, read) == (77, "a client", request)

        response = random_entity(messages.response_type_of(request_type), Random(2))
        answer = bytes(messages.encode_response(header, response))
        assert messages.correlation_id_of(answer[4:]) == 77
        assert messages.decode_response(answer[4:], request_type) == response


frames = st.builds(
    lambda kind, seed: bytes(
        messages.encode_request(random_entity(kind, Random(seed)), 1, "someone")
    )[4:],
    st.sampled_from(REQUESTS),
    st.integers(0, 2**32),
)


def refused_or_read(frame: bytes) -> None:
    """Decode; anything but a request or an InvalidRequest escapes."""
    try:
        messages.decode_request(frame)
    except InvalidRequest:
        return


@settings(max_examples=400, deadline=None)
@given(frames, st.data())
def test_a_damaged_request_is_read_or_refused(frame: bytes, data: st.DataObject) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(frame) - 1))
        damaged[at] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    refused_or_read(bytes(damaged))
    refused_or_read(frame[: data.draw(st.integers(0, len(frame)))])


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(REQUESTS), st.binary(max_size=200))
def test_noise_behind_a_good_header_is_read_or_refused(kind: Any, noise: bytes) -> None:
    header = struct.pack(">hhi", kind.__api_key__, kind.__version__, 5)
    refused_or_read(header + noise)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(REQUESTS), st.integers(0, 2**32), st.data())
def test_a_damaged_response_is_read_or_refused(kind: Any, seed: int, data: st.DataObject) -> None:
    response = random_entity(messages.response_type_of(kind), Random(seed))
    frame = bytearray(messages.encode_response(messages.RequestHeader(0, 0, 1), response)[4:])
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    try:
        messages.decode_response(bytes(frame), kind)
    except DataCorrupt:
        return


@pytest.mark.parametrize("version", [1, 12])
def test_an_array_longer_than_its_message_reserves_nothing(version: int) -> None:
    kind: Any = load_request_schema(Api.METADATA, version)
    claim = bytearray(struct.pack(">i", 2**31 - 1))
    if kind.__flexible__:
        claim = bytearray()
        put_varint(claim, 2**31 - 1)
    with pytest.raises(Malformed, match="longer than its message"):
        decoder(kind)(Cursor(bytes(claim)))


def test_the_number_of_elements_of_a_message_is_bounded() -> None:
    kind: Any = load_request_schema(Api.METADATA, 1)
    data = struct.pack(">i", ELEMENTS_MAX + 1) + b"\0\0" * (ELEMENTS_MAX + 1)
    with pytest.raises(Malformed, match="too many array elements"):
        decoder(kind)(Cursor(data))
