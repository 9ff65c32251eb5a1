"""sparklog's coordinators of groups and transactions beside Apache Kafka's: `make bench-groups`.

Both clusters have three brokers and run all the time, measures take turns. Every raw figure is
kept. Ends non-zero when something crashed or a check of the results failed; a missed target is a
result, not an error.
"""

from __future__ import annotations

import sys

from tests.bench.common.clusters import clusters
from tests.bench.common.command import Benchmark, Run
from tests.bench.groups.measures.commits import measure_commits
from tests.bench.groups.measures.failover import measure_failover
from tests.bench.groups.measures.rebalances import measure_rebalances
from tests.bench.groups.measures.transactions import measure_committed_reads, measure_transactions
from tests.bench.groups.members import BROKER_SETTINGS
from tests.bench.groups.plan import FULL, QUICK, Plan

KINDS = {
    "rebalances": measure_rebalances,
    "commits": measure_commits,
    "transactions": measure_transactions,
    "committed-reads": measure_committed_reads,
    "failover": measure_failover,
}


def measure(run: Run[Plan]) -> None:
    """Start the clusters and take every measure that is asked for."""
    with clusters(run.systems, run.work, BROKER_SETTINGS) as sides:
        for kind, take in KINDS.items():
            run.take(kind, take, sides, run.plan, run.results)


GROUPS = Benchmark(
    name="groups",
    about=__doc__,
    full=FULL,
    quick=QUICK,
    kinds=tuple(KINDS),
    systems=("sparklog", "kafka"),
    disk="about 1 GB",
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(GROUPS.main())
