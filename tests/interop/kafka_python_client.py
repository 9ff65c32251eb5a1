"""kafka-python in a process of its own: it leaves sockets open, which this suite's checks find.

    python kafka_python_client.py <bootstrap> <topic>

Makes the topic, writes with every codec, reads it all back, deletes the topic; prints as JSON what
it saw.
"""

from __future__ import annotations

import json
import sys
import time

import kafka  # type: ignore[import-untyped]
import kafka.admin  # type: ignore[import-untyped]

CODECS = (None, "gzip")
RECORDS = 200
DEADLINE_S = 100.0


def main(bootstrap: str, topic: str) -> None:
    """Do it all."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    offsets = [write(bootstrap, topic, codec) for codec in CODECS]
    values = read(bootstrap, topic)
    listed = admin.list_topics()
    admin.delete_topics([topic])
    seen = {
        "offsets": offsets,
        "values": values,
        "listed": topic in listed,
        "listed_after": is_listed_still(admin, topic),
    }
    sys.stdout.write(json.dumps(seen))


def is_listed_still(admin: kafka.KafkaAdminClient, topic: str) -> bool:
    """Return True if a deleted topic stays listed: each broker learns of it in its own time."""
    deadline = time.monotonic() + DEADLINE_S
    while topic in admin.list_topics():
        if time.monotonic() > deadline:
            return True
    return False


def write(bootstrap: str, topic: str, codec: str | None) -> list[int]:
    """Return the offsets of records written with one codec."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
    sent = [producer.send(topic, f"{codec} {n}".encode()) for n in range(RECORDS)]
    offsets = [future.get(DEADLINE_S).offset for future in sent]
    producer.close()
    return offsets


def read(bootstrap: str, topic: str) -> list[str]:
    """Return every value of the topic."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < len(CODECS) * RECORDS and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            values += [record.value.decode() for record in records]
    consumer.close()
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
