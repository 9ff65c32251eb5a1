"""Requests and responses: frames to and from a header and a kio entity. Sans-IO.

A frame is a 4-byte size, a header and a message. Encoders return a whole frame; decoders take a
frame without its size.

- request: `key i16, version i16, correlation id i32, client id (nullable string), [tags], message`
- response: `correlation id i32, [tags], message`

Headers have tags if the message's version is flexible. The response to ApiVersions never has them:
its reader does not know the broker's versions yet.

A frame in a stream of bytes is a 4-byte size and as many bytes. The reader of a connection feeds
received bytes and takes the complete frames.

Source: Kafka protocol guide; KIP-482, KIP-511.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final, NamedTuple

from kio.index import UnknownAPIKey, UnknownEntity

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages.decoder import Cursor, Malformed, decoder, nullable_text, skip_tags
from sparklog.protocol.messages.encoder import put_entity, put_nullable_text, put_varint
from sparklog.protocol.messages.schemas import request_schema, response_schema

SIZE_BYTES: Final = 4
_SIZE: Final = struct.Struct(">i")
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI")
_REQUEST: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


class UnsupportedVersion(InvalidRequest):
    """An unsupported version or key. Only ApiVersions has a response for that."""

    kafka_code = 35

    def __init__(self, header: RequestHeader) -> None:
        """Describe the request that starts with `header`; its client id is not read."""
        super().__init__(
            "this API or version is not supported; ask ApiVersions which are. "
            f"api_key={header.api_key} api_version={header.api_version}"
        )
        self.header = header


def decode_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """Return a request's header and its entity.

    Bytes after the message are ignored, as in Kafka: librdkafka 2.16 sends three too many in a
    Metadata request for all topics.

    Raises:
        UnsupportedVersion: `APIS` has no such key or version.
        InvalidRequest: the bytes are not such a request.
    """
    if len(frame) < _REQUEST.size:
        raise InvalidRequest(f"a request is shorter than its header. size={len(frame)}")
    key, version, correlation_id = _REQUEST.unpack_from(frame)
    if key not in APIS or version not in APIS[Api(key)]:
        raise UnsupportedVersion(RequestHeader(key, version, correlation_id))
    request_type = request_schema(key, version)
    cursor = Cursor(frame, _REQUEST.size)
    try:
        client_id = nullable_text(cursor)
        if request_type.__flexible__:
            skip_tags(cursor)
        entity = decoder(request_type)(cursor)
    except Malformed as error:
        raise InvalidRequest(
            f"a request is malformed: {error} api={Api(key).name} api_version={version}"
        ) from error
    return RequestHeader(key, version, correlation_id, client_id), entity


def encode_response(header: RequestHeader, response: Any) -> bytearray:
    """Return the frame of the response to the request with `header`."""
    out = bytearray(SIZE_BYTES)
    out += _CORRELATION.pack(header.correlation_id)
    response_type: Any = type(response)
    if _tagged_response_header(response_type):
        out.append(0)
    put_entity(out, response)
    return _sized(out)


def encode_request(request: Any, correlation_id: int, client_id: str | None) -> bytearray:
    """Return the frame of a request."""
    out = bytearray(SIZE_BYTES)
    out += _REQUEST.pack(request.__api_key__, request.__version__, correlation_id)
    put_nullable_text(out, client_id)
    if request.__flexible__:
        put_varint(out, 0)
    put_entity(out, request)
    return _sized(out)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of a response.

    Raises:
        DataCorrupt: the frame is too short to have one.
    """
    if len(frame) < _CORRELATION.size:
        raise DataCorrupt(f"a response is shorter than its header. size={len(frame)}")
    return int(_CORRELATION.unpack_from(frame)[0])


def decode_response(frame: bytes, request_type: Any) -> Any:
    """Return the entity of a response to a request of `request_type`.

    Raises:
        DataCorrupt: the bytes are not such a response.
    """
    correlation_id_of(frame)
    response_type: Any = response_type_of(request_type)
    cursor = Cursor(frame, _CORRELATION.size)
    try:
        if _tagged_response_header(response_type):
            skip_tags(cursor)
        return decoder(response_type)(cursor)
    except Malformed as error:
        raise DataCorrupt(
            f"a response is malformed: {error} response={response_type.__name__} "
            f"api_version={response_type.__version__}"
        ) from error


@cache
def response_type_of(request_type: Any) -> Any:
    """Return the type of the response to a type of request.

    Raises:
        TypeError: it is not a request.
    """
    try:
        return response_schema(request_type.__api_key__, request_type.__version__)
    except (UnknownAPIKey, UnknownEntity, AttributeError) as error:
        raise TypeError(f"not a request. type={request_type.__name__}") from error


@cache
def _tagged_response_header(response_type: Any) -> bool:
    return bool(response_type.__flexible__) and response_type.__api_key__ != Api.API_VERSIONS


def _sized(out: bytearray) -> bytearray:
    _SIZE.pack_into(out, 0, len(out) - SIZE_BYTES)
    return out


def sized_token(token: bytes) -> bytearray:
    """Return a frame that is a SASL token without a header, as in SaslHandshake version 0."""
    return bytearray(_SIZE.pack(len(token)) + token)


def _foreign(buffer: bytes | bytearray, at: int) -> str:
    """Return the likely cause of a frame's impossible size."""
    start = bytes(buffer[at : at + SIZE_BYTES])
    if start[:2] == _TLS_HANDSHAKE:
        return "the peer speaks TLS, and this listener does not; set security.protocol"
    if start in _HTTP_METHODS:
        return "the peer speaks HTTP; this is a port of Kafka's protocol"
    return "a frame is too large, or this is not Kafka's protocol; see socket.request.max.bytes"


class FrameReader:
    """Collects bytes and splits them into frames.

    A frame that arrives in one piece is cut from that piece; only split frames are joined.
    """

    __slots__ = ("_at", "_buffer", "arriving_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        """Reject frames of more than `frame_bytes_max` bytes, size not counted."""
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self.frame_bytes_max = frame_bytes_max
        self.arriving_bytes = 0
        """The size of the incomplete frame that `next_frame` met; 0 if it is not known yet."""

    def __len__(self) -> int:
        """Return the number of buffered bytes."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._at == len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytearray):
            del self._buffer[: self._at]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
        self._at = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its size; None if it is incomplete.

        Raises:
            InvalidRequest: the size is negative or too large: this is not Kafka's protocol.
        """
        buffer, start = self._buffer, self._at + SIZE_BYTES
        if start > len(buffer):
            self.arriving_bytes = 0
            return None
        size: int = _SIZE.unpack_from(buffer, self._at)[0]
        if not 0 <= size <= self.frame_bytes_max:
            raise InvalidRequest(
                f"{_foreign(buffer, self._at)}. size={size} largest={self.frame_bytes_max}"
            )
        end = start + size
        if end > len(buffer):
            self.arriving_bytes = size
            return None
        self._at = end
        frame = bytes(memoryview(buffer)[start:end])
        if end == len(buffer):
            self._buffer, self._at = b"", 0
        return frame
