"""The audit writer: batches go to the topic's leader until they are acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from sparklog.broker.node.audit_writer import BATCH_BYTES, AuditWriter, encode_batches
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.runtime.audit_buffer import AuditEvent
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.core.types import PartitionId
from sparklog.protocol.records.decoder import decode
from sparklog.security.acls import AclOperation, ResourceType
from tests.harness.access_node import ALICE, new_topic, tell_guarded
from tests.harness.handler_node import ToyNode
from tests.harness.handler_requests import metadata


@asynccontextmanager
async def writing(node: ToyNode) -> AsyncIterator[AuditWriter]:
    writer = AuditWriter(
        node.audit, node.environment, node.metadata, node.config, node.broker_id, node.metrics
    )
    task = asyncio.create_task(writer.run(cast("Replicas", node.replicas)))
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(node: ToyNode, where: PartitionId) -> list[str]:
    """Return the names of the resources in the records of the topic."""
    batches = [decode(data).records for data in node.replicas.logs[where]]
    values = [value for batch in batches for value in batch["value"].to_pylist()]
    return [json.loads(value)["resource_name"] for value in values]


async def place(node: ToyNode) -> PartitionId:
    await new_topic(node, AUDIT_TOPIC)
    return PartitionId(node.metadata.image.topics[AUDIT_TOPIC].topic_id, 0)


def test_the_first_event_creates_the_topic_and_the_batch_follows() -> None:
    async def story(node: ToyNode) -> None:
        async with writing(node) as writer:
            assert AUDIT_TOPIC not in node.metadata.image.topics
            await node.ask(metadata("a", "b"), ALICE)
            await writer.flush(10.0)
        topic = node.metadata.image.topics[AUDIT_TOPIC]
        assert topic.partitions == 1
        assert topic.configs == {"cleanup.policy": "delete"}
        assert sorted(names(node, PartitionId(topic.topic_id, 0))) == ["a", "b"]
        assert (node.metrics.audit_records, node.metrics.audit_records_lost) == (2, 0)
        assert writer.unwritten == 0

    tell_guarded(story, sparklog_audit_level="INFO")


def test_a_batch_waits_for_the_leader_and_keeps_its_place() -> None:
    async def story(node: ToyNode) -> None:
        where = await place(node)
        node.replicas.elsewhere.add(where)
        async with writing(node) as writer:
            await node.ask(metadata("a"), ALICE)
            await writer.flush(3.0)
            assert writer.unwritten == 1
        # The next incarnation goes on where the last one stopped.
        task = asyncio.create_task(writer.run(cast("Replicas", node.replicas)))
        await node.ask(metadata("b"), ALICE)
        node.replicas.elsewhere.clear()
        await writer.flush(60.0)
        task.cancel()
        assert names(node, where) == ["a", "b"]
        assert node.metrics.audit_records == 2

    tell_guarded(story, sparklog_audit_level="INFO")


def test_rejected_batches_and_events_of_a_stopped_broker_are_lost() -> None:
    async def story(node: ToyNode) -> None:
        where = await place(node)

        async def produce(batches: Any, *more: Any) -> Mapping[PartitionId, SparklogError]:
            return {where: InvalidRequest("no")}

        node.replicas.produce = produce  # type: ignore[method-assign, assignment]
        async with writing(node) as writer:
            await node.ask(metadata("a", "b"), ALICE)
            await writer.flush(10.0)
            assert (writer.unwritten, node.metrics.audit_records_lost) == (0, 2)
        await node.ask(metadata("c"), ALICE)
        writer.end()
        assert (node.metrics.audit_records, node.metrics.audit_records_lost) == (0, 3)

    tell_guarded(story, sparklog_audit_level="INFO")


def test_batches_are_bounded_in_bytes_and_lose_no_event() -> None:
    events = [
        AuditEvent(
            1_700_000_000_000 + number,
            "User:a",
            "::1",
            "L",
            "\U0001f600" * 300,
            3,
            AclOperation.READ,
            ResourceType.TOPIC,
            str(number),
            1,
            False,
            "\U0001f600" * 1000,
        )
        for number in range(200)
    ]
    batches = encode_batches(events, 1)
    assert sum(count for _, count in batches) == len(events)
    rows = [decode(data).records for data, _ in batches]
    for batch, (_, count) in zip(rows, batches, strict=True):
        assert batch.num_rows == count
        sizes = [len(value) for value in batch["value"].to_pylist()]
        assert sum(sizes[:-1]) < BATCH_BYTES
    found = [json.loads(v)["resource_name"] for one in rows for v in one["value"].to_pylist()]
    assert found == [str(number) for number in range(200)]
    assert rows[0]["timestamp"].cast("int64").to_pylist()[:2] == [
        1_700_000_000_000,
        1_700_000_000_001,
    ]
