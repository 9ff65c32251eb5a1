"""JSON from elsewhere: bounded in size and nesting, and refused with an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cluster import named_snapshots, publication
from sparklog.cluster.metadata import records, snapshot
from sparklog.core.bounded_json import NESTING_MAX, VALUES_MIN, parse_json
from sparklog.core.errors import DataCorrupt, InvalidJson
from sparklog.log.segment.footer import checked_document
from sparklog.log.tail import producer_snapshot
from sparklog.spark.materialize.commit import parse_commit
from sparklog.spark.schedule import history
from tests.harness.log_records import batch

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}\\"'), inner),
)
DEEP = b"[" * 100_000
CLOSED = DEEP + b"]" * 100_000


@given(VALUES)
def test_parse_json_returns_the_encoded_document(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert parse_json(text, "value") == value
    assert parse_json(memoryview(text.encode()), "value") == value


@pytest.mark.parametrize("data", [DEEP, CLOSED, DEEP.decode(), b'{"a":' * 100_000])
def test_parse_json_rejects_deep_documents(data: str | bytes) -> None:
    with pytest.raises(InvalidJson, match="object 7 is nested too deeply"):
        parse_json(data, "object 7")


def test_parse_json_accepts_the_deepest_and_brackets_in_strings() -> None:
    deepest = "[" * NESTING_MAX + "]" * NESTING_MAX
    assert json.dumps(parse_json(deepest, "list")) == deepest
    text = '\\"' + "[" * 500
    assert parse_json(json.dumps([text, text]), "list") == [text, text]


@pytest.mark.parametrize(
    "data", [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"\xff", b"", b'"\\"' * 50_000, "\ud800"]
)
def test_parse_json_rejects_documents_outside_its_contract(data: str | bytes) -> None:
    with pytest.raises(InvalidJson, match="object 7 is not"):
        parse_json(data, "object 7")


@pytest.mark.parametrize("data", ["[1234]", b"[1234]", '"€€"'])
def test_parse_json_rejects_documents_beyond_the_limit(data: str | bytes) -> None:
    with pytest.raises(InvalidJson, match=r"object 7 is too large. bytes=\d+ bytes_max=5"):
        parse_json(data, "object 7", bytes_max=5)


@pytest.mark.parametrize("element", ["[]", "{}", "1", '""', "null"])
def test_parse_json_rejects_too_many_values(element: str) -> None:
    fits = "[" + ",".join([element] * (VALUES_MIN // 2 - 1)) + "]"
    assert len(parse_json(fits, "object 7", bytes_max=len(fits))) == VALUES_MIN // 2 - 1
    many = "[" + ",".join([element] * (VALUES_MIN + 1)) + "]"
    with pytest.raises(InvalidJson, match="object 7 has too many values"):
        parse_json(many, "object 7", bytes_max=len(many))


def test_parse_json_counts_no_commas_and_brackets_in_strings() -> None:
    text = ",[{" * 5000
    assert parse_json(json.dumps([text]), "object 7", bytes_max=16_000) == [text]


def _sealed(**more: object) -> bytes:
    text = CLOSED.decode()
    sealed = {"format": 1, "crc32c": crc32c(text.encode()), "body": text, **more}
    return json.dumps(sealed).encode()


@pytest.mark.parametrize(
    "read",
    [
        lambda: publication.decode(CLOSED, "w-1"),
        lambda: publication.decode(_sealed(), "w-1"),
        lambda: named_snapshots.decode(CLOSED, "named"),
        lambda: named_snapshots.decode(_sealed(), "named"),
        lambda: records.decode(batch([CLOSED]), 0),
        lambda: checked_document(
            {"sparklog": CLOSED.decode(), "sparklog.crc32c": str(crc32c(CLOSED))}, "sparklog", "o"
        ),
    ],
)
def test_decoders_report_deep_json_as_damage(read: Callable[[], object]) -> None:
    with pytest.raises(DataCorrupt):
        read()


@pytest.mark.parametrize(
    "read",
    [
        lambda: snapshot.decode(CLOSED, 1),
        lambda: snapshot.decode(_sealed(end_offset=1), 1),
        lambda: producer_snapshot.decode(CLOSED, 1),
        lambda: producer_snapshot.decode(_sealed(end_offset=1), 1),
        lambda: parse_commit(CLOSED.decode()),
        lambda: history.decode(b"run/a", CLOSED),
    ],
)
def test_decoders_pass_over_deep_json_where_it_is_no_record(read: Callable[[], object]) -> None:
    assert read() is None
