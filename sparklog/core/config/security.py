"""Settings of listeners, TLS and SASL of a broker, under Kafka's names.

Most may be given for one listener: `listener.name.external.ssl.keystore.location`. Those of SASL
may also be given for one mechanism: `listener.name.external.plain.sasl.jaas.config`. The most
specific one is in force. Names of listeners and mechanisms are in lower case there.
Source: KIP-103, KIP-226, KIP-651.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sparklog.core.config.model import (
    INT_MAX,
    Config,
    Effect,
    Setting,
    SettingType,
    check_names,
    table_of,
)
from sparklog.core.config.properties import is_reference
from sparklog.core.errors import InvalidConfig

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
TLS_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
LISTENER_PREFIX: Final = "listener.name."
OAUTHBEARER_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"


def _text(
    name: str,
    reason: str,
    default: str = "",
    choices: tuple[str, ...] = (),
    kafka_default: str | None = None,
) -> Setting:
    return Setting(
        name,
        SettingType.STRING,
        default,
        Effect.BROKER,
        reason,
        choices=choices,
        kafka_default=kafka_default,
    )


def _secret(name: str, reason: str) -> Setting:
    return Setting(name, SettingType.PASSWORD, "", Effect.BROKER, reason)


_LISTENERS = (
    _text(
        "listener.security.protocol.map",
        "The security protocol of each listener name: EXTERNAL:SASL_SSL,INTERNAL:SSL. A name that "
        "is a protocol stands for itself.",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    ),
    _text(
        "inter.broker.listener.name",
        "The listener by which brokers reach each other. Empty: the one that "
        "security.inter.broker.protocol names, or the only or first listener.",
    ),
    _text(
        "security.inter.broker.protocol",
        "The listener by which brokers reach each other, where its name is a protocol.",
        choices=("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        kafka_default="PLAINTEXT",
    ),
    Setting(
        "max.connections.per.ip",
        SettingType.INT,
        INT_MAX,
        Effect.BROKER,
        "Connections from one address at once; a further one is closed at once.",
        unit="connections",
        at_least=0,
    ),
    _text(
        MAX_CONNECTIONS_PER_IP_OVERRIDES,
        "Other limits for some addresses: 10.0.0.7:100,127.0.0.1:200.",
    ),
    Setting(
        "max.connection.creation.rate",
        SettingType.INT,
        INT_MAX,
        Effect.BROKER,
        "New connections a second; beyond that, the broker accepts later.",
        unit="connections/s",
        at_least=1,
    ),
)

_OF_ONE_LISTENER = (
    _text("ssl.keystore.type", "The form of the key store. Only PEM is read.", "PEM", (), "JKS"),
    _text(
        "ssl.truststore.type", "The form of the trust store. Only PEM is read.", "PEM", (), "JKS"
    ),
    _text(
        "ssl.keystore.location",
        "A PEM file with the broker's private key and its certificate chain. A renewed file is "
        "used for the next connection.",
    ),
    _secret("ssl.keystore.key", "The private key as PEM, instead of a file."),
    _secret(
        "ssl.keystore.certificate.chain",
        "The certificate chain as PEM, together with ssl.keystore.key.",
    ),
    _secret("ssl.key.password", "The password of an encrypted private key."),
    _text("ssl.truststore.location", "A PEM file with the authorities whose clients are trusted."),
    _secret("ssl.truststore.certificates", "Trusted authorities as PEM, instead of a file."),
    _text(
        "ssl.client.auth",
        "Whether a client needs a certificate.",
        "none",
        choices=("none", "requested", "required"),
    ),
    Setting(
        "ssl.enabled.protocols",
        SettingType.LIST,
        TLS_PROTOCOLS,
        Effect.BROKER,
        "The versions of TLS.",
        choices=TLS_PROTOCOLS,
    ),
    Setting(
        "ssl.cipher.suites",
        SettingType.LIST,
        (),
        Effect.BROKER,
        "Cipher suites of TLS 1.2, by their IANA names. Empty: OpenSSL's choice. Those of TLS 1.3 "
        "are fixed.",
    ),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https: a broker checks that another one's certificate names its host. Empty: any name.",
        "https",
        choices=("", "https"),
    ),
    _text(
        "ssl.principal.mapping.rules",
        "Makes a user name from the distinguished name of a client's certificate. The first rule "
        "that matches is used: RULE:^CN=(.*?),.*$/$1/L,DEFAULT.",
        "DEFAULT",
    ),
    Setting(
        "ssl.allow.dn.changes",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether a renewed certificate may have another distinguished name.",
    ),
    Setting(
        "ssl.allow.san.changes",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether a renewed certificate may lack one of the names of the one before.",
    ),
    Setting(
        "sasl.enabled.mechanisms",
        SettingType.LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        Effect.BROKER,
        "The mechanisms by which clients may log in.",
        choices=SASL_MECHANISMS,
        kafka_default=("GSSAPI",),
    ),
    _secret(
        "sasl.jaas.config",
        "Users of PLAIN that are not in the metadata log: PlainLoginModule required "
        'user_alice="…";. Or the keytab of GSSAPI. Give it for one listener and mechanism.',
    ),
    Setting(
        "sasl.server.callback.handler.class",
        SettingType.CLASS,
        "",
        Effect.BROKER,
        "Kafka needs this class for bearer tokens; here they are validated without it.",
        choices=("", OAUTHBEARER_VALIDATOR),
    ),
    Setting(
        "sasl.server.max.receive.size",
        SettingType.INT,
        512 * 1024,
        Effect.BROKER,
        "Largest request before a client has logged in, in bytes.",
        at_least=1,
    ),
    Setting(
        "connections.max.reauth.ms",
        SettingType.LONG,
        0,
        Effect.BROKER,
        "Longest session of a login; a client logs in again before its end. 0: no end.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "sparklog.sasl.plain.allow.cleartext",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether PLAIN may be used without TLS, where anybody on the network can read passwords. "
        "Kafka allows it always.",
    ),
    _text(
        "sasl.kerberos.service.name",
        "The first component of the brokers' Kerberos principals: kafka of kafka/HOST@REALM.",
    ),
    Setting(
        "sasl.kerberos.principal.to.local.rules",
        SettingType.LIST,
        ("DEFAULT",),
        Effect.BROKER,
        "Makes a user name from a client's Kerberos principal. The first rule that applies is "
        "used: RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//,DEFAULT.",
    ),
    _text(
        "sasl.oauthbearer.jwks.endpoint.url",
        "The public keys of the tokens' issuer: an https address, or file:///path.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        SettingType.LONG,
        3_600_000,
        Effect.BROKER,
        "How often these keys are read again.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        SettingType.LONG,
        100,
        Effect.BROKER,
        "The first pause after these keys could not be read; it doubles from try to try.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        SettingType.LONG,
        10_000,
        Effect.BROKER,
        "The longest such pause.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "sasl.oauthbearer.expected.audience",
        SettingType.LIST,
        (),
        Effect.BROKER,
        "A token must have one of these audiences.",
    ),
    _text("sasl.oauthbearer.expected.issuer", "The exact issuer that a token must have."),
    Setting(
        "sasl.oauthbearer.allow.unverified.audience",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether a broker may start without an expected audience.",
    ),
    Setting(
        "sasl.oauthbearer.allow.unverified.issuer",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether a broker may start without an expected issuer.",
    ),
    Setting(
        "sasl.oauthbearer.clock.skew.seconds",
        SettingType.INT,
        30,
        Effect.BROKER,
        "Difference of clocks for which an expired token is still valid.",
        unit="s",
        at_least=0,
        at_most=3600,
    ),
    _text("sasl.oauthbearer.scope.claim.name", "The claim with a token's scope.", "scope"),
    _text("sasl.oauthbearer.sub.claim.name", "The claim with a token's user name.", "sub"),
)

_DAY_MS: Final = 86_400_000


def _token_time(name: str, default: int, reason: str) -> Setting:
    return Setting(name, SettingType.LONG, default, Effect.BROKER, reason, unit="ms", at_least=1)


_TOKENS = (
    _secret(
        "delegation.token.secret.key",
        "The key from which the secrets of delegation tokens derive, the same on all brokers. "
        "Empty: there are no tokens.",
    ),
    _token_time(
        "delegation.token.max.lifetime.ms",
        7 * _DAY_MS,
        "Longest life of a delegation token, with all renewals.",
    ),
    _token_time(
        "delegation.token.expiry.time.ms",
        _DAY_MS,
        "Life of a delegation token that is not renewed, and longest extension by one renewal.",
    ),
    _token_time(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "How often the controller removes delegation tokens that have expired.",
    ),
)

_DELAY = Setting(
    "connection.failed.authentication.delay.ms",
    SettingType.INT,
    100,
    Effect.BROKER,
    "Time between the answer to a failed login and the close of its connection.",
    unit="ms",
    at_least=0,
)

_PUBLIC: Final = frozenset({"ssl.keystore.certificate.chain", "ssl.truststore.certificates"})
"""Settings that Kafka hides as it hides passwords, though certificates are no secrets."""

_KERBEROS_LOGIN: Final = "com.sun.security.auth.module.Krb5LoginModule "
"""The beginning of a `sasl.jaas.config` without a secret: it names a keytab."""

LISTENER_SETTINGS: Final[Mapping[str, Setting]] = table_of(*_OF_ONE_LISTENER)
"""Settings that may be given for one listener."""
SECURITY_SETTINGS: Final = (*_LISTENERS, *_OF_ONE_LISTENER, *_TOKENS, _DELAY)
"""All settings of this module."""


def listener_prefix(listener: str, mechanism: str = "") -> str:
    """Return the beginning of the settings of one listener, or one listener's mechanism."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return f"{prefix}{mechanism.lower()}." if mechanism else prefix


