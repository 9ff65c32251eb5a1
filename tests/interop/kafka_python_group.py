"""kafka-python's consumers as members of a group, in a process of their own.

    python kafka_python_group.py <bootstrap> <group> <topic> <records>

Two members share the topic; prints as JSON what they read, owned and committed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import kafka  # type: ignore[import-untyped]

DEADLINE_S = 120.0


def main(bootstrap: str, group: str, topic: str, records: str) -> None:
    """Do it all."""
    members = [
        kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=f"member-{number}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,  # the clients' default; a busy machine may stall for 6 s
            heartbeat_interval_ms=200,
        )
        for number in range(2)
    ]
    deadline = time.monotonic() + DEADLINE_S
    read: list[dict[Any, set[int]]] = [{}, {}]
    """By member, of the partitions it owns: of others a new owner begins at the beginning."""

    def values() -> list[int]:
        return sorted(v for mine in read for some in mine.values() for v in some)

    def owned() -> list[int]:
        return [len(member.assignment()) for member in members]

    while time.monotonic() < deadline and not (all(owned()) and len(values()) >= int(records)):
        for number, member in enumerate(members):
            polled = member.poll(200)
            owns = member.assignment()
            read[number] = {p: v for p, v in read[number].items() if p in owns}
            for where, found in polled.items():
                read[number].setdefault(where, set()).update(int(r.value) for r in found)
    for member in members:
        member.commit()
    partitions = sorted(members[0].partitions_for_topic(topic))
    seen: dict[str, Any] = {
        "values": values(),
        "owned": owned(),
        "committed": [members[0].committed(kafka.TopicPartition(topic, p)) for p in partitions],
    }
    for member in members:
        member.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
