"""The rows that are written: made once, the same in every run, and not compressible.

They lie in uncompressed Parquet files, so that every write is fed from the same fast source and
making them costs no measure anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.common.plan import SEED, RecordShape

HASH_BYTES = 64


@dataclass(frozen=True)
class Digest:
    """Checksums of the rows that must be equal on every side."""

    rows: int
    key_sum: int
    value_sum: int


class SourceRows:
    """Rows of one shape with the columns key and value."""

    def __init__(self, shape: RecordShape, folder: Path, files: int) -> None:
        """Keep them below `folder`, in as many files as tasks shall write them."""
        self.shape = shape
        self._path = str(folder / f"source-{shape.records}-{shape.value_bytes}")
        self._files = files
        self._made = False
        self._digest: Digest | None = None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows, made on the first call."""
        if not self._made:
            self._make(spark)
            self._made = True
        return spark.read.schema("key BINARY, value BINARY").parquet(self._path)

    def digest(self, spark: SparkSession) -> Digest:
        """Return what every copy of the rows must have."""
        if self._digest is None:
            self._digest = digest(self.read(spark))
        return self._digest

    def _make(self, spark: SparkSession) -> None:
        hashes = -(-self.shape.value_bytes // HASH_BYTES)
        parts = [f"unhex(sha2(concat('{SEED}:', id, ':{n}'), 512))" for n in range(hashes)]
        value = f"substring(concat({', '.join(parts)}), 1, {self.shape.value_bytes})"
        rows = spark.range(0, self.shape.records, 1, self._files)
        rows = rows.selectExpr("unhex(md5(CAST(id AS STRING))) AS key", f"{value} AS value")
        writer = rows.write.option("compression", "none")
        writer.option("parquet.enable.dictionary", "false").parquet(self._path)


def digest(rows: DataFrame) -> Digest:
    """Return the digest of any rows with the columns key and value."""
    found = rows.selectExpr("count(*)", "sum(crc32(key))", "sum(crc32(value))").first()
    assert found is not None, "an aggregate has one row"
    return Digest(*(int(number or 0) for number in found))
