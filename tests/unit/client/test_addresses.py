from __future__ import annotations

import pytest

from sparklog.client.addresses import BrokerAddress, bootstrap_addresses
from sparklog.core.errors import InvalidRequest


def test_lists_of_addresses_are_read_with_kafkas_port_as_default() -> None:
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
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(InvalidRequest, match="host:port"):
        bootstrap_addresses(servers)
