"""kafka-python's transactions, in a process of their own: it leaves sockets open.

    python kafka_python_transactions.py <bootstrap> <topic>

Commits, aborts, commits; prints as JSON what its consumer then reads of committed records.
"""

from __future__ import annotations

import json
import sys
import time

import kafka  # type: ignore[import-untyped]

DEADLINE_S = 120.0


def main(bootstrap: str, topic: str) -> None:
    """Do it all."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"kp-{topic}")
    producer.init_transactions()
    for value, commit in (("kept", True), ("dropped", False), ("again", True)):
        producer.begin_transaction()
        producer.send(topic, value.encode(), partition=0).get(DEADLINE_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    sys.stdout.write(json.dumps({"committed": read(bootstrap, topic, 2)}))


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """Return the first values of partition 0, and any that come soon after them."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    where = kafka.TopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek(where, 0)
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    soon = None
    while time.monotonic() < (soon or deadline):
        for messages in consumer.poll(timeout_ms=200).values():
            values += [message.value.decode() for message in messages]
        if len(values) >= count and soon is None:
            soon = time.monotonic() + 0.5
    consumer.close()
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
