"""Cost of the check of each record before it is appended, as a share of produce throughput."""

from __future__ import annotations

from tests.bench.broker.measures.producing import MB, produce_once
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.targets import RateTimesPeer

GROUP = "record checks, MB/s"
UNCHECKED = "unchecked"
SHARE_LEFT = 0.9


def measure_record_checks(
    checked: Side, unchecked: Side, plan: BrokerPlan, results: Results
) -> None:
    """Produce to brokers with the check and to brokers without, in turns."""
    sides = {checked.name: checked, UNCHECKED: unchecked}
    for side in sides.values():
        produce_once(side, plan, plan.small, 3, results)  # until it is warm
    for shape in (plan.small, plan.large):
        title = f"produce {shape.label}, RF 3, every record checked"
        measure = Measure(title, "MB/s", (RateTimesPeer(UNCHECKED, SHARE_LEFT),), GROUP)
        for number, side in turns(list(sides.values()), plan.rounds):
            produced = produce_once(side, plan, shape, 3, results)
            name = checked.name if side is checked else UNCHECKED
            results.add(measure, name, produced.records_per_s * shape.value_bytes / MB, number)
