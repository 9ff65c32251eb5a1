"""The columns of a table, and the batches that it makes of stored ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from sparklog.core.types import TopicPartition
from sparklog.sql.columns import SCHEMA, named_columns, stored_columns
from sparklog.sql.filters import Condition
from sparklog.sql.record_scan import table_batch

Fill = Callable[[pa.RecordBatch, TopicPartition, Sequence[str], Condition], pa.RecordBatch]
"""Makes a batch of the table from stored rows of a partition.

It has the columns that are asked for, of the rows that may meet the condition. For one thread.
"""


class TopicColumns:
    """The columns of each topic: records as they are."""

    schema: pa.Schema = SCHEMA

    def needed(self, columns: Sequence[str] | None, text: str) -> list[str]:
        """Return the columns that a scan gives, and those that its filter's text may name."""
        names = list(self.schema.names if columns is None else columns)
        return list(dict.fromkeys((*names, *sorted(named_columns(text, self.schema.names)))))

    def stored(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the log that are read for some of the table."""
        return stored_columns(names)

    def fill(self) -> Fill:
        """Return what makes batches, for one thread."""
        return _as_they_are


def _as_they_are(
    rows: pa.RecordBatch, place: TopicPartition, names: Sequence[str], _: Condition
) -> pa.RecordBatch:
    return table_batch(rows, place, names)
