"""aiokafka's consumers as members of a group.

    python aiokafka_group.py <bootstrap> <group> <topic> <records>

Two members share the topic; prints as JSON what they read, owned and committed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiokafka  # type: ignore[import-untyped]

DEADLINE_S = 120.0


async def main(bootstrap: str, group: str, topic: str, records: str) -> None:
    """Do it all."""
    members = [
        aiokafka.AIOKafkaConsumer(
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
    await asyncio.gather(*(member.start() for member in members))
    read: list[dict[Any, set[int]]] = [{}, {}]
    """By member, of the partitions it owns: of others a new owner begins at the beginning."""

    def values() -> list[int]:
        return sorted(v for mine in read for some in mine.values() for v in some)

    def owned() -> list[int]:
        return [len(member.assignment()) for member in members]

    async with asyncio.timeout(DEADLINE_S):
        while not (all(owned()) and len(values()) >= int(records)):
            for number, member in enumerate(members):
                polled: dict[Any, Any] = await member.getmany(timeout_ms=200)
                owns = member.assignment()
                read[number] = {p: v for p, v in read[number].items() if p in owns}
                for where, found in polled.items():
                    read[number].setdefault(where, set()).update(int(r.value) for r in found)
    for member in members:
        await member.commit()
    partitions = sorted(members[0].partitions_for_topic(topic))
    seen: dict[str, Any] = {
        "values": values(),
        "owned": owned(),
        "committed": [
            await members[0].committed(aiokafka.TopicPartition(topic, p)) for p in partitions
        ],
    }
    for member in members:
        await member.stop()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
