"""ClientSecurity: Kafka's client settings for TLS and SASL, checked, and in librdkafka's names.

Both families of names are known: Java's (`sasl.jaas.config`, `ssl.truststore.location`) and
librdkafka's (`sasl.username`, `ssl.ca.location`). Certificates and keys are PEM (KIP-651). No value
with a secret is in a `repr` or in an error. This module reads no files; `security` beside it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from sparklog.core.config.properties import is_reference
from sparklog.core.config.providers import is_declaration
from sparklog.core.errors import InvalidConfig
from sparklog.security.jaas import (
    KERBEROS_MODULE,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasLogin,
    parse_jaas,
    read_jaas,
)
from sparklog.security.pem import normal_pem
from sparklog.security.protocol import SecurityProtocol

OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, GSSAPI)

SECRETS: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""Settings whose value is, or has, a secret."""
SECRET_OPTIONS: Final = frozenset({"password", "clientSecret", "token"})
"""Options of `sasl.jaas.config` that are secrets."""

_ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's names of settings that Java has under another name."""

_KNOWN: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.type",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
)
_PEM: Final = {
    "ssl.truststore.certificates",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
}
"""Settings whose value is PEM text."""
_WITHOUT_EFFECT: Final = (
    "sasl.client.callback.handler.class",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.",
    "sasl.login.",
    "sasl.oauthbearer.method",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Settings of Java's own machinery, by their beginning; a file made for Java may have them."""
_PREFIXES: Final = ("enable.ssl.", "enable.sasl.", "sasl.", "security.", "ssl.")
_JAVA_STORES: Final = ("JKS", "PKCS12")
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of a client. Without a trust store, the system's certificate authorities count."""

    truststore_location: str = ""
    truststore_certificates: str = field(default="", repr=False)
    certificate_location: str = ""
    """PEM file with the client's certificate and its chain."""
    key_location: str = ""
    """PEM file with the client's key; often the same one."""
    certificate_chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    verify_host: bool = True
    """True if the certificate must name the host."""
    versions: tuple[str, ...] = _TLS_VERSIONS


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """SASL of a client."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """A static bearer token."""
    token_url: str = ""
    """`file:///path` of a token, or the https address of an OAuth server."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    by_token: bool = False
    """True if user and password are the id and the HMAC of a delegation token."""
    service: str = ""
    """The first component of the brokers' Kerberos principals."""
    keytab: str = ""
    """File with the client's Kerberos key; empty: the ticket cache."""
    principal: str = ""
    """The client's Kerberos principal; empty: the one of the ticket cache or the keytab."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Checked settings; secrets are resolved."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


def is_security_setting(name: str) -> bool:
    """Return True for names of this module's settings, known or not."""
    return name.startswith(_PREFIXES) or is_declaration(name)


def check_security_names(given: Mapping[str, str]) -> None:
    """Check the names of settings.

    Raises:
        InvalidConfig: a name is unknown or not supported, or given in both families.
    """
    _normal(given)


def inline_secrets(given: Mapping[str, str]) -> list[str]:
    """Return the settings that contain a secret in clear text instead of a reference, sorted.

    Raises:
        InvalidConfig: `sasl.jaas.config` is malformed.
    """
    found = []
    for name, text in given.items():
        if name not in SECRETS or is_reference(text) or not text.strip():
            continue
        if name == "sasl.jaas.config":
            options = parse_jaas(text).options
            if all(is_reference(options[o]) for o in SECRET_OPTIONS & options.keys()):
                continue
        found.append(name)
    return sorted(found)


def parse_security(
    given: Mapping[str, str], secret: Callable[[str, str], str] = lambda name, text: text
) -> ClientSecurity:
    """Return the checked settings.

    Args:
        given: settings by either family's names.
        secret: returns the text of a setting, by name and text, with its references replaced.

    Raises:
        InvalidConfig: an unknown name, a wrong value, or a combination that cannot work.
    """
    normal = _normal(given)
    line = normal.pop("sasl.jaas.config", "")
    values = {name: secret(name, text).strip() for name, text in normal.items()}
    values |= {name: normal_pem(values[name], name) for name in _PEM & values.keys()}
    text = values.get("security.protocol", "PLAINTEXT").upper()
    if text not in SecurityProtocol.__members__:
        raise InvalidConfig(
            f"security.protocol is one of {', '.join(SecurityProtocol)}. security.protocol={text}"
        )
    protocol = SecurityProtocol[text]
    for family, used in (("sasl.", protocol.sasl), ("ssl.", protocol.tls)):
        unused = [name for name in (*values, *(["sasl.jaas.config"] if line else ()))
                  if name.startswith(family)]  # fmt: skip
        if unused and not used:
            wanted = "SASL_SSL or SASL_PLAINTEXT" if family == "sasl." else "SSL or SASL_SSL"
            raise InvalidConfig(
                f"these settings act with {wanted} only; set security.protocol. "
                f"security.protocol={protocol} settings={sorted(unused)}"
            )
    return ClientSecurity(
        protocol,
        _tls(values) if protocol.tls else None,
        _sasl(values, line, secret) if protocol.sasl else None,
    )


def librdkafka_settings(security: ClientSecurity) -> dict[str, str]:
    """Return the settings under librdkafka's names, without a bearer token.

    OAUTHBEARER needs the callback of `security.SecuritySettings` in addition.

    Raises:
        InvalidConfig: the login is by a delegation token.
    """
    found = {"security.protocol": security.protocol.lower()}
    if security.tls is not None:
        tls = security.tls
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_host else "none"
        found |= {
            name: value
            for name, value in {
                "ssl.ca.location": tls.truststore_location,
                "ssl.ca.pem": tls.truststore_certificates,
                "ssl.certificate.location": tls.certificate_location,
                "ssl.key.location": tls.key_location,
                "ssl.certificate.pem": tls.certificate_chain,
                "ssl.key.pem": tls.key,
                "ssl.key.password": tls.key_password,
            }.items()
            if value
        }
    if security.sasl is not None:
        if security.sasl.by_token:
            raise InvalidConfig(
                "librdkafka, by which Producer and Consumer work, cannot log in by a delegation "
                "token; Admin, Java clients and Spark's Kafka connector can. Give a password, a "
                "bearer token (OAUTHBEARER) or a client certificate instead. "
                'sasl.jaas.config has tokenauth="true"'
            )
        if security.sasl.mechanism == GSSAPI:
            raise InvalidConfig(
                "librdkafka, by which Producer and Consumer work, has no GSSAPI in the wheels of "
                "confluent-kafka; Admin, Java clients and kafka-python have it. Log in by "
                "SCRAM-SHA-512, OAUTHBEARER or a client certificate instead. sasl.mechanism=GSSAPI"
            )
        found["sasl.mechanisms"] = security.sasl.mechanism
        if security.sasl.user:
            found |= {
                "sasl.username": security.sasl.user,
                "sasl.password": security.sasl.password,
            }
    return found


def _normal(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings under Java's names where Java has one, without those that have no effect."""
    found: dict[str, str] = {}
    for name, text in given.items():
        known = _ALIASES.get(name, name)
        if known in ("ssl.keystore.password", "ssl.truststore.password"):
            raise InvalidConfig(
                f"PEM files have no store password; an encrypted key has ssl.key.password. "
                f"setting={name}"
            )
        if name == "enable.ssl.certificate.verification":
            raise InvalidConfig(
                "certificates are always verified; name the broker's CA in "
                f"ssl.truststore.location. setting={name}"
            )
        if is_declaration(name) or name.startswith(_WITHOUT_EFFECT):
            continue
        if known not in _KNOWN:
            close = get_close_matches(known, _KNOWN, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_KNOWN)}."
            raise InvalidConfig(f"unknown security setting: {hint} setting={name}")
        if known in found:
            raise InvalidConfig(f"a setting is given under two names. settings={known}, {name}")
        found[known] = text
    return found


def _tls(values: Mapping[str, str]) -> TlsSettings:
    for store in ("ssl.keystore", "ssl.truststore"):
        _check_pem(store, values)
    keystore = values.get("ssl.keystore.location", "")
    certificate = values.get("ssl.certificate.location", "")
    key = values.get("ssl.key.location", "")
    chain, key_pem = (
        values.get("ssl.keystore.certificate.chain", ""),
        values.get("ssl.keystore.key", ""),
    )
    ways = [bool(keystore), bool(certificate or key), bool(chain or key_pem)]
    if sum(ways) > 1:
        raise InvalidConfig(
            "a client has one certificate: give ssl.keystore.location, or "
            "ssl.certificate.location with ssl.key.location, or ssl.keystore.certificate.chain "
            "with ssl.keystore.key."
        )
    if bool(certificate) != bool(key) or bool(chain) != bool(key_pem):
        raise InvalidConfig("a client certificate needs its key, and a key its certificate.")
    if "ssl.truststore.location" in values and "ssl.truststore.certificates" in values:
        raise InvalidConfig("give ssl.truststore.location or ssl.truststore.certificates, not both")
    algorithm = values.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise InvalidConfig(
            "ssl.endpoint.identification.algorithm is https, or empty to accept every host name. "
            f"given={algorithm!r}"
        )
    words = values.get("ssl.enabled.protocols", ",".join(_TLS_VERSIONS)).split(",")
    versions = tuple(word.strip() for word in words if word.strip())
    if not versions or not set(versions) <= set(_TLS_VERSIONS):
        raise InvalidConfig(
            f"ssl.enabled.protocols has some of {', '.join(_TLS_VERSIONS)}. given={versions}"
        )
    return TlsSettings(
        truststore_location=values.get("ssl.truststore.location", ""),
        truststore_certificates=values.get("ssl.truststore.certificates", ""),
        certificate_location=keystore or certificate,
        key_location=keystore or key,
        certificate_chain=chain,
        key=key_pem,
        key_password=values.get("ssl.key.password", ""),
        verify_host=algorithm == "https",
        versions=versions,
    )


def _check_pem(store: str, values: Mapping[str, str]) -> None:
    """Check that a store is PEM; `ssl.*.type` may be absent, although Kafka's default is JKS.

    Raises:
        InvalidConfig: a Java store, with the command that converts it.
    """
    kind = values.get(f"{store}.type", "PEM").upper()
    location = values.get(f"{store}.location", "")
    if kind in _JAVA_STORES or location.lower().endswith((".jks", ".p12", ".pfx", ".keystore")):
        what = "-nokeys -cacerts" if store == "ssl.truststore" else "-nodes"
        raise InvalidConfig(
            f"Java's key stores are not read; convert it and set {store}.type=PEM: "
            f"`keytool -importkeystore -srckeystore STORE -destkeystore store.p12 "
            f"-deststoretype PKCS12` for JKS, then `openssl pkcs12 -in store.p12 {what} "
            f"-out store.pem`. {store}.type={kind} {store}.location={location}"
        )
    if kind != "PEM":
        raise InvalidConfig(f"{store}.type is PEM. given={kind}")


def _sasl(values: Mapping[str, str], line: str, secret: Callable[[str, str], str]) -> SaslSettings:
    mechanism = values.get("sasl.mechanism", "GSSAPI").upper()
    kerberos = "sasl.kerberos.service.name" in values or KERBEROS_MODULE in line
    if mechanism not in MECHANISMS or not (kerberos or "sasl.mechanism" in values):
        default = "" if "sasl.mechanism" in values else " (Kafka's default)"
        raise InvalidConfig(
            f"sasl.mechanism is one of {', '.join(MECHANISMS)}. sasl.mechanism={mechanism}{default}"
        )
    login = _login(line, mechanism, secret)
    options = {} if login is None else login.options
    if mechanism == OAUTHBEARER:
        return _oauthbearer(values, options)
    if mechanism == GSSAPI:
        return _gssapi(values, options)
    user = options.get("username", "") or values.get("sasl.username", "")
    password = options.get("password", "") or values.get("sasl.password", "")
    if not user or not password:
        raise InvalidConfig(
            f"{mechanism} needs a user name and a password: set sasl.jaas.config, or "
            "sasl.username and sasl.password."
        )
    by_token = options.get("tokenauth", "").lower() == "true"
    if by_token and mechanism == "PLAIN":
        raise InvalidConfig(
            "a delegation token logs in by SCRAM-SHA-256 or SCRAM-SHA-512; set sasl.mechanism."
        )
    return SaslSettings(mechanism, user, password, by_token=by_token)


def _oauthbearer(values: Mapping[str, str], options: Mapping[str, str]) -> SaslSettings:
    prefix = "sasl.oauthbearer.client.credentials.client."
    settings = SaslSettings(
        OAUTHBEARER,
        token=options.get("token", ""),
        token_url=values.get("sasl.oauthbearer.token.endpoint.url", ""),
        client_id=options.get("clientId", "") or values.get(f"{prefix}id", ""),
        client_secret=options.get("clientSecret", "") or values.get(f"{prefix}secret", ""),
        scope=options.get("scope", "") or values.get("sasl.oauthbearer.scope", ""),
    )
    if bool(settings.token) == bool(settings.token_url):
        raise InvalidConfig(
            "OAUTHBEARER needs one source of tokens: sasl.oauthbearer.token.endpoint.url, which "
            "may be file:///path, or the option token of sasl.jaas.config."
        )
    is_file = settings.token_url.startswith("file://")
    if settings.token_url and not is_file and not (settings.client_id and settings.client_secret):
        raise InvalidConfig(
            "an OAuth server needs a client id and a client secret: set the options clientId and "
            f"clientSecret of sasl.jaas.config, or {prefix}id and {prefix}secret."
        )
    return settings


def _gssapi(values: Mapping[str, str], options: Mapping[str, str]) -> SaslSettings:
    service = values.get("sasl.kerberos.service.name", "") or options.get("serviceName", "")
    if not service or options.get("serviceName", service) != service:
        raise InvalidConfig(
            "GSSAPI needs one service name: set sasl.kerberos.service.name, such as kafka."
        )
    by_key = options.get("useKeyTab", "").lower() == "true"
    if by_key and not options.get("keyTab"):
        raise InvalidConfig("a login by a keytab names it: keyTab of sasl.jaas.config.")
    return SaslSettings(
        GSSAPI,
        service=service,
        keytab=options.get("keyTab", "") if by_key else values.get("sasl.kerberos.keytab", ""),
        principal=options.get("principal", "") or values.get("sasl.kerberos.principal", ""),
    )


def _login(line: str, mechanism: str, secret: Callable[[str, str], str]) -> JaasLogin | None:
    """Return the login of `sasl.jaas.config`."""
    if not line.strip():
        return None
    modules = {
        "PLAIN": PLAIN_MODULE,
        OAUTHBEARER: OAUTHBEARER_MODULE,
        GSSAPI: KERBEROS_MODULE,
    }
    module = modules.get(mechanism, SCRAM_MODULE)
    return read_jaas(line, "sasl.jaas.config", module, mechanism, secret)
