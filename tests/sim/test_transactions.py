"""Transactions in simulated clusters: whole or not at all, whatever happens to the brokers."""

from __future__ import annotations

from itertools import islice

import pytest

from sparklog.core.types import TopicPartition
from sparklog.testing.transaction_history import (
    CommittedRead,
    Fate,
    Transaction,
    check_transactions,
)
from tests.sim.mutants import TRANSACTION_MUTANTS
from tests.sim.seeds import run_seed, stories, with_transactions

QUICK = range(6)
MANY = range(2_000)
TO_CATCH = range(10, 20)
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_no_seed_of_the_first_few_tears_a_transaction() -> None:
    failed = list(stories(QUICK, "transactions"))
    assert not failed, "\n\n".join(failed)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_no_seed_of_many_tears_a_transaction() -> None:
    failed = list(islice(stories(MANY, "transactions"), 5))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("name", TRANSACTION_MUTANTS)
def test_a_broken_build_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    TRANSACTION_MUTANTS[name](monkeypatch)
    plans = ((seed, with_transactions(seed)) for seed in TO_CATCH)
    assert any(run_seed(seed, plan=plan).failed for seed, plan in plans), f"{name} unnoticed"


def _kinds(transaction: Transaction, *reads: CommittedRead) -> list[str]:
    return [anomaly.kind for anomaly in check_transactions([transaction], list(reads))]


def _read(where: TopicPartition, offset: int, value: int, *, final: bool = True) -> CommittedRead:
    return CommittedRead(where, offset, value, final)


def _wrote(fate: Fate) -> Transaction:
    return Transaction("p", [(ONE, 1), (OTHER, 2)], fate)


def test_a_transaction_is_seen_wholly_or_not_at_all() -> None:
    both = _read(ONE, 0, 1), _read(OTHER, 0, 2)
    for fate in (Fate.COMMITTED, Fate.UNKNOWN):
        assert _kinds(_wrote(fate), *both) == []
        assert _kinds(_wrote(fate), both[0]) == ["torn-transaction"]
    assert _kinds(_wrote(Fate.COMMITTED)) == ["lost-transaction"]
    assert _kinds(_wrote(Fate.UNKNOWN)) == []
    assert _kinds(_wrote(Fate.ABORTED)) == []


def test_nobody_is_shown_what_is_aborted_or_not_yet_committed() -> None:
    assert _kinds(_wrote(Fate.ABORTED), _read(ONE, 0, 1, final=False)) == ["aborted-read"]
    early = _read(ONE, 0, 1, final=False)
    assert _kinds(_wrote(Fate.UNKNOWN), early, _read(ONE, 5, 9)) == ["uncommitted-read"]
