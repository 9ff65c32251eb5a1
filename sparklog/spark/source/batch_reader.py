"""Batch reads: the plan is made by the planner's worker, tasks carry it out.

Never overrides `pushFilters`: Spark 4.2 keeps a pruned plan for every other use of the relation,
and those would silently get the wrong rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.cluster.log import Log
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.source.offsets import readable_ranges, resolve_end, resolve_start
from sparklog.spark.source.options import SourceOptions
from sparklog.spark.source.partition_states import PartitionLookup, new_pool
from sparklog.spark.source.scan import Scan, slice_of
from sparklog.spark.source.splitting import split


class SparklogReader(DataSourceReader):
    """Reads the records between two offsets of each partition."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        open_log: Callable[[str], Log] = shared_log,
    ) -> None:
        """Read the columns of `schema`.

        Raises:
            InvalidRequest: columns or types that the source does not have.
        """
        self._options = options
        self._scan = Scan.of(options, schema)
        self._open_log = open_log

    def partitions(self) -> list[InputPartition]:
        """Decide what is read, and cut it into tasks. Spark asks once per relation.

        Raises:
            UnknownTopicOrPartition, InvalidRequest: the options do not fit what is in the log.
            OffsetOutOfRange: offsets are not in the log, and that is to fail.
        """
        options = self._options
        leaders = options.leaders()
        with new_pool() as pool, closing(leaders) if leaders is not None else nullcontext():
            log = self._open_log(options.root)
            look = PartitionLookup(
                log,
                options.selection,
                pool,
                leaders,
                committed_only=options.committed_only,
                pinned=options.snapshot,
            )
            snapshot = look.take()
            start = resolve_start(
                options.starting,
                snapshot.views,
                snapshot.offset_at_time,
                unmatched_is_latest=options.unmatched_start_is_latest,
            )
            end = resolve_end(options.ending, snapshot.views, snapshot.offset_at_time)
        ranges = readable_ranges(
            start, end, snapshot.views, fail_on_data_loss=options.fail_on_data_loss
        )
        tasks = split(
            ranges,
            snapshot.views,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            counted=self._scan.counted,
        )
        return [slice_of(task, snapshot.views[task.place]) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's records."""
        return self._scan.read(partition)
