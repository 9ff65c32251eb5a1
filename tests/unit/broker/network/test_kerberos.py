"""The settings of a listener with GSSAPI, as far as they need no keytab."""

from __future__ import annotations

import pytest

from sparklog.broker.network.kerberos import KerberosLogin
from sparklog.broker.network.listeners import listeners_of
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.config.security import refuse_inline_secrets
from sparklog.core.errors import InvalidConfig

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
KEYTAB = f'{MODULE} required useKeyTab=true keyTab="/no/kafka.keytab"'
SERVICE = {"sasl.kerberos.service.name": "kafka"}
RULES = "sasl.kerberos.principal.to.local.rules"


def login(**settings: str) -> KerberosLogin:
    given = {
        "node.id": "1",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        **settings,
    }
    config = parse_broker_configs(given)
    (listener,) = listeners_of(config)
    return KerberosLogin(config, listener)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, f"needs a keytab: set {JAAS}={MODULE} required useKeyTab=true"),
        ({JAAS: f"{KEYTAB};"}, "needs one service name"),
        ({JAAS: f"{KEYTAB} serviceName=http;", **SERVICE}, "needs one service name"),
        ({JAAS: f"{MODULE} required useTicketCache=true;", **SERVICE}, "has its key in a keytab"),
        ({JAAS: f"{MODULE} required useKeyTab=true;", **SERVICE}, "has its key in a keytab"),
        ({JAAS: f'{KEYTAB} principal="http/h@R";', **SERVICE}, "begins with another service"),
        ({JAAS: f"{KEYTAB};", **SERVICE, RULES: "RULE:[1:$2]"}, "a rule is malformed"),
        (
            {JAAS: f"{KEYTAB};", **SERVICE, f"listener.name.sasl_plaintext.{RULES}": "X"},
            "a rule is malformed",
        ),
        (
            {JAAS: "org.apache.kafka.common.security.plain.PlainLoginModule required;", **SERVICE},
            f"GSSAPI needs {MODULE}",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        login(**settings)
    assert why in str(caught.value)


@pytest.mark.parametrize("principal", ["", "principal=*", 'principal="kafka/broker1@R"'])
def test_a_keytab_that_does_not_exist_stops_the_broker(principal: str) -> None:
    # Without the extra, the missing library does.
    with pytest.raises(InvalidConfig, match=r"the keytab cannot be used|sparklog\[gssapi\]"):
        login(**{JAAS: f"{KEYTAB} {principal};", **SERVICE})


def test_a_keytab_may_be_named_on_a_command_line() -> None:
    refuse_inline_secrets({JAAS: f"{KEYTAB};"})
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=marked;"
    with pytest.raises(InvalidConfig, match="a secret would be visible"):
        refuse_inline_secrets({JAAS: plain})
