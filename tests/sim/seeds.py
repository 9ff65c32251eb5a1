"""Clusters of seeds, and a runner for thousands of them on all processors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Fenced, OutcomeUnknown, Unavailable
from sparklog.testing.sim.cluster import MakeNode, SimCluster, SimPlan, SimReport
from sparklog.testing.sim.faults import LINK_FAULTS
from sparklog.testing.sim.invariants import watch
from sparklog.testing.sim.network import through_bytes
from sparklog.testing.sim.node import SimulatedBroker

FEW = 100
"""Of fewer seeds, each is handed out alone, so that no processor idles."""

BYTES_EVERY = 4
"""One in this many seeds sends messages as bytes: that finds faulty entities, and takes longer."""

WEATHER = (Unavailable, OutcomeUnknown, Fenced)
"""Errors that brokers may log in a storm."""

IN_MEMORY: dict[str, Any] = {
    "spare": ("kill-all",),
    "rest_s": 3.0,
    "storm_s": 12.0,
}
"""Commit in memory gives up what all in-sync brokers lose at once before storage has it. So one
fault at a time, and the next when the cluster has recovered."""


def plan_of(seed: int) -> SimPlan:
    """Return the plan that a seed means: sizes and settings are drawn too."""
    entropy = SeededEntropy(seed)

    def one_of(*choices: int) -> int:
        return choices[int(entropy.random() * len(choices))]

    brokers = one_of(1, 3, 3, 3, 3, 3)
    replicas = min(brokers, one_of(1, 1, 2, 3, 3, 3))
    in_memory = bool(one_of(0, 0, 1))
    return SimPlan(
        brokers=brokers,
        partitions=one_of(1, 2),
        replication_factor=replicas,
        configs=(
            ("sparklog.commit", "memory" if in_memory else "storage"),
            ("min.insync.replicas", str(min(replicas, one_of(1, 1, 2)))),
            ("flush.ms", str(one_of(100, 400, 2000))),
        ),
        store_latency_s=one_of(3, 10, 40) / 1000,
        **(IN_MEMORY if in_memory else {}),
    )


def run_seed(
    seed: int, make_node: MakeNode = SimulatedBroker, plan: SimPlan | None = None
) -> SimReport:
    """Run one seed. Log lines of brokers go into its trace, and their errors are complaints."""
    cluster = SimCluster(seed, plan_of(seed) if plan is None else plan, make_node)
    watch(cluster)
    cluster.net.one_at_a_time = False
    if seed % BYTES_EVERY == 0:
        cluster.net.recoded = through_bytes
    logger, ear = logging.getLogger("sparklog"), _Ear(cluster)
    before = logger.level, logger.propagate
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        return cluster.run()
    finally:
        logger.removeHandler(ear)
        logger.level, logger.propagate = before


class _Ear(logging.Handler):
    """Records the log lines of brokers."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        if self._cluster.loop.closing:
            return
        self._cluster.trace.remark(record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and error and not isinstance(error, WEATHER):
            self._cluster.complaints.append(f"logged: {record.getMessage()} {error!r}")


def with_transactions(seed: int) -> SimPlan:
    """Return the plan of a seed whose clients write transactions too."""
    return replace(plan_of(seed), producers=1, transactional=4)


def with_leader_acks(seed: int) -> SimPlan:
    """Return the plan of a seed whose clients send with acks=1 too; every other has one replica."""
    plan = replace(plan_of(seed), producers=1, leader_acks=2)
    return plan if seed % 2 else replace(plan, replication_factor=1)


def with_members(seed: int) -> SimPlan:
    """Return the plan of a seed whose clients are members of a group too."""
    return replace(plan_of(seed), producers=1, members=3)


def with_group_consumers(seed: int) -> SimPlan:
    """Return the plan of a seed whose clients are members of a group of the newer protocol too."""
    return replace(plan_of(seed), producers=1, partitions=4, group_consumers=3)


def with_broken_links(seed: int) -> SimPlan:
    """Return the plan of a seed whose brokers lose links to each other; half have other faults too.

    Commit in memory is left out: brokers that are cut off together may lose what it acknowledged.
    """
    others = ("kill", "pause", "break-connections") if seed % 2 else ()
    plan = plan_of(seed)
    configs = {**dict(plan.configs), "sparklog.commit": "storage"}
    return replace(
        plan,
        brokers=2 + seed % 3,
        replication_factor=2,
        configs=tuple(configs.items()),
        producers=1,
        calm_s=3.0,
        storm_s=15.0,
        fault_every_s=2.0,
        fault_lasts_s=4.0,
        faults=(*LINK_FAULTS, *others),
        spare=(),
        rest_s=None,
    )


def with_changing_rights(seed: int) -> SimPlan:
    """Return the plan of a seed whose reader loses its right, and gets it back.

    Faults end brokers and connections. A broker that is paused or cut off does not know better.
    """
    plan = plan_of(seed)
    faults = ("kill", "kill-all", "stop", "stop-all", "break-connections")
    survived = tuple(fault for fault in faults if fault not in plan.spare)
    return replace(plan, producers=1, pause_s=0.5, guarded=True, storm_s=15.0, faults=survived)


@dataclass(frozen=True)
class Campaign:
    """The workload of a cluster's clients, and the seeds that tests run of it."""

    plan: Callable[[int], SimPlan]
    quick: range
    many: range
    to_catch: range
    """Each broken build is caught within these."""


CAMPAIGNS = {
    "plain": Campaign(plan_of, range(120), range(10_000), range(1060, 1090)),
    "transactions": Campaign(with_transactions, range(6), range(2_000), range(10, 20)),
    "acks-1": Campaign(with_leader_acks, range(20), range(2_000), range(20)),
    "members": Campaign(with_members, range(6), range(2_000), range(16, 46)),
    "links": Campaign(with_broken_links, range(24), range(2_000), range(14, 24)),
    "rights": Campaign(with_changing_rights, range(4), range(1_000), range(3)),
    "consumers": Campaign(with_group_consumers, range(6), range(2_000), range(16, 46)),
}


def stories(seeds: Sequence[int], campaign: str) -> Iterator[str]:
    """Run seeds on all processors; yield the story of each that failed."""
    at_once = 1 if len(seeds) < FEW else 10
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from filter(None, pool.map(partial(_story, campaign), seeds, chunksize=at_once))


def _story(campaign: str, seed: int) -> str | None:
    report = run_seed(seed, plan=CAMPAIGNS[campaign].plan(seed))
    if not report.failed:
        return None
    again = f"python -m tests.sim.replay --seed {seed} --plan {campaign}"
    return f"SIM_SEED={seed}  again: {again}\n{report.summary()}"
