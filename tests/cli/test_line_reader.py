from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.arguments import UsageError
from sparklog.cli.commands.produce import LineInput
from sparklog.cli.console.line_reader import LineReader
from sparklog.core.errors import InvalidRequest, RecordTooLarge

KEYED = {"parse.key": "true"}
HEADED = {"parse.headers": "true", "parse.key": "true"}


def test_line_is_a_value_by_default() -> None:
    record = LineReader({}).parse(b"a\tb")
    assert (record.key, record.value, record.headers) == (None, b"a\tb", None)


def test_headers_and_key_stand_before_the_value() -> None:
    record = LineReader(HEADED).parse(b"h1:v1,h2:v2\tkey\tvalue\twith tab")
    assert record.headers == (("h1", b"v1"), ("h2", b"v2"))
    assert (record.key, record.value) == (b"key", b"value\twith tab")


def test_every_separator_can_be_chosen() -> None:
    record = LineReader(
        {
            **HEADED,
            "key.separator": "::",
            "headers.delimiter": "||",
            "headers.separator": ";",
            "headers.key.separator": "=",
        }
    ).parse(b"a=1;b=2||k::v")
    assert record.headers == (("a", b"1"), ("b", b"2"))
    assert (record.key, record.value) == (b"k", b"v")


def test_null_marker_stands_for_null_keys_values_and_headers() -> None:
    reader = LineReader({**HEADED, "null.marker": "NULL"})
    record = reader.parse(b"NULL\tNULL\tNULL")
    assert (record.key, record.value, record.headers) == (None, None, None)
    assert reader.parse(b"h:NULL\tk\tv").headers == (("h", None),)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nothing", "no headers delimiter found on line number 1"),
        (b"h:1\tvalue", "no key separator found on line number 1"),
        (b"h\tk\tv", "no header key separator found on line number 1"),
        (b"NULL:1\tk\tv", "a header key cannot be null"),
        (b"\xff:1\tk\tv", "a header key must be UTF-8"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        LineReader({**HEADED, "null.marker": "NULL"}).parse(line)


def test_ignore_error_takes_such_a_line_as_it_is() -> None:
    reader = LineReader({**HEADED, "ignore.error": "true"})
    record = reader.parse(b"nothing")
    assert (record.key, record.value, record.headers) == (None, b"nothing", None)
    assert reader.parse(b"h\tk\tv").headers == (("h", None),)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"parse.keys": "true"}, "did you mean parse.key"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator"),
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator"),
        ({"null.marker": "\t"}, "null.marker and key.separator"),
        ({"key.separator": ""}, "key.separator may not be empty"),
    ],
)
def test_properties_that_contradict_each_other_are_refused(
    properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        LineReader(properties)


_word = st.binary(max_size=20).filter(lambda b: not set(b) & set(b"\t\n\r,:"))


@given(
    key=_word,
    value=_word,
    headers=st.lists(st.tuples(st.text("abcäß", min_size=1, max_size=4), _word), max_size=3),
)
def test_lines_with_the_default_separators_are_read_back(
    key: bytes, value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    written = b",".join(name.encode() + b":" + data for name, data in headers)
    record = LineReader(HEADED).parse(written + b"\t" + key + b"\t" + value)
    assert (record.key, record.value) == (key, value)
    assert list(record.headers or ()) == headers


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").rstrip(b"\r"))))
def test_lines_come_back_whole_with_any_line_end(lines: list[bytes]) -> None:
    for end in (b"\n", b"\r\n"):
        source = LineInput(io.BytesIO(b"".join(line + end for line in lines)), 100)
        assert _all(source) == lines


def test_the_last_line_needs_no_line_end() -> None:
    assert _all(LineInput(io.BytesIO(b"a\n\nb"), 100)) == [b"a", b"", b"b"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    source = LineInput(io.BytesIO(b"x" * 2_000_000), 1_000_000)
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        _all(source)


def _all(source: LineInput) -> list[bytes]:
    found: list[bytes] = []
    while (lines := source.lines(None)) is not None:
        found += lines
    return found
