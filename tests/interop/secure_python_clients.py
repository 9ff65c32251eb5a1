"""kafka-python and aiokafka with TLS and a login, as processes of their own.

Their imports warn, and warnings are errors in tests. The argument is a JSON object with the client,
its settings, the file of the authority, the topic, and the number of records. The output is the
values that were consumed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

GROUP: dict[str, Any] = {"auto_offset_reset": "earliest"}


def kafka_python(
    settings: dict[str, Any], authority: str, topic: str, values: list[bytes]
) -> list[bytes]:
    """Return the values that a group reads after a producer has sent them."""
    import kafka  # type: ignore[import-untyped]  # noqa: PLC0415 - one client a process

    tls = {"ssl_cafile": authority}
    producer = kafka.KafkaProducer(**settings, **tls)
    for value in values:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, **tls, **GROUP, group_id=topic, consumer_timeout_ms=30_000
    )
    found: list[bytes] = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(values):
            break
    consumer.close()
    return found


def aiokafka(
    settings: dict[str, Any], authority: str, topic: str, values: list[bytes]
) -> list[bytes]:
    """Return the values that a group reads after a producer has sent them."""
    import aiokafka as client  # type: ignore[import-untyped]  # noqa: PLC0415 - one a process
    from aiokafka.helpers import (  # type: ignore[import-untyped]  # noqa: PLC0415
        create_ssl_context,
    )

    async def story() -> list[bytes]:
        tls = {"ssl_context": create_ssl_context(cafile=authority)}
        async with client.AIOKafkaProducer(**settings, **tls) as producer:
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
        consumer = client.AIOKafkaConsumer(topic, **settings, **tls, **GROUP, group_id=topic)
        async with consumer, asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in values]

    return asyncio.run(story())


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    run = {"kafka-python": kafka_python, "aiokafka": aiokafka}[asked["client"]]
    sent = [text.encode() for text in asked["values"]]
    got = run(asked["settings"], asked["authority"], asked["topic"], sent)
    sys.stdout.write(json.dumps([value.decode() for value in got]))
