"""Kafka's client settings for TLS and SASL, by Java's names and by librdkafka's."""

from __future__ import annotations

import pickle
from pathlib import Path

import confluent_kafka as ck
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.security import SecuritySettings, read_client_file
from sparklog.client.security_settings import (
    MECHANISMS,
    SECRETS,
    ClientSecurity,
    SaslSettings,
    inline_secrets,
    librdkafka_settings,
    parse_security,
)
from sparklog.core.errors import InvalidConfig
from sparklog.security.protocol import SecurityProtocol

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{MODULE} required username="alice" password="marked";',
}
PEM = "-----BEGIN X-----\nAAAA\n-----END X-----\n"
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_nothing_given_is_plaintext() -> None:
    assert parse_security({}) == ClientSecurity(SecurityProtocol.PLAINTEXT)
    assert librdkafka_settings(parse_security({})) == {"security.protocol": "plaintext"}


def test_both_families_of_names_give_the_same_login() -> None:
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "marked",
    }
    assert parse_security(librdkafka) == parse_security(SCRAM)
    assert "marked" not in repr(parse_security(SCRAM))


def test_librdkafka_accepts_the_settings() -> None:
    settings = librdkafka_settings(parse_security(SCRAM))
    assert settings["sasl.username"] == "alice"
    assert settings["ssl.endpoint.identification.algorithm"] == "https"
    assert ck.Producer(settings) is not None


def test_client_certificate_is_taken_in_each_form() -> None:
    ssl = {"security.protocol": "SSL"}
    one_file = parse_security({**ssl, "ssl.keystore.location": "/k.pem"}).tls
    two_files = parse_security(
        {**ssl, "ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"}
    ).tls
    inline = parse_security(
        {**ssl, "ssl.keystore.certificate.chain": PEM, "ssl.keystore.key": PEM}
    ).tls
    assert one_file is not None
    assert two_files is not None
    assert inline is not None
    assert (one_file.certificate_location, one_file.key_location) == ("/k.pem", "/k.pem")
    assert (two_files.certificate_location, two_files.key_location) == ("/c.pem", "/k.pem")
    assert (inline.certificate_chain, inline.key) == (PEM, PEM)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of"),
        ({"security.protocol": "SSL"}, "act with SASL_SSL or SASL_PLAINTEXT only"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.key.password": "x"}, "SSL or SASL_SSL only"),
        ({"sasl.mechanism": "CRAM-MD5"}, "sasl.mechanism is one of"),
        ({"sasl.mechanism": "GSSAPI"}, "belongs to another mechanism; GSSAPI needs com.sun"),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{KERBEROS} required;"},
            "GSSAPI needs one service name",
        ),
        (
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": f"{KERBEROS} required useKeyTab=true serviceName=kafka;",
            },
            "a login by a keytab names it",
        ),
        ({"sasl.mechanism": "PLAIN"}, "belongs to another mechanism"),
        ({"sasl.jaas.config": ""}, "needs a user name and a password"),
        ({"sasl.jaas.config": f"{MODULE} required username=a;"}, "user name and a password"),
        ({"sasl.mechanisms": "PLAIN"}, "under two names"),
        ({"ssl.truststore.locatoin": "x"}, "did you mean ssl.truststore.location"),
        ({"ssl.truststore.type": "JKS"}, "openssl pkcs12 -in store.p12 -nokeys -cacerts"),
        ({"ssl.keystore.location": "/a/client.p12"}, "openssl pkcs12 -in store.p12 -nodes"),
        ({"ssl.keystore.type": "BKS"}, "is PEM"),
        ({"ssl.truststore.password": "marked"}, "no store password"),
        ({"enable.ssl.certificate.verification": "false"}, "always verified"),
        ({"ssl.keystore.key": PEM}, "needs its key"),
        ({"ssl.key.location": "K"}, "needs its key"),
        ({"ssl.keystore.location": "K", "ssl.key.location": "K"}, "one certificate"),
        ({"ssl.ca.location": "A", "ssl.ca.pem": PEM}, "not both"),
        ({"ssl.ca.pem": "marked"}, "has no PEM block"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "is https"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidConfig, match=match) as caught:
        parse_security({**SCRAM, **change})
    assert "marked" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "one source of tokens"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/token"}, "client id and a client secr"),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///a",
                "sasl.jaas.config": f"{OAUTH_MODULE} required token=marked;",
            },
            "one source of tokens",
        ),
    ],
)
def test_tokens_need_one_complete_source(settings: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidConfig, match=match):
        parse_security({**OAUTH, **settings})


