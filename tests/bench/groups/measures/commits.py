"""Commits of offsets: how many a second are answered, and how long one takes.

Several groups commit one offset at a time, without waiting, at a pace that together is the plan's;
then as fast as the clients can. Clients run on the same cores as the brokers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.targets import CostAtMostPeer, RateAtLeast, RateTimesPeer, Target
from tests.bench.groups.plan import Plan
from tests.peers.sparklog import PROJECT

GROUP = "offset commits"
HELD: Final = 0.98
"""A pace counts as held from this share on: the first and last answers are not at its ends."""
FLAT_OUT_PER_S: Final = 20_000

_names = count(1)


def measure_commits(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Measure at the plan's pace, then flat out, every side in turn."""
    topic = "committed"
    for side in sides:
        side.create(topic, 1, 3)
    paces: list[tuple[str, int, Target]] = [
        (
            f"at {plan.commits_per_s:,}/s",
            plan.commits_per_s,
            RateAtLeast(plan.commits_per_s * HELD, "commits/s"),
        ),
        ("as fast as it goes", FLAT_OUT_PER_S, RateTimesPeer("kafka", 1.0)),
    ]
    for title, per_s, target in paces:
        for number, side in turns(sides, plan.rounds):
            found = _commit(side, topic, plan, per_s)
            _check(side, found, results)
            rate = sum(len(one["took_s"]) / one["seconds"] for one in found)
            measure = Measure(f"offset commits {title}", "commits/s", (target,), GROUP)
            results.add(measure, side.name, rate, number)
            took_s = sorted(took for one in found for took in one["took_s"])
            measure = Measure(f"p99 {title}", "ms", (CostAtMostPeer("kafka"),), "commit p99, ms")
            results.add(measure, side.name, 1000 * took_s[int(0.99 * len(took_s))], number)
    for side in sides:
        side.drop(topic)


def _commit(side: Side, topic: str, plan: Plan, per_s: int) -> list[dict[str, Any]]:
    """Run committers side by side, and return the results of each."""
    with ExitStack() as stack:
        committers = []
        for _ in range(plan.committers):
            words = [sys.executable, "-m", "tests.bench.groups.committer", side.bootstrap]
            words += [f"committers-{next(_names)}", topic]
            words += [str(per_s / plan.committers), str(plan.commit_seconds)]
            process = subprocess.Popen(
                words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            committers.append(process)
        for process in committers:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", f"a committer did not start: {line!r}"
        for process in committers:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in committers if process.stdout]


def _check(side: Side, found: list[dict[str, Any]], results: Results) -> None:
    for one in found:
        lost = one["sent"] - len(one["took_s"])
        told = f"{lost} of {one['sent']}, first {one['failed'][:1]}"
        results.check(f"{side.name}: every commit is accepted", lost == 0, told)
        results.check_equal(f"{side.name}: the last commit stands", one["committed"], one["last"])
