"""The value of `sasl.jaas.config`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidConfig
from sparklog.security.jaas import MODULES, PLAIN_MODULE, SCRAM_MODULE, parse_jaas


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_options_are_read_in_each_spelling() -> None:
    login = parse_jaas(
        f"{SCRAM_MODULE} required // comment\n username = alice\n password='a \"b\"'"
        ' /* x */ tokenauth="true" ;'
    )
    assert login.module == SCRAM_MODULE
    assert login.options == {"username": "alice", "password": 'a "b"', "tokenauth": "true"}
    assert "alice" not in repr(login)


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.text(), max_size=4))
def test_quoted_options_come_back(options: dict[str, str]) -> None:
    text = " ".join(f"{name}={quoted(value)}" for name, value in options.items())
    assert parse_jaas(f"{PLAIN_MODULE} required {text};").options == options


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config"):
        parse_jaas(f"{text} marked-secret")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        f"{PLAIN_MODULE};",
        f"{PLAIN_MODULE} needed password=marked-secret;",
        f"{PLAIN_MODULE} required password=marked-secret",
        f"{PLAIN_MODULE} required password marked-secret;",
        f"{PLAIN_MODULE} required password=;",
        f'{PLAIN_MODULE} required password="marked-secret;',
        f"{PLAIN_MODULE} required password=marked-secret; {PLAIN_MODULE} required a=b;",
        "com.example.OtherLoginModule required password=marked-secret;",
        "marked-secret required a=b;",
        "x" * (1 << 20) + f"{PLAIN_MODULE} required;",
    ],
)
def test_wrong_login_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"setting=plain\.sasl\.jaas\.config") as caught:
        parse_jaas(text, "plain.sasl.jaas.config")
    assert "marked-secret" not in str(caught.value)


@pytest.mark.parametrize("module", MODULES)
def test_each_module_of_kafka_is_known(module: str) -> None:
    assert parse_jaas(f"{module} required;").options == {}
