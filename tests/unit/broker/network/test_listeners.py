"""Settings of listeners: names, protocols, addresses, and the listener for brokers."""

from __future__ import annotations

import pytest

from sparklog.broker.network.listeners import advertised_of, listeners_of
from sparklog.broker.runtime.environment import Address
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.config.security import refuse_inline_secrets, setting_in_force
from sparklog.core.errors import InvalidConfig
from sparklog.security.protocol import SecurityProtocol

TWO = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://:9094",
    "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
}


def test_each_listener_has_its_name_protocol_and_address() -> None:
    internal, external = listeners_of(parse_broker_configs(TWO))
    assert (internal.name, internal.protocol) == ("INTERNAL", SecurityProtocol.SSL)
    assert internal.address == Address("127.0.0.1", 0)
    assert internal.is_inter_broker
    assert (external.name, external.protocol) == ("EXTERNAL", SecurityProtocol.SASL_SSL)
    assert external.address == Address("", 9094)
    assert not external.is_inter_broker


@pytest.mark.parametrize(
    ("settings", "inter_broker"),
    [
        ({}, "PLAINTEXT"),
        ({"listeners": "SASL_SSL://h:1,PLAINTEXT://h:2"}, "PLAINTEXT"),
        ({"listeners": "SASL_SSL://h:1,SSL://h:2"}, "SASL_SSL"),
        (
            {
                "listeners": "SASL_SSL://h:1,PLAINTEXT://h:2",
                "security.inter.broker.protocol": "SASL_SSL",
            },
            "SASL_SSL",
        ),
        (
            {"listeners": "SSL://h:1,PLAINTEXT://h:2", "inter.broker.listener.name": "SSL"},
            "SSL",
        ),
    ],
)
def test_brokers_use_the_named_or_the_plain_or_the_first_listener(
    settings: dict[str, str], inter_broker: str
) -> None:
    found = listeners_of(parse_broker_configs(settings))
    assert [one.name for one in found if one.is_inter_broker] == [inter_broker]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "A://h:1"}, "set listener.security.protocol.map"),
        ({"listeners": "SSL://h:1,ssl://h:2"}, "has a name twice"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:1"}, "a port of its own"),
        ({"listeners": "SSL://h:70000"}, "takes NAME://host:port"),
        ({"listeners": "SSL"}, "takes NAME://host:port"),
        ({"listener.security.protocol.map": "A:TLS"}, "takes NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "B"}, "is not one of the listeners"),
        (
            {"inter.broker.listener.name": "B", "security.inter.broker.protocol": "SSL"},
            "not both",
        ),
    ],
)
def test_a_wrong_listener_is_an_error_that_names_the_setting(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        listeners_of(parse_broker_configs(settings))


def test_each_listener_is_advertised_at_its_own_address() -> None:
    given = parse_broker_configs({**TWO, "advertised.listeners": "EXTERNAL://kafka.example:19094"})
    bound = {"INTERNAL": Address("127.0.0.1", 40000), "EXTERNAL": Address("", 9094)}
    assert advertised_of(given, bound) == {
        "INTERNAL": Address("127.0.0.1", 40000),
        "EXTERNAL": Address("kafka.example", 19094),
    }
    with pytest.raises(InvalidConfig, match=r"set advertised\.listeners"):
        advertised_of(parse_broker_configs(TWO), bound)
    unknown = parse_broker_configs({**TWO, "advertised.listeners": "OTHER://h:1"})
    with pytest.raises(InvalidConfig, match=r"not in listeners\. names=OTHER"):
        advertised_of(unknown, bound)


def test_the_most_specific_setting_of_a_listener_is_in_force() -> None:
    given = parse_broker_configs(
        {
            **TWO,
            "ssl.keystore.location": "/all",
            "listener.name.external.ssl.keystore.location": "/external",
            "connections.max.reauth.ms": "1",
            "listener.name.external.connections.max.reauth.ms": "2",
            "listener.name.external.scram-sha-512.connections.max.reauth.ms": "3",
        }
    )

    def value(name: str, listener: str, mechanism: str = "") -> object:
        return given[setting_in_force(given, name, listener, mechanism)]

    assert value("ssl.keystore.location", "INTERNAL") == "/all"
    assert value("ssl.keystore.location", "EXTERNAL") == "/external"
    assert value("connections.max.reauth.ms", "INTERNAL", "PLAIN") == 1
    assert value("connections.max.reauth.ms", "EXTERNAL", "PLAIN") == 2
    assert value("connections.max.reauth.ms", "EXTERNAL", "SCRAM-SHA-512") == 3


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.external.wal.bytes",
        "listener.name.external.ssl.keystore.locaton",
        "listener.name.external.plain.ssl.keystore.location",
    ],
)
def test_a_setting_that_no_listener_has_is_an_error(name: str) -> None:
    with pytest.raises(InvalidConfig, match="setting="):
        parse_broker_configs({name: "1"})


def test_secrets_are_hidden_and_not_taken_from_a_command_line() -> None:
    secret = "listener.name.external.ssl.key.password"
    given = parse_broker_configs({secret: "open sesame", "ssl.keystore.key": "k"})
    shown = given.spelled()
    assert shown[secret] == shown["ssl.keystore.key"] == "[hidden]"
    with pytest.raises(InvalidConfig, match="refer to a file instead") as caught:
        refuse_inline_secrets({secret: "open sesame"})
    assert "sesame" not in str(caught.value)
    refuse_inline_secrets({secret: "${file:/run/secrets/kafka.properties:password}"})
    refuse_inline_secrets({"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----"})
