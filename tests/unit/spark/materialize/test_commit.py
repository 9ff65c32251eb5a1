"""Offsets in a commit, and the possible starts of the next batch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt, InvalidRequest, OffsetOutOfRange
from sparklog.core.types import OffsetRange
from sparklog.spark.materialize.commit import (
    CommitOrigin,
    TableCommit,
    Values,
    avro_fields,
    check_origin,
    next_starts,
    offsets_in,
    parse_commit,
)

ORIGIN = CommitOrigin("t", "id-1")
ranges = st.dictionaries(
    st.integers(0, 50),
    st.tuples(st.integers(0, 1 << 60), st.integers(0, 1000)).map(
        lambda pair: OffsetRange(pair[0], pair[0] + pair[1])
    ),
)
values = st.builds(
    Values, st.sampled_from(["json", "raw"]), st.none() | st.text(), st.booleans(),
    st.lists(st.text()).map(tuple),
)  # fmt: skip


@given(ranges, values, st.integers(1, 1 << 40))
def test_a_commit_reads_back_as_it_was_written(
    covered: dict[int, OffsetRange], read_as: Values, batch: int
) -> None:
    commit = TableCommit(
        batch, "n", CommitOrigin("t", "id", "upsert", "read_uncommitted"), covered, read_as
    )
    assert parse_commit(commit.to_json()) == commit
    assert commit.offsets == offsets_in(covered) == sum(len(one) for one in covered.values())


def test_commit_records_topic_partition_from_and_until() -> None:
    commit = TableCommit(1, "n", ORIGIN, {0: OffsetRange(3, 5)}, Values())
    document = json.loads(commit.to_json())
    assert document["topic"] == "t"
    assert document["offsets"] == [{"partition": 0, "from": 3, "until": 5}]


@pytest.mark.parametrize("text", [None, "", "by hand", "{}", "[1]", '{"other": 1}', "5"])
def test_commits_of_others_are_passed_over(text: str | None) -> None:
    assert parse_commit(text) is None


def test_damaged_or_newer_commit_is_an_error() -> None:
    with pytest.raises(DataCorrupt):
        parse_commit('{"sparklog": 1, "batch": 1}')
    text = TableCommit(1, "n", ORIGIN, {0: OffsetRange(3, 5)}, Values()).to_json()
    with pytest.raises(DataCorrupt):
        parse_commit(text.replace('"until":5', '"until":2'))
    with pytest.raises(InvalidRequest, match="newer"):
        parse_commit('{"sparklog": 2}')


def test_foreign_table_is_rejected() -> None:
    last = TableCommit(1, "n", ORIGIN, {}, Values())
    check_origin(last, ORIGIN, fail_on_data_loss=True)
    for other in (CommitOrigin("u", "id-1"), CommitOrigin("t", "id-1", "upsert")):
        with pytest.raises(InvalidRequest, match="another"):
            check_origin(last, other, fail_on_data_loss=False)
    created_again = CommitOrigin("t", "id-2")
    with pytest.raises(OffsetOutOfRange, match="created again"):
        check_origin(last, created_again, fail_on_data_loss=True)
    check_origin(last, created_again, fail_on_data_loss=False)


HELD = {0: OffsetRange(5, 20)}


@pytest.mark.parametrize(
    ("known", "first", "starts"),
    [
        ({}, True, 5),  # a new table begins where the log does
        ({0: 5}, False, 5),
        ({0: 12}, False, 12),
        ({0: 20}, False, 20),
    ],
)
def test_a_batch_begins_where_the_table_ends(
    known: dict[int, int], first: bool, starts: int
) -> None:
    assert next_starts(known, HELD, first=first, fail_on_data_loss=True) == {0: starts}


@pytest.mark.parametrize(
    ("known", "starts"),
    [
        ({0: 4}, 5),  # retention was faster than the job
        ({}, 5),  # an added partition that lost records before the first look
        ({0: 21}, 20),  # the log is a copy from before
    ],
)
def test_gap_is_rejected_unless_the_option_permits_it(known: dict[int, int], starts: int) -> None:
    with pytest.raises(OffsetOutOfRange, match="--fail-on-data-loss"):
        next_starts(known, HELD, first=False, fail_on_data_loss=True)
    assert next_starts(known, HELD, first=False, fail_on_data_loss=False) == {0: starts}


def test_partitions_that_are_gone_are_a_loss() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"partitions=\[1\]"):
        next_starts({0: 5, 1: 3}, HELD, first=False, fail_on_data_loss=True)


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "null"},
        {"type": "map", "values": ["int", {"type": "array", "items": "null"}]},
        {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
        {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
    ],
)
def test_avro_schema_is_rejected_when_items_take_no_bytes(kind: object) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]}
    with pytest.raises(InvalidRequest, match="take no bytes"):
        avro_fields(json.dumps(schema))


def test_avro_schema_takes_arrays_of_optional_and_nested_items() -> None:
    inner = {"type": "array", "items": ["null", "int"]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": inner}]}
    assert avro_fields(json.dumps(schema)) == {"f": False}
