"""Cutting the expressions of a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.expressions import split_expressions, split_named


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("a, b ,c", ["a", "b", "c"]),
        ("f(a, b), c", ["f(a, b)", "c"]),
        ("f(g(a, b), h[1, 2]), c", ["f(g(a, b), h[1, 2])", "c"]),
        ("'a, b', c", ["'a, b'", "c"]),
        ("concat('(', a), b", ["concat('(', a)", "b"]),
        ("'it''s, fine', b", ["'it''s, fine'", "b"]),
        (r"'it\'s, fine', b", [r"'it\'s, fine'", "b"]),
        ("`odd, name`, b", ["`odd, name`", "b"]),
        (r"`back\`, b", [r"`back\`", "b"]),
        ("a < b, c > d", ["a < b", "c > d"]),
    ],
)
def test_commas_inside_quotes_and_brackets_do_not_cut(text: str, parts: list[str]) -> None:
    assert split_expressions(text) == parts


@pytest.mark.parametrize("text", ["", "a,", ",a", "a,,b", "f(a", "'a", "f(a, [b)", '"a'])
def test_text_that_cannot_be_cut_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        split_expressions(text)


@given(st.lists(st.text("abc xyz=.+-'(", max_size=12), min_size=1, max_size=5))
def test_quoted_pieces_come_back_unchanged(pieces: list[str]) -> None:
    quoted = ["'" + piece.replace("'", "''") + "'" for piece in pieces]
    assert split_expressions(", ".join(quoted)) == quoted


def test_headers_are_names_and_expressions_in_order_and_may_repeat() -> None:
    found = split_named("kind='a,b=c', kind=upper(x),n = m = 1")
    assert found == [("kind", "'a,b=c'"), ("kind", "upper(x)"), ("n", "m = 1")]


@pytest.mark.parametrize("text", ["name", "=x", "name=", "a=b,c"])
def test_a_header_without_name_or_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="name=expression"):
        split_named(text)
