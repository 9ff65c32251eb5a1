"""The client id by which brokers know each other."""

from __future__ import annotations

import pytest

from sparklog.broker.network.cluster_secret import client_id, is_broker
from sparklog.broker.runtime.environment import Address

SECRET = "0123456789abcdef" * 2
HERE = Address("10.0.0.1", 9092)


def test_a_client_id_is_a_brokers_only_with_the_secret_of_the_cluster() -> None:
    assert is_broker(client_id(3, SECRET, HERE), SECRET, HERE)
    assert not is_broker(client_id(3, SECRET[::-1], HERE), SECRET, HERE)


def test_a_client_id_is_of_no_use_at_another_address() -> None:
    sent = client_id(3, SECRET, Address("10.0.0.1", 9093))
    assert not is_broker(sent, SECRET, HERE)


def test_a_client_id_holds_nothing_of_the_secret() -> None:
    assert SECRET[:4] not in client_id(3, SECRET, HERE)


@pytest.mark.parametrize("sent", [None, "", "broker-3", "broker-3 ", "broker-3 ä", SECRET])
def test_no_other_client_id_is_a_brokers(sent: str | None) -> None:
    assert not is_broker(sent, SECRET, HERE)


def test_a_cluster_without_a_secret_knows_no_broker() -> None:
    assert not is_broker(client_id(3, "", HERE), "", HERE)
