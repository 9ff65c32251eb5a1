"""Listening and advertised addresses of brokers, for every kind of master and option."""

from __future__ import annotations

import itertools
import socket

import pytest

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.spark.jobs.addresses import Place, is_local, is_loopback, outward_address, place_of

OWN = "192.168.77.5"
LOCAL = ("local", "local[2]", "local[*]", "local-cluster[3,2,1024]")
CLUSTERS = ("yarn", "spark://host:7077", "k8s://https://host:6443")


def place(master: str, listen: str | None = None, advertised: str | None = None) -> Place:
    return place_of(master, listen, advertised, lambda: OWN)


@pytest.mark.parametrize("master", LOCAL)
def test_brokers_stay_on_loopback_when_all_is_on_this_machine(master: str) -> None:
    assert is_local(master)
    assert place(master) == Place("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("master", CLUSTERS)
def test_cluster_brokers_listen_everywhere_and_advertise_their_own(
    master: str,
) -> None:
    assert not is_local(master)
    assert place(master) == Place("", None)


@pytest.mark.parametrize("wildcard", ["", "0.0.0.0", "::"])
def test_a_wildcard_advertises_an_address_that_others_reach(wildcard: str) -> None:
    assert place("local-cluster[3,2,1024]", wildcard) == Place("", OWN)
    assert place("yarn", wildcard) == Place("", None)


def test_an_advertised_name_of_elsewhere_is_listened_to() -> None:
    assert place("local[2]", None, "kafka.example") == Place("", "kafka.example")
    assert place("local[2]", None, "localhost") == Place("127.0.0.1", "localhost")


@pytest.mark.parametrize(
    ("master", "listen"),
    [*itertools.product((*LOCAL, *CLUSTERS), (None, "", "0.0.0.0", "::", "::1", "10.0.0.7"))],
)
def test_advertised_address_is_listened_to_unless_both_are_set(
    master: str, listen: str | None
) -> None:
    found = place(master, listen)
    everywhere = found.listen_host in EVERY_INTERFACE
    assert everywhere or found.advertised_host == found.listen_host


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.1.1", True), ("::1", True), ("localhost", True), (OWN, False), ("kafka", False)],
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_the_outward_address_can_be_bound_here() -> None:
    host = outward_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        assert server.getsockname()[0] == host
