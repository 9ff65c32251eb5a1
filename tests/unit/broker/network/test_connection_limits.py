"""Limits on connections: from one address, and a second."""

from __future__ import annotations

import pytest

from sparklog.broker.network.connection_limits import ADDRESSES_KEPT, ConnectionLimits, host_of
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import InvalidConfig
from sparklog.core.quotas import CONNECTION_CREATION_RATE, Quotas, entity_of


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


def quota(rate: float, ip: str | None = "10.0.0.1") -> Quotas:
    return {entity_of({"ip": ip}): {CONNECTION_CREATION_RATE: rate}}


def test_connections_over_the_quota_of_an_address_are_held() -> None:
    found, quotas = limits(), quota(2)
    assert [found.hold_s(quotas, "10.0.0.1", 0.0) for _ in range(20)] == [0.0] * 20
    assert found.hold_s(quotas, "10.0.0.2", 0.0) == 0.0
    # Held ones do not count, so the next one has its place half a second later.
    assert [found.hold_s(quotas, "10.0.0.1", 0.0) for _ in range(3)] == [0.5] * 3
    assert found.hold_s(quotas, "10.0.0.1", 0.51) == 0.0
    assert found.hold_s(quotas, "10.0.0.1", 0.51) > 0.0
    assert found.hold_s({}, "10.0.0.1", 0.51) == 0.0


def test_default_quota_holds_for_each_address_without_its_own() -> None:
    found, quotas = limits(quota_window_num="2"), {**quota(1, None), **quota(3)}
    assert [found.hold_s(quotas, "10.0.0.1", 0.0) for _ in range(4)] == [0, 0, 0, 1 / 3]
    for host in ("10.0.0.2", "10.0.0.3"):
        assert [found.hold_s(quotas, host, 0.0) for _ in range(2)] == [0.0, 1.0]


def test_quota_of_zero_connections_holds_each_for_one_window() -> None:
    assert limits().hold_s(quota(0), "10.0.0.1", 0.0) == 1.0


def test_limits_forget_addresses_that_opened_nothing_for_a_while() -> None:
    found, quotas = limits(), quota(1, None)
    for number in range(3 * ADDRESSES_KEPT):
        assert found.hold_s(quotas, f"10.{number >> 8}.{number & 255}.1", 100.0 * number) == 0.0
    assert len(found._buckets) <= ADDRESSES_KEPT


def test_an_ipv4_address_on_a_socket_for_both_kinds_is_plain() -> None:
    assert host_of(("::ffff:10.0.0.1", 5, 0, 0)) == "10.0.0.1"
    assert host_of(("::1", 5, 0, 0)) == "::1"
    assert host_of(("10.0.0.1", 5)) == "10.0.0.1"
    assert host_of(None) == ""


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", ":5", "no.such.host.invalid:5"])
def test_a_malformed_override_is_an_error(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        limits(max_connections_per_ip_overrides=text)
