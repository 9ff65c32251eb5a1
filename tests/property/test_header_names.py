"""Names of headers: no two have one text, and each comes back from its text."""

from __future__ import annotations

from base64 import b64encode

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.protocol.records.header_names import ESCAPE, name_of, names, text_of, texts


def escaped(name: bytes) -> bytes:
    """Return the name whose text looks like the escape of another one."""
    return ESCAPE.encode() + b64encode(name)


plain_names = st.binary(max_size=8) | st.binary(max_size=4).map(lambda b: ESCAPE.encode() + b)
wire_names = st.recursive(plain_names, lambda inner: inner.map(escaped), max_leaves=3)


@given(st.lists(wire_names))
@example([b"a\xff", b"plain", ESCAPE.encode() + b"YQ=="])
def test_every_name_comes_back_from_its_text(given_names: list[bytes]) -> None:
    found = texts(pa.array(given_names, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [text_of(name) for name in given_names]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert names(found.cast(kind)).cast(pa.binary()).to_pylist() == given_names


@given(st.text(max_size=8) | st.text("YQR=/", max_size=8).map(lambda t: ESCAPE + t))
@example(ESCAPE)
@example(ESCAPE + "YQ==")
@example(ESCAPE + "/w==")
def test_every_text_comes_back_from_its_name(text: str) -> None:
    assert text_of(name_of(text)) == text


def test_names_are_escaped_only_when_needed() -> None:
    assert text_of(b"caf\xc3\xa9") == "café"
    assert text_of(ESCAPE.encode()) == ESCAPE
    assert text_of(b"\xff") == ESCAPE + "/w=="
    assert text_of((ESCAPE + "/w==").encode()) == ESCAPE + "77+9YmFzZTY0Oi93PT0="


def test_texts_of_a_foreign_writer_that_are_no_utf8_are_names() -> None:
    foreign = pa.array([b"\xff", (ESCAPE + "/w==").encode(), None], pa.binary()).view(pa.string())
    assert names(foreign).to_pylist() == [b"\xff", b"\xff", None]
