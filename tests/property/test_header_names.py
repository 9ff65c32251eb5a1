"""Names of headers: no two have one text, and each comes back from its text."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.protocol.records.header_names import ESCAPE, name_of, names, text_of, texts

wire_names = st.binary(max_size=8) | st.binary(max_size=4).map(lambda b: ESCAPE.encode() + b)


@given(st.lists(wire_names))
@example([b"a\xff", b"plain", ESCAPE.encode() + b"YQ=="])
def test_every_name_comes_back_from_its_text(given_names: list[bytes]) -> None:
    found = texts(pa.array(given_names, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [text_of(name) for name in given_names]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert names(found.cast(kind)).cast(pa.binary()).to_pylist() == given_names


@given(st.text(max_size=8) | st.text("YQR=/", max_size=8).map(lambda t: ESCAPE + t))
def test_a_text_changes_only_where_it_escapes_a_name(text: str) -> None:
    again = text_of(name_of(text))
    if not text.startswith(ESCAPE):
        assert again == text
    assert name_of(again) == name_of(text)
