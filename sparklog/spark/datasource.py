"""The data source `sparklog`: what Spark makes for every read and write of that format."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparklog.spark.sink.writer import batch_writer, stream_writer
from sparklog.spark.source.batch_reader import SparklogReader
from sparklog.spark.source.options import (
    check_read_or_write_options,
    include_headers,
    parse_batch_options,
    parse_stream_options,
)
from sparklog.spark.source.schema import full_schema
from sparklog.spark.source.stream_reader import SparklogStreamReader


class SparklogDataSource(DataSource):
    """Topics as tables and streams, with the columns and options of Spark's Kafka source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take Spark's options. Spark says later if they are for a read or a write.

        Raises:
            InvalidConfig: options that fit neither.
        """
        check_read_or_write_options(options)
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)` and `USING`."""
        return "sparklog"

    def schema(self) -> StructType:
        """Return the columns of a read that names none of its own.

        Raises:
            InvalidConfig: `includeHeaders` is neither true nor false.
        """
        return full_schema(include_headers=include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Raises:
            InvalidConfig, InvalidRequest: options or columns that do not fit.
        """
        return SparklogReader(parse_batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query.

        Raises:
            InvalidConfig, InvalidRequest: options or columns that do not fit.
        """
        return SparklogStreamReader(parse_stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Raises:
            InvalidConfig, InvalidRequest: options or columns that do not fit.
        """
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a streaming query.

        Raises:
            InvalidConfig, InvalidRequest: options or columns that do not fit.
        """
        return stream_writer(self.options, schema, overwrite)
