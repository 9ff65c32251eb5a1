"""User names from certificates: Java's spelling of names, and Kafka's rules."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sparklog.core.errors import InvalidConfig
from sparklog.security.distinguished_name import PrincipalRules, subject_name
from tests.harness.certificates import DAY, unsigned

NAME = "CN=kafka1.example,OU=Data,O=Example,L=Bern,C=CH"


def certificate(subject: x509.Name) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    made = unsigned(subject, subject, key.public_key(), DAY).sign(key, hashes.SHA256())
    return made.public_bytes(Encoding.DER)


def test_a_name_is_spelled_as_java_spells_it() -> None:
    attributes = [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "CH"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'A, "B" + C; <D>'),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
        x509.NameAttribute(NameOID.COMMON_NAME, "#Zoë "),
    ]
    assert subject_name(certificate(x509.Name(attributes))) == (
        r"CN=\#Zoë\ ,1.2.840.113549.1.9.1=#1603614062,"
        r"O=A\, \"B\" \+ C\; \<D\>,C=CH"
    )


def test_a_relative_name_with_several_values_keeps_them_together() -> None:
    several = x509.RelativeDistinguishedName(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
            x509.NameAttribute(NameOID.USER_ID, "7"),
        ]
    )
    top = x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "org")])
    found = subject_name(certificate(x509.Name([top, several])))
    assert found in ("CN=a+UID=7,DC=org", "UID=7+CN=a,DC=org")


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("", NAME),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka1.example"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "KAFKA1.EXAMPLE@DATA"),
        ("RULE:^CN=x.*$/no/,RULE:^CN=(.*?)\\..*$/$1/L, DEFAULT", "kafka1"),
        ("RULE:^CN=x.*$/no/, DEFAULT", NAME),
        ("RULE:^CN=x.*$/no/", None),
        ("RULE:^CN=(.*?),OU=.*$/a\\/$1/", "a/kafka1.example"),
    ],
)
def test_the_first_rule_that_matches_makes_the_user_name(rules: str, user: str | None) -> None:
    assert PrincipalRules(rules).user_name(NAME) == user


@pytest.mark.parametrize(
    "rules", ["CN", "RULE:^CN=(/$1/", "RULE:^CN=.*$/$1/", "RULE:a/b/X", "DEFAULT DEFAULT"]
)
def test_a_wrong_rule_is_an_error(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)
