"""History of transactional producers and `read_committed` consumers, and its checker. Pure.

Values are unique integers. A transaction is committed or aborted once its producer has the
response. Between the request and the response it may be either, but as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sparklog.core.types import TopicPartition
from sparklog.testing.history import Anomaly


class Fate(Enum):
    """The outcome of a transaction, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Transaction:
    """The acknowledged records of one transaction."""

    producer: str
    written: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Partition and value, in the order of writing."""
    fate: Fate = Fate.UNKNOWN


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """One record that a `read_committed` consumer got."""

    partition: TopicPartition
    offset: int
    value: int
    final: bool
    """True if it was read from start to end, after all faults ended."""


def check_transactions(
    transactions: list[Transaction], reads: list[CommittedRead]
) -> Iterator[Anomaly]:
    """Yield the anomalies of transactions."""
    final: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for read in reads:
        if read.final:
            final[read.partition][read.offset] = read.value
    shown = {value for records in final.values() for value in records.values()}
    for transaction in transactions:
        yield from _torn(transaction, shown)
    values = [value for transaction in transactions for _, value in transaction.written]
    aborted = {
        value: transaction
        for transaction in transactions
        if transaction.fate is Fate.ABORTED
        for _, value in transaction.written
    }
    assert len(values) == len(set(values)), "a value was written twice by the test itself"
    for read in reads:
        if read.value in aborted:
            told = f"value={read.value} offset={read.offset} of={aborted[read.value].producer}"
            yield Anomaly("aborted-read", read.partition, told)
        elif final and final[read.partition].get(read.offset) != read.value:
            told = f"value={read.value} offset={read.offset}"
            yield Anomaly("uncommitted-read", read.partition, told)


def _torn(transaction: Transaction, shown: set[int]) -> Iterator[Anomaly]:
    """Yield transactions that were read in part, or committed ones that were not read."""
    missing = [(p, value) for p, value in transaction.written if value not in shown]
    if not missing or transaction.fate is Fate.ABORTED:
        return
    is_whole = len(missing) == len(transaction.written)
    if transaction.fate is Fate.COMMITTED or not is_whole:
        kind = "lost-transaction" if is_whole else "torn-transaction"
        told = f"missing={missing[:5]} of={len(transaction.written)} {transaction.producer}"
        yield Anomaly(kind, missing[0][0], told)
