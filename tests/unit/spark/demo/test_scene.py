"""The demo's judge must find what is wrong: a check that cannot fail proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from sparklog.cluster.log import open_log
from sparklog.spark.demo.consumers import read_delta
from sparklog.spark.demo.scene import Checks, in_order, read_topic, rows_in

ROWS = pa.table({"a": [1, 2, None], "b": ["x", None, "z"], "c": [0.5, 1e-7, 3.0]})


class Said(list[str]):
    """The printed lines."""


def test_equal_numbers_pass_and_others_fail() -> None:
    said = Said()
    checks = Checks(said.append)
    checks.equal("rows", 1234, 1234)
    checks.equal("rows", 1234, 1235)
    assert said == ["ok    rows: 1,234", "WRONG rows: 1,234, but the CSV says 1,235"]
    assert (checks.passed, checks.failed) == (1, 1)


def test_equal_tables_pass() -> None:
    checks = Checks(Said().append)
    checks.same_table("rows", ROWS, ROWS)
    assert (checks.passed, checks.failed) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        ROWS.slice(1),
        ROWS.set_column(0, "a", pa.array([1, 2, 3])),
        ROWS.set_column(2, "c", pa.array([0.5, 1.1e-7, 3.0])),
        ROWS.drop_columns(["b"]),
        ROWS.set_column(0, "a", pa.array([1, 2, None], pa.int32())),
    ],
    ids=["a row missing", "a null filled", "a little off", "a column missing", "another type"],
)
def test_any_difference_between_tables_fails(other: pa.Table) -> None:
    said = Said()
    checks = Checks(said.append)
    checks.same_table("rows", other, ROWS)
    assert checks.failed == 1
    assert said[0].startswith("WRONG rows")


def _json_values(rows: pa.Table) -> list[bytes]:
    return [
        json.dumps({name: value for name, value in row.items() if value is not None}).encode()
        for row in rows.to_pylist()
    ]


def test_json_values_become_the_rows_they_were_made_of() -> None:
    values = pa.chunked_array([pa.array(_json_values(ROWS)[::-1])])
    assert rows_in(values, ROWS).equals(in_order(ROWS))


def test_a_field_that_the_rows_do_not_have_is_no_row_of_them() -> None:
    with pytest.raises(pa.ArrowInvalid):
        rows_in(pa.chunked_array([pa.array([b'{"a":1,"d":2}'])]), ROWS)


def test_a_topic_is_read_with_all_its_partitions(tmp_path: Path) -> None:
    with open_log(str(tmp_path)) as log:
        log.create_topic("t", partitions=3)
        for partition, keys in ((0, [b"a", None]), (2, [b"b"])):
            batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(keys)})
            log.partition("t", partition).append([batch])
        found = read_topic(log, "t")
    assert found.column("key").to_pylist() == [b"a", None, b"b"]
    assert found.column("offset").to_pylist() == [0, 1, 0]


def test_delta_table_is_read_by_its_log(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for number, name in enumerate(("old", "new one", "more")):
        parquet.write_table(pa.table({"n": [number]}), tmp_path / f"{name}.parquet")
    actions: list[list[dict[str, dict[str, object]]]] = [
        [{"metaData": {}}, {"add": {"path": "old.parquet"}}],
        [{"remove": {"path": "old.parquet"}}, {"add": {"path": "new%20one.parquet"}}],
        [{"add": {"path": "more.parquet"}}, {"txn": {"appId": "q", "version": 2}}],
    ]
    for version, lines in enumerate(actions):
        text = "\n".join(json.dumps(line) for line in lines)
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(text + "\n")
    assert sorted(read_delta(tmp_path).column("n").to_pylist()) == [1, 2]
