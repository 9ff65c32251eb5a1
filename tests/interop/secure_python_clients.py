"""kafka-python and aiokafka with TLS and a login, as processes of their own.

Their imports warn, and warnings are errors in tests. The argument is a JSON object: the fields of
`Asked`. The client first aborts a transaction, then sends the values in transactions. A group
consumes what is committed meanwhile. The output is the values that it consumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

GROUP: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    # aiokafka does not log in again: each heartbeat after the end of a session would fail.
    "heartbeat_interval_ms": 500,
}
PER_TRANSACTION = 20
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """The parts of the argument."""

    client: str
    settings: dict[str, Any]
    authority: str
    store: str
    """PEM file with the client's key and certificate; may be empty."""
    token: str
    topic: str
    values: list[str]
    pause_s: float = 0.0
    found: list[str] = field(default_factory=list)

    @property
    def batches(self) -> list[list[bytes]]:
        """Return the values by transaction."""
        sent = [value.encode() for value in self.values]
        return [sent[n : n + PER_TRANSACTION] for n in range(0, len(sent), PER_TRANSACTION)]

    def left(self, deadline_s: float) -> bool:
        """Return whether values are still awaited."""
        return len(self.found) < len(self.values) and time.monotonic() < deadline_s


def kafka_python(asked: Asked) -> None:
    """Run kafka-python."""
    import kafka  # type: ignore[import-untyped]  # noqa: PLC0415 - one client a process
    from kafka.net.sasl.oauth import (  # type: ignore[import-untyped]  # noqa: PLC0415
        AbstractTokenProvider,
    )

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return asked.token

    settings = {**asked.settings, "ssl_cafile": asked.authority}
    if asked.store:
        settings |= {"ssl_certfile": asked.store, "ssl_keyfile": asked.store}
    if asked.token:
        settings["sasl_oauth_token_provider"] = Provider()
    producer = kafka.KafkaProducer(**settings, transactional_id=asked.topic)
    consumer = kafka.KafkaConsumer(asked.topic, **settings, **GROUP, group_id=asked.topic)

    def take(wait_ms: int) -> None:
        for records in consumer.poll(timeout_ms=wait_ms).values():
            asked.found.extend(record.value.decode() for record in records)

    producer.init_transactions()
    producer.begin_transaction()
    producer.send(asked.topic, b"aborted").get(DEADLINE_S)
    producer.abort_transaction()
    for batch in asked.batches:
        producer.begin_transaction()
        for value in batch:
            producer.send(asked.topic, value)
            take(round(asked.pause_s * 1000))
        producer.commit_transaction()
    deadline_s = time.monotonic() + DEADLINE_S
    while asked.left(deadline_s):
        take(200)
    take(500)  # nothing may come twice
    producer.close()
    consumer.close()


async def aiokafka(asked: Asked) -> None:
    """Run aiokafka."""
    import aiokafka as client  # type: ignore[import-untyped]  # noqa: PLC0415 - one a process
    from aiokafka.abc import (  # type: ignore[import-untyped]  # noqa: PLC0415
        AbstractTokenProvider,
    )
    from aiokafka.helpers import (  # type: ignore[import-untyped]  # noqa: PLC0415
        create_ssl_context,
    )

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return asked.token

    store = {"certfile": asked.store, "keyfile": asked.store} if asked.store else {}
    tls = {"ssl_context": create_ssl_context(cafile=asked.authority, **store)}
    settings = {**asked.settings, **tls}
    if asked.token:
        settings["sasl_oauth_token_provider"] = Provider()
    producer = client.AIOKafkaProducer(**settings, transactional_id=asked.topic)
    consumer = client.AIOKafkaConsumer(asked.topic, **settings, **GROUP, group_id=asked.topic)

    async def take(wait_ms: int) -> None:
        for records in (await consumer.getmany(timeout_ms=wait_ms)).values():
            asked.found.extend(record.value.decode() for record in records)

    await consumer.start()
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(asked.topic, b"aborted")
        await producer.abort_transaction()
        for batch in asked.batches:
            async with producer.transaction():
                for value in batch:
                    await producer.send(asked.topic, value)
                    await take(round(asked.pause_s * 1000))
        deadline_s = time.monotonic() + DEADLINE_S
        while asked.left(deadline_s):
            await take(200)
        await take(500)  # nothing may come twice
    # It fails so if a connection has just been lost.
    with contextlib.suppress(asyncio.CancelledError):
        await consumer.stop()


if __name__ == "__main__":
    argument = Asked(**json.loads(sys.argv[1]))
    if argument.client == "kafka-python":
        kafka_python(argument)
    else:
        asyncio.run(aiokafka(argument))
    sys.stdout.write(json.dumps(argument.found))
