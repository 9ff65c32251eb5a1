"""The jobs of sparklog beside Kafka's cleaner and connector, on this machine: `make bench-jobs`.

Every raw figure is kept. Ends non-zero when something crashed or a check of the results failed; a
missed target is a result, not an error.
"""

from __future__ import annotations

import sys

from tests.bench.common.command import Benchmark, Run
from tests.bench.jobs.measures.beside import measure_beside
from tests.bench.jobs.measures.compaction import measure_compaction
from tests.bench.jobs.measures.distinct import measure_distinct
from tests.bench.jobs.measures.materialisation import measure_materialisation
from tests.bench.jobs.measures.retention import measure_retention
from tests.bench.jobs.plan import FULL, QUICK, JobsPlan


def measure(run: Run[JobsPlan]) -> None:
    """Take every measure that was asked for."""
    run.take("compaction", measure_compaction, run)
    if "sparklog" in run.systems:
        run.take("distinct", measure_distinct, run)
        run.take("beside", measure_beside, run)
        run.take("retention", measure_retention, run)
    run.take("materialise", measure_materialisation, run)


JOBS = Benchmark(
    name="jobs",
    about=__doc__,
    full=FULL,
    quick=QUICK,
    kinds=("compaction", "distinct", "beside", "retention", "materialise"),
    systems=("sparklog", "kafka"),
    disk="about 20 GB",
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(JOBS.main())
