"""The measures: three queries by every system, a cold start, and arriving rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from sparklog.cli.console.arrival_printer import followed_topic
from sparklog.client.producer import Producer
from sparklog.client.values import LATEST
from sparklog.cluster.log import open_log
from sparklog.sql.arrivals import ArrivalQuery
from sparklog.sql.topics import RootTopics
from sparklog.testing.cluster import SparklogCluster
from tests.bench.common.command import Run
from tests.bench.common.results import Measure
from tests.bench.common.rounds import timed, turns
from tests.bench.common.targets import OURS, CostAtMost
from tests.bench.sql.flights import TOPIC, Flights
from tests.bench.sql.plan import SqlPlan
from tests.bench.sql.systems import Answer, SqlSystem

COUNT = Measure("count(*)", "s", (CostAtMost(0.2, "s"),), "queries")
MEANS = Measure("avg(dep_delay) by carrier", "s", (CostAtMost(1.5, "s"),), "queries")
KEY = Measure("one key", "s", (CostAtMost(0.05, "s"),), "queries")
COLD = Measure("first answer of a new process", "s", (CostAtMost(1.0, "s"),), "start")
ARRIVAL = Measure("produce to row, median", "ms", (CostAtMost(100, "ms"),), "arrival")
ARRIVAL_P99 = Measure("produce to row, p99", "ms", (), "arrival")
CLOSE = 1e-6
QUIET_S = 0.02
"""Between two records, so that each is a batch of its own."""


def measure_queries(run: Run[SqlPlan], flights: Flights, systems: Sequence[SqlSystem]) -> None:
    """Time each query by each system, after one that is not counted."""
    asked: list[tuple[Measure, Callable[[SqlSystem], Answer]]] = [
        (COUNT, lambda system: system.count()),
        (MEANS, lambda system: system.mean_delays()),
        (KEY, lambda system: system.one_key()),
    ]
    for measure, ask in asked:
        for system in systems:
            _check(run, measure, flights, system.name, ask(system))
        for number, system in turns(systems, run.plan.rounds):
            seconds, _ = timed(lambda ask=ask, system=system: ask(system))  # type: ignore[misc]
            run.results.add(measure, system.name, seconds, number)


def _check(run: Run[SqlPlan], measure: Measure, flights: Flights, name: str, found: Answer) -> None:
    what = f"{name} answers {measure.name}"
    if measure is COUNT:
        run.results.check_equal(what, found, [(flights.rows,)])
    elif measure is KEY:
        run.results.check(what, bool(found) and len(found) < 10, f"{len(found)} rows")
    else:
        means: dict[str, float] = dict(found)
        same = set(means) == set(flights.mean_delays) and all(
            abs(means[carrier] - delay) < CLOSE for carrier, delay in flights.mean_delays.items()
        )
        run.results.check(what, same, f"{len(means)} carriers")


def measure_cold_start(run: Run[SqlPlan], flights: Flights) -> None:
    """Time `sparklog sql` from the start of the process to its end."""
    command = [sys.executable, "-m", "sparklog.cli", "sql", f"SELECT count(*) FROM {TOPIC}"]
    command += ["--root", flights.root, "--output", "csv"]
    for number in range(run.plan.rounds + 1):
        seconds, done = timed(lambda: subprocess.run(command, capture_output=True, check=True))
        if number:
            run.results.add(COLD, OURS, seconds, number)
        else:
            lines = done.stdout.decode().split()
            run.results.check_equal("a new process counts", lines[-1], str(flights.rows))


def measure_arrivals(run: Run[SqlPlan], folder: Path) -> None:
    """Time single records from the call of the producer to the row of a query."""
    root = (folder / "arrivals").as_uri()
    with SparklogCluster(brokers=1, root=root) as cluster:
        cluster.topic("arrivals", partitions=1)
        statement = "SELECT offset, text(value) AS n FROM arrivals WHERE octet_length(value) > 0"
        with (
            open_log(root) as log,
            RootTopics(log) as topics,
            ArrivalQuery(topics, statement) as query,
            followed_topic(topics, query, LATEST, None, {}) as source,
            Producer(cluster.bootstrap_servers, settings={"linger.ms": "0"}) as producer,
        ):
            waited_ms = []
            for number in range(run.plan.arrivals + 1):
                began_s = time.perf_counter()
                producer.send("arrivals", b"%d" % number)
                found: list[str] = []
                while not found:
                    for arrived in source.ready(None):
                        for rows in query.answer(arrived.topic_partition, arrived.batch):
                            found += rows.column("n").to_pylist()
                    if not found:
                        source.wait(None)
                waited_ms.append((time.perf_counter() - began_s) * 1000)
                run.results.check("each record arrives once", found == [str(number)], str(found))
                time.sleep(QUIET_S)  # the next record is a batch of its own
    del waited_ms[0]
    run.results.add(ARRIVAL, OURS, median(waited_ms))
    run.results.add(ARRIVAL_P99, OURS, quantiles(waited_ms, n=100)[98])