def test_token_sources_are_read() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://a/token"}
    options = f"{OAUTH_MODULE} required clientId=me clientSecret=marked scope=s;"
    by_jaas = parse_security({**OAUTH, **url, "sasl.jaas.config": options}).sasl
    prefix = "sasl.oauthbearer.client.credentials.client."
    by_names = parse_security(
        {
            **OAUTH,
            **url,
            f"{prefix}id": "me",
            f"{prefix}secret": "marked",
            "sasl.oauthbearer.scope": "s",
        }
    ).sasl
    assert by_jaas == by_names
    assert by_jaas is not None
    assert by_jaas.client_secret == "marked"
    assert "marked" not in repr(by_jaas)


def test_settings_of_java_alone_are_left_out() -> None:
    java = {"sasl.login.refresh.window.factor": "0.8", "ssl.protocol": "TLSv1.3"}
    assert parse_security({**SCRAM, **java}) == parse_security(SCRAM)


def test_inline_secrets_are_found() -> None:
    assert inline_secrets(SCRAM) == ["sasl.jaas.config"]
    safe = f'{MODULE} required username="alice" password="${{file:/a:b}}";'
    assert inline_secrets({**SCRAM, "sasl.jaas.config": safe}) == []
    assert inline_secrets({"sasl.jaas.config": "${file:/a:b}", "ssl.keystore.key": "x"}) == [
        "ssl.keystore.key"
    ]
    with pytest.raises(InvalidConfig, match=r"options=kafka\.sasl\.jaas\.config"):
        SecuritySettings(SCRAM).check_no_inline_secrets("kafka.")


def test_secrets_are_read_late_and_never_shown(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text('password=first"quote\n')
    line = f'{MODULE} required username="alice" password="${{file:{secrets}:password}}";'
    settings = SecuritySettings({**SCRAM, "sasl.jaas.config": line})
    settings.check_no_inline_secrets("kafka.")
    copied = pickle.loads(pickle.dumps(settings))  # as Spark ships it
    assert copied == settings
    sasl = copied.resolve().sasl
    assert sasl.password == 'first"quote'
    secrets.write_text("password=second\n")
    assert copied.resolve().sasl.password == "second"
    assert "marked" not in repr(SecuritySettings(SCRAM))


def test_client_file_is_split(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nclient.id=me\n")
    security, rest = read_client_file(file, "--command-config")
    assert security == SecuritySettings({"security.protocol": "SSL"})
    assert rest == {"client.id": "me"}


@given(
    st.sampled_from(MECHANISMS[:3]),
    st.text().map(lambda text: f"marked-{text}-end"),
    st.sampled_from(["SASL_SSL", "SASL_PLAINTEXT"]),
)
def test_any_password_arrives_and_is_hidden(mechanism: str, password: str, protocol: str) -> None:
    given_ = {"sasl.username": "u", "sasl.password": "${env:P}", "sasl.mechanism": mechanism}
    parsed = parse_security(
        {**given_, "security.protocol": protocol},
        lambda _, text: password if "${" in text else text,
    )
    assert parsed.sasl is not None
    assert parsed.sasl.password == password
    assert librdkafka_settings(parsed)["sasl.password"] == password
    assert "marked" not in repr(parsed)


def test_every_secret_is_hidden_in_repr() -> None:
    names = sorted(SECRETS - {"ssl.keystore.password", "ssl.truststore.password"})
    for name in names:
        assert "marked" not in repr(SecuritySettings({name: "marked"}))


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/k" principal="a@R";'},
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.keytab": "/k",
            "sasl.kerberos.principal": "a@R",
            "sasl.kerberos.kinit.cmd": "x",
            "sasl.kerberos.ticket.renew.jitter": "0.1",
        },
    ],
)
def test_a_keytab_is_found_by_names_of_java_and_librdkafka(settings: dict[str, str]) -> None:
    listener = {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka"}
    security = parse_security({**listener, **settings})
    assert security.sasl == SaslSettings("GSSAPI", service="kafka", keytab="/k", principal="a@R")
    with pytest.raises(InvalidConfig, match="has no GSSAPI in the wheels"):
        librdkafka_settings(security)


def test_a_ticket_cache_needs_no_keytab() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": f'{KERBEROS} required useTicketCache=true serviceName="kafka";',
    }
    assert parse_security(given).sasl == SaslSettings("GSSAPI", service="kafka")
