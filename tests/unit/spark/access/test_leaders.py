"""The addresses of brokers in the metadata, for the security protocol of a client."""

from __future__ import annotations

import pytest

from sparklog.client.security import NO_SECURITY, SecuritySettings
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.cluster.metadata.records import BrokerEndpoint
from sparklog.core.errors import InvalidConfig
from sparklog.spark.access.leaders import registered

SASL_SSL = SecuritySettings({"security.protocol": "sasl_ssl"})


def image(*brokers: Broker) -> MetadataImage:
    return MetadataImage(brokers={broker.broker_id: broker for broker in brokers})


def broker(number: int, *endpoints: BrokerEndpoint) -> Broker:
    return Broker(number, "a", f"inside-{number}", 9092, None, number, endpoints=endpoints)


def both(number: int) -> Broker:
    return broker(
        number,
        BrokerEndpoint("INTERNAL", "SSL", f"inside-{number}", 9092),
        BrokerEndpoint("EXTERNAL", "SASL_SSL", f"outside-{number}", 9094),
    )


def test_brokers_are_reached_by_the_listener_of_the_protocol() -> None:
    assert registered(image(both(1), both(2)), SASL_SSL) == "outside-1:9094,outside-2:9094"
    mutual = SecuritySettings({"security.protocol": "SSL"})
    assert registered(image(both(1)), mutual) == "inside-1:9092"


def test_a_single_plain_listener_serves_each_client() -> None:
    assert registered(image(broker(1)), NO_SECURITY) == "inside-1:9092"
    assert registered(image(), NO_SECURITY) == ""


def test_a_protocol_that_no_listener_has_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match="protocols=SASL_SSL,SSL"):
        registered(image(both(1)), NO_SECURITY)
