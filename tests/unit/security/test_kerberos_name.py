"""User names from Kerberos principals. The values are those of Kafka 4.4's `KerberosShortNamer`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidConfig
from sparklog.security.kerberos_name import (
    NAME_CHARS_MAX,
    RULE_CHARS_MAX,
    RULES_MAX,
    KerberosName,
    LocalNames,
    UnmappedPrincipal,
)

REALM = "EXAMPLE.COM"
APP = (
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    "DEFAULT",
)
WORDS = st.text(
    st.characters(categories=["Ll", "Lu", "Nd"], include_characters=".-_"), min_size=1, max_size=20
)


def name_of(principal: str, *rules: str) -> str:
    return LocalNames(rules, REALM).user_name(KerberosName.parse(principal))


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (APP, "App.service-name/example.com@EXAMPLE.COM", "service-name"),
        (APP, "App.service-name@EXAMPLE.COM", "service-name"),
        (APP, "user/host@EXAMPLE.COM", "user"),
        (("RULE:[1:$1]/L",), "USER@R", "user"),
        (("RULE:[1:$1]/U",), "straße@R", "STRASSE"),
        (("RULE:[1:$1]L",), "USER@R", "user"),
        (("RULE:[1:$1@$0](.*@R)s/@.*//",), "user@R", "user"),
        (("RULE:[1:$1@$0](.*@R)s/@.*///L",), "USER@R", "user"),
        (("RULE:[1:$1@$0](.*@R)s/@.*//g/L",), "USER@R", "user"),
        (("RULE:[1:$1@$0](.*@X)s/@.*//", "RULE:[1:$1]"), "user@R", "user"),
        (("RULE:[2:$2.$1]",), "user/host@R", "host.user"),
        (("RULE:[1:$01]",), "user@R", "user"),
        (("RULE:[1:$1]s/(u)/$12/",), "user@R", "u2ser"),
        ((r"RULE:[1:$1]s/u/\$x\\/",), "user@R", r"$x\ser"),
        (("RULE:[1:$1]s/(?<q>u)/${q}2/",), "user@R", "u2ser"),
        (("RULE:[1:$1]s/(x)?u/<$1>/",), "user@R", "<>ser"),
        (("RULE:[1:$1]s/e*/-/g",), "useer@R", "-u-s--r-"),
        (("RULE:[1:$1]s/zz/q/",), "user@R", "user"),
        (("RULE:[3:$1]", "RULE:[0:x]", "RULE:[1:hello $0]"), "user@R", "hello R"),
        (("RULE:[1:$1]",), "$2@R", "$2"),
        ((), "user@EXAMPLE.COM", "user"),
        (("DEFAULT",), "a/@EXAMPLE.COM", "a"),
    ],
)
def test_the_first_rule_that_applies_makes_the_name(
    rules: tuple[str, ...], principal: str, user: str
) -> None:
    assert name_of(principal, *rules) == user


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        (("DEFAULT",), "user@OTHER", "is this the right realm.*user@OTHER.*EXAMPLE.COM"),
        (("RULE:[1:$1](us.)",), "user@R", "no rule of"),
        (("RULE:[1:$1@$0]",), "user@R", "makes no user name, but 'user@R'"),
        (("RULE:[1:$1]s/u/@/", "DEFAULT"), "user@EXAMPLE.COM", "makes no user name, but '@ser'"),
        (("RULE:[1:]",), "user@R", "makes no user name, but ''"),
        (("DEFAULT",), "@EXAMPLE.COM", "makes no user name, but ''"),
    ],
)
def test_a_principal_that_no_rule_maps_is_an_error(
    rules: tuple[str, ...], principal: str, why: str
) -> None:
    with pytest.raises(UnmappedPrincipal, match=why):
        name_of(principal, *rules)


@pytest.mark.parametrize(
    "principal",
    ["", "user", "a/b/c@R", "a@b@R", "a/b", r"admin\/x@R", "a\n@R", "a" * NAME_CHARS_MAX + "@R"],
)
def test_a_malformed_principal_is_an_error(principal: str) -> None:
    with pytest.raises(UnmappedPrincipal, match="not of the form"):
        KerberosName.parse(principal)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "DEFAULT ",
        "DEFAULT/L",
        "RULE:[:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$a]",
        "RULE:[1:a$$1]",
        "RULE:[1:$1](a(b)",
        "RULE:[1:$1]s/(u)/$2/",
        "RULE:[1:$1]s/u/${q}/",
        "RULE:[1:$1]s/u/a$/",
        "RULE:[1:$1]s/u/a\\/",
        "RULE:[1:$1]s/[/]/-/",
        "RULE:[1:$1]/L/U",
        "RULE:[1:" + "x" * RULE_CHARS_MAX + "]",
        "RULE:[1:$" + "9" * 5000 + "]",
    ],
)
def test_a_malformed_rule_is_an_error_of_the_settings(rule: str) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        LocalNames(["DEFAULT", rule], REALM)


def test_the_number_of_rules_is_bounded() -> None:
    LocalNames(["DEFAULT"] * RULES_MAX, REALM)
    with pytest.raises(InvalidConfig, match="too many rules"):
        LocalNames(["DEFAULT"] * (RULES_MAX + 1), REALM)


def test_without_a_default_realm_the_default_rule_never_applies() -> None:
    with pytest.raises(UnmappedPrincipal, match=r"default_realm=\(none\)"):
        LocalNames(["DEFAULT"], "").user_name(KerberosName("user", None, ""))


@given(service=WORDS, host=st.none() | WORDS, realm=WORDS)
def test_a_principal_survives_text(service: str, host: str | None, realm: str) -> None:
    name = KerberosName(service, host, realm)
    assert KerberosName.parse(str(name)) == name


@given(service=WORDS, host=st.none() | WORDS, realm=WORDS)
def test_a_rule_sees_principals_of_its_size_only(
    service: str, host: str | None, realm: str
) -> None:
    rules = LocalNames(["RULE:[1:one.$1]", "RULE:[2:two.$1.$2]"], realm)
    found = rules.user_name(KerberosName(service, host, realm))
    assert found == (f"one.{service}" if host is None else f"two.{service}.{host}")


@given(text=st.text(max_size=60))
def test_any_text_is_a_rule_or_an_error_of_the_settings(text: str) -> None:
    try:
        rules = LocalNames([f"RULE:[1:$1]s/{text}/"], REALM)
    except InvalidConfig:
        return
    try:
        assert rules.user_name(KerberosName("user", None, REALM))
    except UnmappedPrincipal:
        pass
