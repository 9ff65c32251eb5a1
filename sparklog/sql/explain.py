"""The answer to EXPLAIN: what DuckDB does, and what is read of each topic."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.core.counters import RequestCount
from sparklog.sql.topic_table import TableScan

SCHEMA = pa.schema([pa.field("explain_key", pa.string()), pa.field("explain_value", pa.string())])


def explained(
    plan: str, scans: Sequence[TableScan], spent: RequestCount | None = None
) -> pa.RecordBatch:
    """Return DuckDB's plan and a line for each scan of a partition.

    Args:
        plan: DuckDB's text.
        scans: of the tables.
        spent: requests and bytes of the query, if it ran.
    """
    keys, values = ["physical_plan"], [plan]
    for scan in scans:
        keys.append(f"scan of {scan.table}")
        values.append("\n".join(scan_lines(scan)))
    if spent is not None:
        keys.append("storage")
        values.append(f"{spent.requests:,} requests, {spent.bytes:,} bytes")
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.string())], schema=SCHEMA
    )


def scan_lines(scan: TableScan) -> list[str]:
    """Return the lines about one scan: its columns, its filter and its partitions."""
    kept = sum(len(plan.entries) for plan in scan.plans)
    skipped = sum(plan.skipped for plan in scan.plans)
    size = sum(entry.size_bytes for plan in scan.plans for entry in plan.entries)
    stored = (
        f"segments: {kept:,} to read of {kept + skipped:,}, {size:,} bytes with all columns; "
        f"{skipped:,} skipped by bounds of partition, offset or timestamp"
    )
    lines = [
        f"columns: {', '.join(scan.columns)}",
        f"filter: {' '.join(scan.filter.split()) or 'none'}",
        stored,
    ]
    for at, plan in enumerate(scan.plans):
        base, end = plan.tail
        line = (
            f"{plan.place}: offsets {plan.low} to {plan.high}, {len(plan.entries):,} segments, "
            f"{plan.skipped:,} skipped, {end - base:,} offsets from the leader"
        )
        if at < len(scan.counts):
            done = scan.counts[at]
            line += (
                f"; read {done.rows:,} records of {done.read:,} segments, "
                f"{done.excluded_by_key:,} skipped by the index of keys, "
                f"{done.fetched:,} records from the leader"
            )
        lines.append(line)
    return lines
