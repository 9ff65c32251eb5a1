"""The demo's judge: compares what came out with what must, and remembers every difference."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import json as arrow_json

from sparklog.cluster.open import Log


class Checks:
    """Says each comparison's result, and counts those that failed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Say results by `tell`."""
        self._tell = tell
        self.passed = 0
        self.failed = 0

    def equal(self, what: str, found: object, expected: object, by: str = "the CSV says") -> None:
        """Compare two numbers or texts; `by` is whose word the expectation is."""
        same = found == expected
        self._note(same, f"{what}: {_spelled(found)}", f", but {by} {_spelled(expected)}")

    def same_table(self, what: str, found: pa.Table, expected: pa.Table) -> None:
        """Compare two tables in the same order, column by column."""
        wrong = [name for name in expected.column_names if not _same_column(found, expected, name)]
        rows = f"{found.num_rows:,} rows"
        difference = f", but the CSV gives {expected.num_rows:,} rows"
        if wrong and found.num_rows == expected.num_rows:
            difference = f", but not the CSV's in: {', '.join(wrong)}"
        self._note(not wrong, f"{what}: {rows}", difference)

    def _note(self, good: bool, statement: str, difference: str) -> None:
        if good:
            self.passed += 1
            self._tell(f"ok    {statement}")
        else:
            self.failed += 1
            self._tell(f"WRONG {statement}{difference}")


def read_topic(log: Log, topic: str) -> pa.Table:
    """Return keys, values, timestamps and offsets of every record, partition after partition."""
    batches: list[pa.RecordBatch] = []
    for number in range(log.topic(topic).partitions):
        partition = log.partition(topic, number)
        view = partition.view()
        columns = ("offset", "timestamp", "key", "value")
        batches += partition.read(view.log_start_offset, view.end_offset, columns, view=view)
    return pa.Table.from_batches(batches)


def rows_in(values: pa.ChunkedArray, like: pa.Table) -> pa.Table:
    """Return JSON values as a table with the columns and types of `like`, sorted by all of them."""
    lines = b"\n".join(values.to_pylist())
    options = arrow_json.ParseOptions(
        explicit_schema=like.schema, unexpected_field_behavior="error"
    )
    blocks = arrow_json.ReadOptions(block_size=8 << 20)
    found = arrow_json.read_json(pa.BufferReader(lines), blocks, options)
    return in_order(found.select(like.column_names))


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows sorted by all their columns."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()


def _same_column(found: pa.Table, expected: pa.Table, name: str) -> bool:
    if name not in found.column_names:
        return False
    return bool(found.column(name).equals(expected.column(name)))


def _spelled(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
