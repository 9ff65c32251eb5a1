"""Replay of one seed with its trace: `python -m tests.sim.replay --seed 7 --lines 200`."""

from __future__ import annotations

import argparse
import sys

from sparklog.testing import virtual_world
from tests.sim.seeds import CAMPAIGNS, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--lines", type=int, default=60, help="lines of the trace to show")
    parser.add_argument("--plan", choices=CAMPAIGNS, default="plain", help="what clients do")
    arguments = parser.parse_args()
    virtual_world.TRACE_LINES = max(arguments.lines, virtual_world.TRACE_LINES)
    plan = CAMPAIGNS[arguments.plan].plan(arguments.seed)
    report = run_seed(arguments.seed, plan=plan)
    print(plan)
    print(report.summary(arguments.lines))
    print("failed" if report.failed else "passed", report.digest)
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
