from __future__ import annotations

import pytest

from sparklog.client.addresses import BrokerAddress, bootstrap_addresses
from sparklog.core.errors import InvalidRequest


def test_addresses_have_kafkas_port_by_default() -> None:
    assert bootstrap_addresses("a:1, b:2,c,[::1]:3,[::2],") == [
        BrokerAddress("a", 1),
        BrokerAddress("b", 2),
        BrokerAddress("c", 9092),
        BrokerAddress("::1", 3),
        BrokerAddress("::2", 9092),
    ]
    assert str(BrokerAddress("::1", 3)) == "[::1]:3"
    assert str(BrokerAddress("a", 1)) == "a:1"


@pytest.mark.parametrize("servers", ["", ",", ":1", "a:", "a:x", "a:0", "a:65536", "a:-1"])
def test_invalid_addresses_are_rejected(servers: str) -> None:
    with pytest.raises(InvalidRequest, match="host:port"):
        bootstrap_addresses(servers)
