"""Java properties files, and references in them, against Java's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.config.properties import (
    SecretReference,
    is_reference,
    parse_properties,
    replace_references,
)
from sparklog.core.errors import InvalidConfig

_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=0xD7FF))


def stored(text: str) -> str:
    """Return a text as `java.util.Properties.store` writes it."""
    return "".join(
        _ESCAPED.get(c)
        or (f"\\{c}" if c in "\\=:#! " else c if c.isascii() else f"\\u{ord(c):04x}")
        for c in text
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("  a=b  ", {"a": "b  "}),
        ("# a=b\n! c=d\n\n", {}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b=c\\=d", {"a b": "c=d"}),
        ("a=\\u00e9\\q", {"a": "éq"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\r\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n# c", {"a": "b# c"}),
    ],
)
def test_properties_are_parsed_as_java_does(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text, "f") == found


@given(st.dictionaries(_TEXT, _TEXT, max_size=5))
def test_properties_that_java_stores_come_back(settings: dict[str, str]) -> None:
    text = "".join(f"{stored(name)}={stored(value)}\n" for name, value in settings.items())
    assert parse_properties(text, "f") == settings


@given(st.text().filter(lambda text: "\\u" not in text))
def test_any_text_without_escapes_is_parsed(text: str) -> None:
    assert all("=" not in name or "\\" in text for name in parse_properties(text, "f"))


def test_malformed_escape_is_refused_without_its_value() -> None:
    with pytest.raises(InvalidConfig, match=r"file=f line=2") as caught:
        parse_properties("a=b\npassword=hidden\\u12", "f")
    assert "hidden" not in str(caught.value)


def test_references_are_replaced_once() -> None:
    asked: list[SecretReference] = []

    def read(reference: SecretReference) -> str:
        asked.append(reference)
        return "${env:AGAIN}"

    assert replace_references("x${file:/a/b:k}y${env:N}$z{", read) == (
        "x${env:AGAIN}y${env:AGAIN}$z{"
    )
    assert asked == [SecretReference("file", "/a/b", "k"), SecretReference("env", "", "N")]
    assert [str(one) for one in asked] == ["${file:/a/b:k}", "${env:N}"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [("${env:A}", True), (" ${file:/a:b} ", True), ("x${env:A}", False), ("A", False)],
)
def test_reference_is_recognised_when_nothing_else_is_there(text: str, *, whole: bool) -> None:
    assert is_reference(text) is whole
