"""The blocking connection, against peers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections
from sparklog.client.metadata import read_metadata
from sparklog.client.wire import WireConnection
from sparklog.core.errors import DataCorrupt, InvalidRequest, OutcomeUnknown, Unavailable
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder, build_request
from sparklog.protocol.messages.frames import decode_request, encode_response

FAR: dict[str, Any] = {
    "transactional_id": None,
    "transaction_timeout": timedelta(seconds=1),
    "producer_id": 2**63,
    "producer_epoch": 0,
}

Reply = Callable[[bytes], bytes | None]


def framed(connection: socket.socket) -> bytes | None:
    """Read one frame, or None when the client has gone."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    return connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


@contextmanager
def peer(*replies: Reply) -> Iterator[BrokerAddress]:
    """Listen, and respond to the requests of each connection in turn; None closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for reply in replies:
                    frame = framed(connection)
                    answer = None if frame is None else reply(frame)
                    if answer is None:
                        break
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield BrokerAddress(*listener.getsockname()[:2])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def versions(*apis: tuple[Api, int, int]) -> Reply:
    """Respond to ApiVersions."""

    def reply(frame: bytes) -> bytes:
        header, request = decode_request(frame)
        answer = ResponseBuilder.to(request)
        keys = tuple(
            answer.entity("ApiVersion", api_key=api, min_version=low, max_version=high)
            for api, low, high in apis
        )
        return bytes(encode_response(header, answer.response(error_code=_none(), api_keys=keys)))

    return reply


def _none() -> object:
    from kio.schema.errors import ErrorCode  # noqa: PLC0415

    return ErrorCode.none


def test_connection_reads_the_brokers_versions() -> None:
    with (
        peer(versions((Api.METADATA, 0, 9), (Api.FETCH, 4, 12))) as address,
        WireConnection(address) as connection,
    ):
        assert connection.version(Api.METADATA, 4, 12) == 9
        assert connection.version(Api.FETCH, 4, 6) == 6
        assert connection.offers(Api.FETCH)
        assert not connection.offers(11)
        with pytest.raises(InvalidRequest, match=r"wanted=10-12 offered=0-9"):
            connection.version(Api.METADATA, 10, 12)
        with pytest.raises(InvalidRequest, match="offered=none"):
            connection.version(Api.PRODUCE, 0, 12)


def test_request_is_not_sent_when_a_value_does_not_fit() -> None:
    with peer(versions((Api.METADATA, 0, 9))) as address, WireConnection(address) as connection:
        with pytest.raises(InvalidRequest, match="does not fit Kafka's protocol"):
            connection.call(build_request(Api.INIT_PRODUCER_ID, 3, **FAR))
        with pytest.raises(OutcomeUnknown):  # the peer closes after its only response
            connection.call(build_request(Api.INIT_PRODUCER_ID, 3, **{**FAR, "producer_id": 1}))


def test_connection_is_unavailable_without_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = BrokerAddress(*listener.getsockname()[:2])
    with pytest.raises(Unavailable, match=str(address)):
        WireConnection(address)


def test_connection_is_unavailable_when_the_peer_hangs_up() -> None:
    with peer(lambda _: None) as address, pytest.raises(Unavailable):
        WireConnection(address)


def test_connection_is_unavailable_when_the_peer_is_silent() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(Unavailable, match="timed out"),
    ):
        WireConnection(BrokerAddress(*listener.getsockname()[:2]), timeout_s=0.2)


@pytest.mark.parametrize("size", [b"HTTP", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_connection_rejects_a_peer_that_is_not_a_broker(size: bytes) -> None:
    with peer(lambda _: size) as address, pytest.raises(DataCorrupt, match="no broker"):
        WireConnection(address)


def test_call_has_an_unknown_outcome_when_the_response_is_lost() -> None:
    with (
        peer(versions((Api.METADATA, 0, 12)), lambda _: None) as address,
        WireConnection(address) as connection,
        pytest.raises(OutcomeUnknown, match="MetadataRequest"),
    ):
        connection.call(build_request(Api.METADATA, 4, topics=(), allow_auto_topic_creation=False))


def test_response_to_another_request_is_rejected() -> None:
    with (
        peer(
            versions((Api.METADATA, 0, 12)), lambda _: struct.pack(">ii", 8, 77) + b"\0" * 4
        ) as address,
        WireConnection(address) as connection,
        pytest.raises(DataCorrupt, match="another request"),
    ):
        connection.call(build_request(Api.METADATA, 4, topics=(), allow_auto_topic_creation=False))


def test_read_is_repeated_elsewhere_but_a_change_is_not() -> None:
    asked = []

    def hang_up(frame: bytes) -> None:
        asked.append(frame)

    speaks = versions((Api.METADATA, 0, 12), (Api.DELETE_TOPICS, 1, 6))
    with peer(speaks, hang_up) as one, peer(speaks, hang_up) as other:
        brokers = BrokerConnections([one, other], timeout_s=5)
        with pytest.raises(Unavailable):
            read_metadata(brokers)
        assert len(asked) == 2
        with pytest.raises(OutcomeUnknown):
            brokers.change(
                Api.DELETE_TOPICS,
                1,
                6,
                lambda of: of.request(topics=(), timeout=_second()),
            )
        assert len(asked) == 3
        brokers.close()


def test_change_does_not_use_a_closed_connection() -> None:
    with peer(versions((Api.METADATA, 0, 12))) as address, WireConnection(address) as connection:
        while not connection.ended:  # the peer closes after its only response
            pass
        assert connection.ended


def _second() -> object:
    from datetime import timedelta  # noqa: PLC0415

    return timedelta(seconds=1)
