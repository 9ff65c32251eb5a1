"""SQL over a topic beside DuckDB on Parquet and Spark SQL on our source: `make bench-sql`.

The rows are the flights of New York in 2013, as JSON records. Every raw figure is kept. Ends
non-zero when something crashed or an answer was wrong; a missed target is a result.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from tests.bench.common.command import Benchmark, Run
from tests.bench.common.session import spark_session
from tests.bench.sql.flights import make_flights
from tests.bench.sql.look_ups import measure_look_ups
from tests.bench.sql.measures import measure_arrivals, measure_cold_start, measure_queries
from tests.bench.sql.plan import FULL, QUICK, SqlPlan
from tests.bench.sql.systems import ParquetSql, SparkSourceSql, SqlSystem, our_sql


def measure(run: Run[SqlPlan]) -> None:
    """Take every measure that was asked for."""
    flights = make_flights(run.work, run.plan.rows_max, run.plan.segments)
    run.take("cold", measure_cold_start, run, flights)
    run.take("arrivals", measure_arrivals, run, run.work)
    run.take("look-ups", measure_look_ups, run, run.work)
    if not run.wants("queries"):
        return
    with ExitStack() as closing:
        systems: list[SqlSystem] = []
        if "sparklog" in run.systems:
            systems.append(closing.enter_context(our_sql(flights)))
        if "parquet" in run.systems:
            systems += [ParquetSql(flights, as_json=as_json) for as_json in (False, True)]
        if "spark" in run.systems:
            spark = closing.enter_context(spark_session(run.work))
            systems.append(SparkSourceSql(flights, spark))
        run.take("queries", measure_queries, run, flights, systems)


SQL = Benchmark(
    name="sql",
    about=__doc__,
    full=FULL,
    quick=QUICK,
    kinds=("queries", "cold", "arrivals", "look-ups"),
    systems=("sparklog", "parquet", "spark"),
    disk="about 100 MB",
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(SQL.main())
