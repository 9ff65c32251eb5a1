"""Limits on connections: from one address, and a second."""

from __future__ import annotations

import pytest

from sparklog.broker.network.connection_limits import ConnectionLimits, host_of
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import InvalidConfig


def limits(**settings: str) -> ConnectionLimits:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return ConnectionLimits(parse_broker_configs(given), now_s=0.0)


def test_an_address_has_so_many_connections_at_once() -> None:
    found = limits(
        max_connections_per_ip="2", max_connections_per_ip_overrides="10.0.0.7:1, [::1]:3"
    )
    assert [found.opened("10.0.0.1") for _ in range(3)] == [True, True, False]
    found.closed("10.0.0.1")
    assert found.opened("10.0.0.1")
    assert [found.opened("10.0.0.7") for _ in range(2)] == [True, False]
    assert found.limit_of("::1") == 3


def test_connections_over_the_rate_make_the_next_one_wait() -> None:
    found = limits(max_connection_creation_rate="10")
    assert [found.pause_s(0.0) for _ in range(10)] == [0.0] * 10
    assert found.pause_s(0.0) == pytest.approx(0.1)
    assert found.pause_s(0.0) == pytest.approx(0.2)
    assert found.pause_s(5.0) == 0.0


def test_an_ipv4_address_on_a_socket_for_both_kinds_is_plain() -> None:
    assert host_of(("::ffff:10.0.0.1", 5, 0, 0)) == "10.0.0.1"
    assert host_of(("::1", 5, 0, 0)) == "::1"
    assert host_of(("10.0.0.1", 5)) == "10.0.0.1"
    assert host_of(None) == ""


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", ":5", "no.such.host.invalid:5"])
def test_a_malformed_override_is_an_error(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        limits(max_connections_per_ip_overrides=text)
