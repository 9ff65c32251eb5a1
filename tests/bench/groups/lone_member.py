"""A member in a process of its own, to be killed: it prints what it has, a line each time.

python -m tests.bench.groups.lone_member BOOTSTRAP GROUP TOPIC PROTOCOL
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer

from tests.bench.groups.members import CLIENT, POLL_S, PROTOCOLS


def main(bootstrap: str, group_id: str, topic: str, protocol: str) -> None:
    """Read until the process is ended."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group_id, **CLIENT, **PROTOCOLS[protocol]}
    )
    consumer.subscribe([topic])
    known: list[int] = []
    while True:
        consumer.poll(POLL_S)
        owned = sorted(one.partition for one in consumer.assignment())
        if owned != known:
            known = owned
            sys.stdout.write(json.dumps(owned) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
