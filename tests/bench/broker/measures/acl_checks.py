"""Cost of ACL checks, beside brokers without, and as a share of the brokers' processor time.

Three brokers have an authorizer and many ACLs, and three others have none. The client is the same
anonymous one, which the ACLs let do everything. Rates of two clusters differ by more than 2 % by
chance. So the share comes from counts: the brokers' decisions, times what one decision takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sparklog
from sparklog.broker.handlers.access import Access
from sparklog.broker.runtime.audit_buffer import AuditBuffer
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.broker import STANDARD_AUTHORIZER, parse_broker_configs
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.authorizer import Authorizer
from sparklog.security.principal import ANONYMOUS, Principal
from tests.bench.broker.measures.producing import MB, produce_once
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.clusters import sparklog_cluster
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.sparklog_side import SparklogSide, total
from tests.bench.common.targets import CostAtMost
from tests.harness.processor_time import processor_seconds
from tests.peers.sparklog import LAUNCHER

GROUP = "ACL checks"
OPEN = "no authorizer"
PERCENT_MAX = 2.0
TIMED_DECISIONS = 200_000
DECISIONS = "kafka_server_authorizer_metrics_authorization_allowed_total"
OTHER_ACLS = 1_000
"""Of other users, which a decision must not go through."""


@contextmanager
def guarded_cluster(folder: Path) -> Iterator[SparklogSide]:
    """Run brokers with an authorizer, many ACLs, and some that let anonymous clients do all."""
    with sparklog.open_log((folder / "log").as_uri()) as log:
        log.create_acls(_acls())
    settings = ("--config", f"authorizer.class.name={STANDARD_AUTHORIZER}")
    with sparklog_cluster(folder, LAUNCHER, *settings) as side:
        yield side


def measure_acl_checks(guarded: SparklogSide, free: Side, plan: BrokerPlan, out: Results) -> None:
    """Produce to brokers with an authorizer and to brokers without, in turns."""
    sides: dict[str, Side] = {guarded.name: guarded, OPEN: free}
    for side in sides.values():
        produce_once(side, plan, plan.small, 3, out)  # until it is warm
    for shape in (plan.small, plan.large):
        rate = Measure(f"produce {shape.label}, RF 3, with ACLs", "MB/s", (), GROUP)
        share = Measure(
            f"decisions' share of the brokers' processor time, {shape.label}",
            "%",
            (CostAtMost(PERCENT_MAX, "%"),),
            GROUP,
        )
        for number, (name, side) in turns(list(sides.items()), plan.rounds):
            seconds, count = _processor_seconds(side.pids()), total(guarded.samples(), DECISIONS)
            produced = produce_once(side, plan, shape, 3, out)
            out.add(rate, name, produced.records_per_s * shape.value_bytes / MB, number)
            if side is guarded:
                used = _processor_seconds(side.pids()) - seconds
                decided = total(guarded.samples(), DECISIONS) - count
                out.check(f"each request of {shape.label} is decided", decided > 0)
                out.add(share, name, 100 * decided * _decision_seconds() / used, number)


def _decision_seconds() -> float:
    """Return the mean time of one decision about a producer's topic, in this process."""
    config = parse_broker_configs({"authorizer.class.name": STANDARD_AUTHORIZER})
    metrics = BrokerMetrics()
    context = RequestContext("bench", "127.0.0.1", ANONYMOUS)
    access = Access(
        Authorizer(_acls()),
        context,
        Api.PRODUCE,
        metrics,
        AuditBuffer(config, SYSTEM_CLOCK, metrics),
    )
    start = time.perf_counter()
    for _ in range(TIMED_DECISIONS):
        access.may(AclOperation.WRITE, ResourceType.TOPIC, "bench-1")
    return (time.perf_counter() - start) / TIMED_DECISIONS


def _processor_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that all these processes have used since they began."""
    return sum(map(processor_seconds, pids))


def _acls() -> list[AclBinding]:
    anything = {
        ResourceType.TOPIC: "*",
        ResourceType.GROUP: "*",
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    found = [_allow(kind, name, ANONYMOUS) for kind, name in anything.items()]
    others = (
        _allow(ResourceType.TOPIC, f"topic-{number}", Principal("User", f"user-{number}"))
        for number in range(OTHER_ACLS)
    )
    return [*found, *others]


def _allow(kind: ResourceType, name: str, principal: Principal) -> AclBinding:
    return AclBinding(
        kind,
        name,
        PatternType.LITERAL,
        principal,
        "*",
        AclOperation.ALL,
        AclPermission.ALLOW,
    )
