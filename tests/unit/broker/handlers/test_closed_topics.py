"""Topics with the cluster's own state: the requests that clients may and may not send."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.cluster.metadata import changes
from sparklog.core.entropy import new_topic_id
from sparklog.core.topic_names import CLOSED_TOPICS, JOBS_TOPIC, LISTED_AS_INTERNAL, METADATA_TOPIC
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.header import ATTRIBUTES_AT, REFERENCE_BIT
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
    produce,
)
from tests.harness.replica_cluster import batch

REFUSED = ErrorCode.invalid_topic_exception
NAMES = sorted(CLOSED_TOPICS)
LISTED = sorted(LISTED_AS_INTERNAL)
TOPIC = 2


async def given(node: ToyNode, name: str, **configs: str) -> None:
    """Create a topic as the cluster does."""
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    topic_id = new_topic_id(node.environment.entropy)
    await node.metadata.decide(
        lambda image: changes.create_topic(image, name, topic_id, 1, configs, by_cluster=True)
    )


def codes(answer: Any) -> list[ErrorCode]:
    return [p.error_code for t in answer.responses for p in t.partition_responses]


def delete_records(name: str) -> Any:
    api = Api.DELETE_RECORDS
    part = build_request_part(api, 2, "DeleteRecordsPartition", partition_index=0, offset=-1)
    topic = build_request_part(api, 2, "DeleteRecordsTopic", name=name, partitions=(part,))
    return build_request(api, 2, topics=(topic,), timeout=timedelta(seconds=1))


@pytest.mark.parametrize("name", LISTED)
def test_produce_to_an_internal_topic_is_rejected(name: str) -> None:
    async def story(node: ToyNode) -> None:
        await given(node, name)
        uuid = uuid_of(node.metadata.image.topics[name].topic_id)
        data = batch(b"x")
        assert codes(await node.ask(produce(name, (0, data)))) == [REFUSED]
        assert codes(await node.ask(produce(uuid, (0, data), version=13))) == [REFUSED]
        assert node.replicas.logs == {}

    tell(story)


def test_job_history_alone_accepts_references_from_clients() -> None:
    async def story(node: ToyNode) -> None:
        data = bytearray(batch(b"x"))
        data[ATTRIBUTES_AT] |= REFERENCE_BIT >> 8
        for name in LISTED:
            await given(node, name)
            (code,) = codes(await node.ask(produce(name, (0, bytes(data)))))
            assert (code is REFUSED) == (name != JOBS_TOPIC)

    tell(story)


@pytest.mark.parametrize("name", NAMES)
def test_internal_topics_cannot_be_created_by_clients(name: str) -> None:
    async def story(node: ToyNode) -> None:
        (told,) = (await node.ask(create_topics(name))).topics
        assert told.error_code is REFUSED
        assert "the cluster's own state" in told.error_message
        (seen,) = (await node.ask(metadata(name, create=True))).topics
        assert seen.error_code is ErrorCode.unknown_topic_or_partition
        assert name not in node.metadata.image.topics

    tell(story)


@pytest.mark.parametrize("name", LISTED)
def test_internal_topics_cannot_be_deleted_grown_or_emptied(name: str) -> None:
    async def story(node: ToyNode) -> None:
        await given(node, name, cleanup_policy="compact,delete")
        topic = node.metadata.image.topics[name]
        for request in (delete_topics(name), delete_topics(ids=(uuid_of(topic.topic_id),))):
            (told,) = (await node.ask(request)).responses
            assert told.error_code is REFUSED
        (grown,) = (await node.ask(create_partitions(name, 5))).results
        assert grown.error_code is REFUSED
        (emptied,) = (await node.ask(delete_records(name))).topics
        assert emptied.partitions[0].error_code is REFUSED
        assert node.metadata.image.topics[name] == topic

    tell(story)


@pytest.mark.parametrize("name", LISTED)
def test_settings_of_a_topic_of_the_cluster_stay_alterable(name: str) -> None:
    async def story(node: ToyNode) -> None:
        await given(node, name)
        change = alter_configs(TOPIC, name, ("segment.bytes", 0, "2097152"))
        (told,) = (await node.ask(change)).responses
        assert told.error_code is ErrorCode.none
        assert node.metadata.image.topics[name].configs["segment.bytes"] == "2097152"

    tell(story)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.policy_violation),
        ("delete", ErrorCode.none),
        ("compact,delete", ErrorCode.none),
    ],
)
def test_delete_records_wants_a_cleanup_policy_with_delete(policy: str, code: ErrorCode) -> None:
    async def story(node: ToyNode) -> None:
        await given(node, "t", cleanup_policy=policy)
        (told,) = (await node.ask(delete_records("t"))).topics
        assert told.partitions[0].error_code is code

    tell(story)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_adds_no_partition_of_the_cluster_to_its_transaction(name: str) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        if name != METADATA_TOPIC:
            await given(node, name)
        api, version = Api.ADD_PARTITIONS_TO_TXN, 3
        topics = tuple(
            build_request_part(api, version, "AddPartitionsToTxnTopic", name=one, partitions=(0,))
            for one in ("t", name)
        )
        request = build_request(
            api,
            version,
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        told = (await node.ask(request)).results_by_topic_v3_and_below
        assert [t.results_by_partition[0].partition_error_code for t in told] == [
            ErrorCode.operation_not_attempted,
            ErrorCode.topic_authorization_failed,
        ]

    tell(story)
