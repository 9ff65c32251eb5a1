"""Groups in simulated clusters: one owner a generation, and no commit is lost."""

from __future__ import annotations

from itertools import islice

import pytest

from sparklog.core.types import TopicPartition
from sparklog.testing.group_history import Committed, GroupLog, Looked, Owned, check_group
from tests.sim.mutants import GROUP_MUTANTS
from tests.sim.seeds import run_seed, stories, with_members

QUICK = range(6)
MANY = range(2_000)
TO_CATCH = range(16, 46)
WHERE = TopicPartition("t", 0)


def test_no_seed_of_the_first_few_loses_a_commit() -> None:
    failed = list(stories(QUICK, "members"))
    assert not failed, "\n\n".join(failed)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_no_seed_of_many_loses_a_commit() -> None:
    failed = list(islice(stories(MANY, "members"), 5))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("name", GROUP_MUTANTS)
def test_a_broken_build_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GROUP_MUTANTS[name](monkeypatch)
    plans = ((seed, with_members(seed)) for seed in TO_CATCH)
    assert any(run_seed(seed, plan=plan).failed for seed, plan in plans), f"{name} unnoticed"


def _kinds(log: GroupLog) -> list[str]:
    return [anomaly.kind for anomaly in check_group(log)]


def test_a_partition_has_one_owner_a_generation() -> None:
    log = GroupLog(owned=[Owned(1, "a", WHERE), Owned(1, "a", WHERE), Owned(2, "b", WHERE)])
    assert _kinds(log) == []
    log.owned.append(Owned(2, "a", WHERE))
    assert _kinds(log) == ["two-owners"]


def test_who_looks_after_a_commit_is_told_of_it_or_of_a_later_one() -> None:
    log = GroupLog(commits=[Committed(WHERE, 5, 1.0)], tried={(WHERE, 5), (WHERE, 7)})
    log.looks = [Looked(WHERE, -1, 0.9), Looked(WHERE, 5, 1.1), Looked(WHERE, 7, 1.2)]
    assert _kinds(log) == []
    log.looks = [Looked(WHERE, -1, 1.1), Looked(WHERE, 6, 1.2)]
    assert _kinds(log) == ["lost-commit", "invented-commit"]
