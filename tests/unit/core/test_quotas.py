"""Quotas of clients and users: Kafka's order of precedence, and values that are rejected."""

from __future__ import annotations

from math import inf, nan

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.core.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    TokenBucket,
    check_quota,
    connection_rates,
    entity_of,
    limit_of,
)

CLIENT = entity_of({"client-id": "c"})
ADDRESS = entity_of({"ip": "10.0.0.1"})
MOST_SPECIFIC_FIRST: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", None)),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", None)),
    ({"client-id": "c"}, (None, "c")),
    ({"client-id": None}, (None, "c")),
]
"""Source: Kafka's documentation, section Quota Configuration."""


def test_the_most_specific_quota_counts() -> None:
    quotas = {
        entity_of(parts): {PRODUCER_BYTE_RATE: float(number)}
        for number, (parts, _) in enumerate(MOST_SPECIFIC_FIRST, 1)
    }
    for number, (parts, shared_by) in enumerate(MOST_SPECIFIC_FIRST, 1):
        found = limit_of(quotas, PRODUCER_BYTE_RATE, "u", "c")
        assert found == Limit(float(number), shared_by), parts
        assert limit_of(quotas, CONSUMER_BYTE_RATE, "u", "c") is None
        del quotas[entity_of(parts)]
    assert limit_of(quotas, PRODUCER_BYTE_RATE, "u", "c") is None


def test_quota_of_one_kind_does_not_hide_a_less_specific_other_kind() -> None:
    quotas = {
        entity_of({"client-id": "c"}): {PRODUCER_BYTE_RATE: 5.0},
        entity_of({"client-id": None}): {CONSUMER_BYTE_RATE: 7.0},
    }
    assert limit_of(quotas, CONSUMER_BYTE_RATE, "u", "c") == Limit(7.0, (None, "c"))
    assert limit_of(quotas, PRODUCER_BYTE_RATE, "u", "d") is None


@pytest.mark.parametrize(
    "parts",
    [{}, {"ip": "example.com"}, {"ip": ""}, {"ip": "::1", "user": "u"}, {"group": "g"}, {"": None}],
)
def test_quotas_exist_only_for_users_clients_and_addresses(parts: dict[str, str | None]) -> None:
    with pytest.raises(InvalidRequest):
        entity_of(parts)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 1.5, inf, nan, 2.0**63])
def test_a_rate_is_a_whole_number_from_one_on(value: float) -> None:
    with pytest.raises(InvalidRequest, match="whole number"):
        check_quota(CLIENT, PRODUCER_BYTE_RATE, value)


@pytest.mark.parametrize("key", [CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE])
@pytest.mark.parametrize("value", [0.0, -1.0, inf, nan])
def test_changes_and_percentages_are_any_number_above_zero(key: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match="a number above 0"):
        check_quota(CLIENT, key, value)
    check_quota(CLIENT, key, 0.25)


def test_an_overdrawn_bucket_reports_the_wait_without_a_charge() -> None:
    bucket = TokenBucket(per_s=2.0, burst_s=5.0, now_s=100.0)
    assert bucket.wait_s(100.0) == 0.0
    assert bucket.spend(14.0, 100.0) == 2.0
    assert bucket.wait_s(101.0) == bucket.wait_s(101.0) == 1.0
    assert bucket.wait_s(102.0) == 0.0
    forgetful = TokenBucket(per_s=2.0, burst_s=5.0, now_s=100.0, debt_max_s=3.0)
    assert forgetful.spend(1e9, 100.0) == 3.0


def test_an_unknown_quota_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="no such quota"):
        check_quota(CLIENT, "producer_bite_rate", 10.0)
    check_quota(CLIENT, PRODUCER_BYTE_RATE, 2.0**62)


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::A", "2001:db8::a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        (None, None),
    ],
)
def test_an_address_has_one_name(name: str | None, usual: str | None) -> None:
    assert entity_of({"ip": name}) == (("ip", usual),)


def test_keys_of_addresses_and_of_clients_exclude_each_other() -> None:
    for entity, key in ((ADDRESS, PRODUCER_BYTE_RATE), (CLIENT, CONNECTION_CREATION_RATE)):
        with pytest.raises(InvalidRequest, match="no such quota"):
            check_quota(entity, key, 5.0)
    for value in (0.0, 2.0**31 - 1):
        check_quota(ADDRESS, CONNECTION_CREATION_RATE, value)
    for value in (-1.0, 0.5, 2.0**31):
        with pytest.raises(InvalidRequest, match="connections per second"):
            check_quota(ADDRESS, CONNECTION_CREATION_RATE, value)


def test_rates_of_connections_are_found_by_address() -> None:
    quotas = {
        ADDRESS: {CONNECTION_CREATION_RATE: 5.0},
        entity_of({"ip": None}): {CONNECTION_CREATION_RATE: 9.0},
        CLIENT: {PRODUCER_BYTE_RATE: 1.0},
    }
    assert connection_rates(quotas) == {"10.0.0.1": 5.0, None: 9.0}
