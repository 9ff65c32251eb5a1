"""A small application: it turns each order into a bill, exactly once.

Orders are `customer:cents`, bills are the sum of a customer's orders so far. Offsets and bills go
in one transaction, so a crash repeats nothing.
"""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

ORDERS, BILLS = "orders", "bills"
STARTS_WITHIN_S = 20.0


class Billing:
    """Reads orders and writes bills."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Connect as the only reader of the orders."""
        self._totals: Counter[str] = Counter()
        self._orders = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._orders.subscribe([ORDERS])
        self._bills = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": "billing"}
        )
        self._bills.init_transactions(STARTS_WITHIN_S)

    def bill(self, orders: int) -> None:
        """Write the bills of the next `orders` orders."""
        while orders > 0:
            message = self._orders.poll(1.0)
            if message is None or message.error() is not None:
                continue
            customer, _, cents = (message.value() or b"").decode().partition(":")
            self._totals[customer] += int(cents)
            self._write(f"{customer}:{self._totals[customer]}")
            orders -= 1

    def _write(self, bill: str) -> None:
        position: list[TopicPartition] = self._orders.position(self._orders.assignment())
        while True:
            self._bills.begin_transaction()
            try:
                self._bills.produce(BILLS, bill)
                self._bills.send_offsets_to_transaction(
                    [one for one in position if one.offset >= 0],
                    self._orders.consumer_group_metadata(),
                )
                self._bills.commit_transaction()
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._bills.abort_transaction()
            else:
                return

    def close(self) -> None:
        """Leave the group."""
        self._orders.close()
