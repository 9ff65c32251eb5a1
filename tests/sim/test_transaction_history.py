"""Faults in a history of transactions: torn, lost, read too early, or visible after an abort."""

from __future__ import annotations

from sparklog.core.types import TopicPartition
from sparklog.testing.history import CommittedRead, Fate, TransactionHistory, check_transactions

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def _kinds(transaction: TransactionHistory, *reads: CommittedRead) -> list[str]:
    return [anomaly.kind for anomaly in check_transactions([transaction], list(reads))]


def _read(where: TopicPartition, offset: int, value: int, *, final: bool = True) -> CommittedRead:
    return CommittedRead(where, offset, value, final)


def _wrote(fate: Fate) -> TransactionHistory:
    return TransactionHistory("p", [(ONE, 1), (OTHER, 2)], fate)


def test_a_transaction_is_seen_wholly_or_not_at_all() -> None:
    both = _read(ONE, 0, 1), _read(OTHER, 0, 2)
    for fate in (Fate.COMMITTED, Fate.UNKNOWN):
        assert _kinds(_wrote(fate), *both) == []
        assert _kinds(_wrote(fate), both[0]) == ["torn-transaction"]
    assert _kinds(_wrote(Fate.COMMITTED)) == ["lost-transaction"]
    assert _kinds(_wrote(Fate.UNKNOWN)) == []
    assert _kinds(_wrote(Fate.ABORTED)) == []


def test_reader_never_sees_aborted_or_uncommitted_records() -> None:
    assert _kinds(_wrote(Fate.ABORTED), _read(ONE, 0, 1, final=False)) == ["aborted-read"]
    early = _read(ONE, 0, 1, final=False)
    assert _kinds(_wrote(Fate.UNKNOWN), early, _read(ONE, 5, 9)) == ["uncommitted-read"]
