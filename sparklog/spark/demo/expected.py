"""What must come out: totals of the package's files, computed without sparklog and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.spark.demo.package_data import event_times, table_of

KEYS = {"flights": "tailnum", "planes": "tailnum", "weather": "origin"}
"""The column whose value is the key of a record. 2,512 flights have no tail number: no key."""

DELAY_COLUMNS = ("carrier", "hour", "flights", "departed", "dep_delay", "arr_delay")


@dataclass(frozen=True, slots=True)
class Expected:
    """The files as tables, and when each row happened."""

    rows: Mapping[str, pa.Table]
    times: Mapping[str, pa.Array]

    def count(self, topic: str) -> int:
        """Return how many records the topic must have."""
        return int(self.rows[topic].num_rows)

    def keys(self, topic: str) -> pa.Table:
        """Return how many records each key must have: columns `key` and `records`, sorted."""
        keys = self.rows[topic].column(KEYS[topic]).cast(pa.binary())
        return counted_keys(keys)

    def delays(self) -> pa.Table:
        """Return flights and delays by carrier and hour, sorted; see `DELAY_COLUMNS`."""
        rows = self.rows["flights"]
        hours = rows.column("time_hour").cast(pa.timestamp("us", "UTC"))
        grouped = (
            rows.append_column("at", hours)
            .group_by(["carrier", "at"])
            .aggregate(
                [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum"),
                 ("arr_delay", "sum")]
            )
        )  # fmt: skip
        names = ("carrier", "at", "count_all", "dep_delay_count", "dep_delay_sum", "arr_delay_sum")
        return sorted_delays(pa.table([grouped.column(n) for n in names], list(DELAY_COLUMNS)))

    def since(self, topic: str, moment_s: int) -> int:
        """Return how many rows happened at or after a moment (seconds since 1970)."""
        start = pa.scalar(moment_s, pa.int64()).cast(pa.timestamp("s", "UTC"))
        return int(pc.sum(pc.greater_equal(self.times[topic], start)).as_py() or 0)


def expected_of(originals: Mapping[str, bytes]) -> Expected:
    """Read the package's files."""
    rows = {topic: table_of(data) for topic, data in originals.items()}
    return Expected(rows, {topic: event_times(topic, one) for topic, one in rows.items()})


def counted_keys(keys: pa.ChunkedArray) -> pa.Table:
    """Return how often each key occurs, sorted by key, null last."""
    counted = pa.table({"key": keys}).group_by("key").aggregate([([], "count_all")])
    return counted.rename_columns(["key", "records"]).sort_by("key")


def sorted_delays(table: pa.Table) -> pa.Table:
    """Return delays in one order and with one set of types, so that two tables can be compared."""
    wanted = pa.schema(
        [("carrier", pa.string()), ("hour", pa.timestamp("us", "UTC"))]
        + [(name, pa.int64()) for name in DELAY_COLUMNS[2:]]
    )
    chosen = table.select(DELAY_COLUMNS).cast(wanted)
    return chosen.sort_by([("carrier", "ascending"), ("hour", "ascending")]).combine_chunks()