def settings_of_listeners(given: Mapping[str, str]) -> dict[str, Setting]:
    """Return a definition for each given setting of one listener.

    Raises:
        InvalidConfig: there is no such setting for one listener, or for one mechanism.
    """
    found = {}
    for name in given:
        if not name.startswith(LISTENER_PREFIX):
            continue
        _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
        mechanism = next((m for m in SASL_MECHANISMS if rest.startswith(f"{m.lower()}.")), "")
        plain = rest.removeprefix(f"{mechanism.lower()}.") if mechanism else rest
        check_names([plain], LISTENER_SETTINGS)
        if mechanism and not plain.startswith(("sasl.", "connections.")):
            raise InvalidConfig(
                "only settings of SASL may be given for a mechanism; leave the mechanism out. "
                f"setting={name!r}"
            )
        found[name] = replace(LISTENER_SETTINGS[plain], name=name)
    return found


def setting_in_force(config: Config, name: str, listener: str, mechanism: str = "") -> str:
    """Return the name of the most specific setting that is given, or `name` itself."""
    prefixes = [listener_prefix(listener, mechanism)] if mechanism else []
    for prefix in (*prefixes, listener_prefix(listener)):
        if prefix + name in config.given:
            return prefix + name
    return name


def refuse_inline_secrets(given: Mapping[str, str]) -> None:
    """Reject secrets in clear text where others can see them, such as in a command line.

    Raises:
        InvalidConfig: a setting contains a secret instead of a reference.
    """
    secret = {one.name for one in SECURITY_SETTINGS if one.kind is SettingType.PASSWORD}
    secret -= _PUBLIC
    for name, text in given.items():
        is_secret = name in secret or any(name.endswith(f".{one}") for one in secret)
        if text.startswith(_KERBEROS_LOGIN):
            continue
        if is_secret and text.strip() and not is_reference(text):
            raise InvalidConfig(
                "a secret would be visible in the list of processes; refer to a file instead: "
                f"{name}=${{file:/run/secrets/kafka.properties:{name}}}. setting={name}"
            )
