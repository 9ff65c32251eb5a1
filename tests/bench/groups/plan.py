"""Sizes of a run. A quick run shows shape, not figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.common import plan as common


@dataclass(frozen=True)
class Plan(common.Plan):
    """Sizes of one run."""

    members: int
    partitions: int
    """Of the topic that a group reads."""
    commit_seconds: int
    commits_per_s: int
    """Commits per second that all committers together must hold."""
    committers: int
    """Groups that commit side by side, each with one member in a process of its own."""
    transactions: int
    """Of each producer."""
    producers: tuple[int, ...]
    """Numbers of producers that write transactions side by side."""
    history_transactions: int
    """Read by a consumer of committed records."""
    kills: int
    """Coordinators killed, of each system, for groups and again for transactions."""


FULL = Plan(
    name="full",
    rounds=3,
    members=10,
    partitions=300,
    commit_seconds=20,
    commits_per_s=5_000,
    committers=4,
    transactions=300,
    producers=(1, 8),
    history_transactions=5_000,
    kills=3,
)
QUICK = replace(
    FULL,
    name="quick",
    rounds=1,
    commit_seconds=8,
    transactions=100,
    history_transactions=1_000,
    kills=1,
)
