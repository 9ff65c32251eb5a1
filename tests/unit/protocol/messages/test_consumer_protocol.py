"""The embedded protocol of consumers in a classic group, as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidRequest
from sparklog.protocol.messages.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)

TOPIC = bytes.fromhex("0001") + b"t"
EMPTY_DATA = bytes.fromhex("ffffffff")


@pytest.mark.parametrize("version", range(4))
def test_assignment_round_trips(version: int) -> None:
    assignment = {"a": (0, 3), "b": (1,)}
    assert decode_assignment(encode_assignment(assignment, version)) == assignment
    assert decode_assignment(b"") == {}


def test_subscriptions_of_every_version_are_decoded() -> None:
    oldest = bytes.fromhex("0000 00000001") + TOPIC + EMPTY_DATA
    assert decode_subscription(oldest) == Subscription(("t",), {})
    owned = bytes.fromhex("00000001") + TOPIC + bytes.fromhex("00000002 00000000 00000005")
    newest = (
        bytes.fromhex("0003 00000001") + TOPIC + EMPTY_DATA + owned
        + bytes.fromhex("00000007 0002") + b"r1"
    )  # fmt: skip
    found = Subscription(("t",), {"t": (0, 5)}, 7, "r1")
    assert decode_subscription(newest) == found
    of_the_future = bytes.fromhex("0009") + newest[2:] + b"more"
    assert decode_subscription(of_the_future) == found
    assert version_of(of_the_future) == 3


@given(st.binary(max_size=60))
def test_any_member_bytes_are_decoded_or_rejected(data: bytes) -> None:
    for decode in (decode_assignment, decode_subscription):
        try:
            decode(data)
        except InvalidRequest:
            pass
