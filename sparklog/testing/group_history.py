"""History of a consumer group's members, and its checker. Pure.

Members commit rising offsets only, and restart after a commit without a response. So committed
offsets never go back. Times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sparklog.core.types import TopicPartition
from sparklog.testing.history import Anomaly


@dataclass(frozen=True, slots=True)
class Owned:
    """An assignment of a partition to a member."""

    generation: int
    member: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that the coordinator acknowledged."""

    partition: TopicPartition
    offset: int
    completed_s: float


@dataclass(frozen=True, slots=True)
class Looked:
    """A committed offset that the coordinator returned; -1 if there was none."""

    partition: TopicPartition
    offset: int
    invoked_s: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A time span in which a partition surely belongs to a member.

    It begins with the member's assignment, and ends when the member revokes the partition or its
    session may end.
    """

    member: str
    partition: TopicPartition
    since_s: float
    until_s: float


@dataclass(slots=True)
class GroupLog:
    """The observations of all members of one group."""

    owned: list[Owned] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    looks: list[Looked] = field(default_factory=list)
    tried: set[tuple[TopicPartition, int]] = field(default_factory=set)
    """Offsets in commit requests."""


def check_group(log: GroupLog) -> Iterator[Anomaly]:
    """Yield the anomalies in a group's history."""
    owners: dict[tuple[int, TopicPartition], str] = {}
    for one in log.owned:
        owner = owners.setdefault((one.generation, one.partition), one.member)
        if owner != one.member:
            told = f"generation={one.generation} members={owner},{one.member}"
            yield Anomaly("two-owners", one.partition, told)
    yield from _read_by_two(log.claims)
    for look in log.looks:
        before = (
            commit.offset
            for commit in log.commits
            if commit.partition == look.partition and commit.completed_s < look.invoked_s
        )
        newest = max(before, default=-1)
        if look.offset < newest:
            told = f"committed={newest} told={look.offset} at_s={look.invoked_s:.3f}"
            yield Anomaly("lost-commit", look.partition, told)
        if look.offset >= 0 and (look.partition, look.offset) not in log.tried:
            yield Anomaly("invented-commit", look.partition, f"told={look.offset}")


def _read_by_two(claims: list[Claim]) -> Iterator[Anomaly]:
    """Yield partitions that a member got while they belonged to another one."""
    newest: dict[TopicPartition, Claim] = {}
    for claim in sorted(claims, key=lambda c: (c.since_s, c.until_s, c.member)):
        before = newest.get(claim.partition)
        if before is not None and before.member != claim.member and claim.since_s < before.until_s:
            told = f"members={before.member},{claim.member} at_s={claim.since_s:.3f}"
            yield Anomaly("read-by-two", claim.partition, told)
        if before is None or claim.until_s > before.until_s:
            newest[claim.partition] = claim
