"""Report: the results of a materialisation at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from sparklog.core.types import OffsetRange
from sparklog.spark.jobs.progress import JobProgress, ProgressReport
from sparklog.spark.materialize.arguments import MaterializeJob
from sparklog.spark.materialize.commit import Ranges, TableCommit, offsets_in
from sparklog.spark.materialize.tables import FoundTable


@dataclass(slots=True)
class MaterializeTally:
    """The work done so far."""

    rows: int = 0
    size_bytes: int = 0
    batches: int = 0
    rejected: int = 0
    merged_files: int = 0
    ranges: dict[int, OffsetRange] = field(default_factory=dict)
    """Offsets that were brought in, by partition."""

    def add(self, found: FoundTable, commit: TableCommit, rejected: int) -> None:
        """Count a batch that is in the table."""
        self.rows += found.rows
        self.size_bytes += found.size_bytes
        self.batches += 1
        self.rejected += rejected
        for number, one in commit.ranges.items():
            begin = self.ranges.get(number, one).base_offset
            self.ranges[number] = OffsetRange(min(begin, one.end_offset), one.end_offset)


def report(
    job: MaterializeJob,
    tally: MaterializeTally,
    found: FoundTable,
    progress: JobProgress,
    ended_by: int | None,
) -> ProgressReport:
    """Return the report of a run that came to `found`."""
    commit = found.commit
    ends = commit.ends if commit is not None else {}
    partitions = [
        {
            "partition": number,
            "from": tally.ranges[number].base_offset if number in tally.ranges else end,
            "until": end,
        }
        for number, end in sorted(ends.items())
    ]
    lines = [
        f"  {job.topic}-{one['partition']}: offsets {one['from']:,} to {one['until']:,}"
        for one in partitions
        if one["from"] != one["until"]
    ]
    if tally.rejected:
        lines.append(f"  {tally.rejected:,} records rejected, see {job.rejected}")
    return ProgressReport(
        "materialized",
        job.topic,
        tally.rows,
        tally.size_bytes,
        progress.elapsed_s(),
        {
            "table": job.table,
            "version": found.version,
            "batches": tally.batches,
            "rejected": tally.rejected,
            "merged_files": tally.merged_files,
            "rejected_table": job.rejected,
            "partitions": partitions,
        },
        lines=tuple(lines),
        ended_by=ended_by,
    )


def planned_report(
    job: MaterializeJob,
    found: FoundTable,
    ranges: Ranges,
    records: int,
    columns: StructType,
    progress: JobProgress,
) -> ProgressReport:
    """Return what a run would do."""
    batches = -(-offsets_in(ranges) // job.max_per_batch)
    listed = [
        {"partition": number, "from": one.base_offset, "until": one.end_offset}
        for number, one in sorted(ranges.items())
    ]
    lines = [f"  {job.topic}-{one['partition']}: {one['from']:,} to {one['until']:,}"
             for one in listed]  # fmt: skip
    lines += [f"  column {field.name} {field.dataType.simpleString()}" for field in columns.fields]
    return ProgressReport(
        "would materialize",
        job.topic,
        records,
        0,
        progress.elapsed_s(),
        {
            "dry_run": True,
            "table": job.table,
            "version": found.version,
            "batches": batches,
            "partitions": listed,
            "schema": columns.simpleString(),
        },
        lines=tuple(lines),
    )
