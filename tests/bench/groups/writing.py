"""Transactions of a hundred records, as an ordinary client writes them."""

from __future__ import annotations

import os
from itertools import count

from confluent_kafka import Producer

from tests.bench.common.side import ANSWER_TIMEOUT_S, Side

RECORDS = 100
"""In each transaction."""
RECORD_BYTES = 100

_names = count(1)


class TransactionWriter:
    """One transactional producer."""

    def __init__(self, side: Side, topic: str, partitions: int) -> None:
        """Initialize it."""
        self._topic = topic
        self._partitions = partitions
        self._value = os.urandom(RECORD_BYTES)
        self._failed: list[object] = []
        settings = {
            "bootstrap.servers": side.bootstrap,
            "transactional.id": f"writer-{os.getpid()}-{next(_names)}",
            "log_level": 2,
        }
        self._producer = Producer(settings)
        self._producer.init_transactions(ANSWER_TIMEOUT_S)

    def write(self, transactions: int) -> None:
        """Write transactions, one after the other, each over all partitions."""
        for _ in range(transactions):
            self._producer.begin_transaction()
            for number in range(RECORDS):
                self._producer.produce(
                    self._topic,
                    self._value,
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
            self._producer.commit_transaction(ANSWER_TIMEOUT_S)
        assert not self._failed, f"{len(self._failed)} records failed, first {self._failed[0]}"

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)
