"""A consumer in a process of its own, to be killed.

    python group_member.py <bootstrap> <group> <topic> <session ms>

Prints "assigned" when it has partitions, and polls on.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer


def main(bootstrap: str, group: str, topic: str, session_ms: str) -> None:
    """Be a member until killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": int(session_ms),
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    told = False
    while True:
        consumer.poll(0.05)
        if not told and consumer.assignment():
            told = True
            sys.stdout.write("assigned\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
