"""The doors every Python data source goes through, with nothing behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import NamedTemporaryFile

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tests.bench.log.plan import KEY_BYTES

BATCH_ROWS = 32_768
COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)


class Done(WriterCommitMessage):
    """A task has had its rows."""


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return Done()


class DroppingSink(DataSource):
    """A Python sink that does nothing."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class KeepingWriter(DataSourceArrowWriter):
    """Writes a task's rows to one file as they come: no order, no name, no sync."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with NamedTemporaryFile(dir=self._folder, delete=False, buffering=0) as file:
            for batch in iterator:
                for column in batch.columns:
                    for buffer in filter(None, column.buffers()):
                        file.write(buffer)
        return Done()


class KeepingSink(DataSource):
    """A Python sink that does nothing but keep the bytes."""

    @classmethod
    def name(cls) -> str:
        return "keeping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return KeepingWriter(self.options["path"])


@dataclass(frozen=True)
class Passing:
    """Output of a passing source: `rows` in each of `partitions`."""

    columns: tuple[str, ...]
    rows: int
    partitions: int
    value_bytes: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield one batch again and again."""
        batch = ready_batch(self.value_bytes).select(list(self.columns))
        for at in range(0, self.rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, self.rows - at))

    def tasks(self) -> list[InputPartition]:
        """Return a task per partition."""
        return [InputPartition(number) for number in range(self.partitions)]


class PassingReader(DataSourceReader):
    """Passes all rows on in one query."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def partitions(self) -> list[InputPartition]:
        return self._passing.tasks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._passing.batches()


class PassingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Passes all rows on in the first batch of a stream."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._passing.tasks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._passing.batches()


class PassingSource(DataSource):
    """A Python source of rows that cost nothing to make."""

    @classmethod
    def name(cls) -> str:
        return "passing"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return PassingReader(self._passing(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return PassingStreamReader(self._passing(schema))

    def _passing(self, schema: StructType) -> Passing:
        rows, partitions, value = (int(self.options[n]) for n in ("rows", "partitions", "value"))
        return Passing(tuple(schema.names), rows // partitions, partitions, value)


def ready_batch(value_bytes: int) -> pa.RecordBatch:
    """Return a batch with the columns of a Kafka read."""
    count = BATCH_ROWS

    def repeated(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    return pa.RecordBatch.from_pydict(
        {
            "key": repeated(bytes(KEY_BYTES), pa.binary()),
            "value": repeated(bytes(value_bytes), pa.binary()),
            "topic": repeated("topic", pa.string()),
            "partition": repeated(0, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": repeated(0, pa.timestamp("us", tz="UTC")),
            "timestampType": repeated(0, pa.int32()),
        }
    )
