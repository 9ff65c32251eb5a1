"""sparklog's brokers beside Apache Kafka's, on this machine: `make bench-broker`.

Both clusters have three brokers and run all the time, measures take turns. Every raw figure is
kept. Ends non-zero when something crashed or a check of the results failed; a missed target is a
result, not an error.
"""

from __future__ import annotations

import sys

from tests.bench.broker.measures.acl_checks import guarded_cluster, measure_acl_checks
from tests.bench.broker.measures.bill import FEW_PUTS, measure_bill
from tests.bench.broker.measures.consuming import measure_consuming
from tests.bench.broker.measures.failover import measure_failover
from tests.bench.broker.measures.failover_s3 import measure_failover_s3
from tests.bench.broker.measures.idle import measure_idle
from tests.bench.broker.measures.latency import measure_latency
from tests.bench.broker.measures.login_turns import measure_login_turns
from tests.bench.broker.measures.logins import guessed_cluster, measure_logins
from tests.bench.broker.measures.producing import UNFORCED, measure_producing, measure_unforced
from tests.bench.broker.measures.record_checks import measure_record_checks
from tests.bench.broker.measures.s3 import cluster_on_s3, measure_history_s3, measure_s3
from tests.bench.broker.measures.sharing import measure_sharing
from tests.bench.broker.measures.slow_store import measure_slow_store
from tests.bench.broker.measures.tls import measure_tls, tls_clusters
from tests.bench.broker.plan import FULL, QUICK, BrokerPlan
from tests.bench.common.clusters import clusters, sparklog_cluster
from tests.bench.common.command import Benchmark, Run

SLOW_LAUNCHER = (sys.executable, "-m", "tests.bench.broker.slow_broker")
UNCHECKED_LAUNCHER = (sys.executable, "-m", "tests.bench.broker.unchecked_broker")


def measure(run: Run[BrokerPlan]) -> None:
    """Start the clusters and take every measure that was asked for."""
    plan, work, results = run.plan, run.work, run.results
    if run.wants("produce", "consume", "share", "latency", "failover"):
        with clusters(run.systems, work) as sides:
            run.take("produce", measure_producing, sides, plan, results)
            run.take("consume", measure_consuming, sides, plan, results)
            run.take("share", measure_sharing, sides, plan, results)
            run.take("latency", measure_latency, sides, plan, results)
            run.take("failover", measure_failover, sides, plan, results)
    if run.wants("failover-s3") and "sparklog" in run.systems:
        run.take("failover-s3", measure_failover_s3, work / "failover-s3", plan, results)
    if run.wants("unforced"):
        with clusters(run.systems, work / "unforced", ours_alone=UNFORCED) as sides:
            run.take("unforced", measure_unforced, sides, plan, results)
    if run.wants("tls"):
        with tls_clusters(run.systems, work / "tls") as both:
            run.take("tls", measure_tls, both, plan, results)
    if run.wants("logins") and "sparklog" in run.systems:
        with guessed_cluster(work / "logins") as guessed:
            run.take("logins", measure_logins, guessed, plan, results)
    if run.wants("login-turns") and "sparklog" in run.systems:
        run.take("login-turns", measure_login_turns, work / "login-turns", plan, results)
    if run.wants("checks") and "sparklog" in run.systems:
        with (
            sparklog_cluster(work / "checked") as checked,
            sparklog_cluster(work / "unchecked", UNCHECKED_LAUNCHER) as unchecked,
        ):
            run.take("checks", measure_record_checks, checked, unchecked, plan, results)
    if run.wants("acls") and "sparklog" in run.systems:
        with (
            guarded_cluster(work / "guarded") as guarded,
            sparklog_cluster(work / "open") as free,
        ):
            run.take("acls", measure_acl_checks, guarded, free, plan, results)
    if run.wants("bill") and "sparklog" in run.systems:
        with sparklog_cluster(work / "bill", SLOW_LAUNCHER, *FEW_PUTS) as ours:
            run.take("bill", measure_bill, ours, plan, results)
    if run.wants("slow-store") and "sparklog" in run.systems:
        with sparklog_cluster(work / "slow", SLOW_LAUNCHER) as ours:
            run.take("slow-store", measure_slow_store, ours, plan, results)
    if run.wants("s3", "history-s3") and "sparklog" in run.systems:
        with cluster_on_s3(work / "on-s3") as ours:
            run.take("s3", measure_s3, ours, plan, results)
            run.take("history-s3", measure_history_s3, ours, work / "on-folder", plan, results)
    if run.wants("idle"):
        with clusters(run.systems, work / "idle") as sides:
            for side in sides:
                run.take("idle", measure_idle, side, plan, results)


BENCHMARK = Benchmark(
    name="broker",
    about=__doc__,
    full=FULL,
    quick=QUICK,
    kinds=(
        "produce",
        "unforced",
        "tls",
        "logins",
        "login-turns",
        "checks",
        "acls",
        "consume",
        "share",
        "latency",
        "failover",
        "failover-s3",
        "slow-store",
        "bill",
        "s3",
        "history-s3",
        "idle",
    ),
    systems=("sparklog", "kafka"),
    disk="about 20 GB",
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
