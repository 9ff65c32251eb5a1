"""Requests of Kafka 4.4: new versions, and APIs that clients use to detect a broker's version."""

from __future__ import annotations

import warnings
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import Api, advertised
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import SOON, create_topics

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.broker_version_data import (  # type: ignore[import-untyped]
        infer_broker_version_from_api_versions,
    )

NONE = ErrorCode.none


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, NONE),
        ("cluster", 1, NONE),
        ("cluster", -1, NONE),
        ("other", -1, ErrorCode.rebootstrap_required),
        ("cluster", 7, ErrorCode.rebootstrap_required),
    ],
)
def test_client_of_another_cluster_or_broker_must_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    async def story(node: ToyNode) -> None:
        request = build_request(
            Api.API_VERSIONS,
            5,
            client_software_name="test",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        answer = await node.ask(request)
        assert answer.error_code is code
        assert bool(answer.api_keys) == (code is NONE)

    tell(story)


@pytest.mark.parametrize(("wanted", "offered"), [("", False), ("org.apache.kafka.", True)])
def test_telemetry_is_offered_only_where_an_operator_asks(wanted: str, offered: bool) -> None:
    async def story(node: ToyNode) -> None:
        request = build_request(
            Api.API_VERSIONS, 3, client_software_name="test", client_software_version="1"
        )
        keys = {one.api_key for one in (await node.ask(request)).api_keys}
        telemetry = {Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY}
        assert keys & telemetry == (telemetry if offered else set())
        assert Api.PRODUCE in keys

    tell(story, sparklog_client_metrics=wanted)


def test_kafka_python_takes_brokers_for_the_newest_version_it_knows() -> None:
    told = {key: (lowest, highest) for key, lowest, highest in advertised()}
    assert infer_broker_version_from_api_versions(told) == (4, 3)


def test_the_metadata_log_is_described_as_a_quorum_of_all_brokers() -> None:
    async def story(node: ToyNode) -> None:
        def topic(name: str) -> Any:
            part = build_request_part(Api.DESCRIBE_QUORUM, 2, "PartitionData", partition_index=0)
            return build_request_part(
                Api.DESCRIBE_QUORUM, 2, "TopicData", topic_name=name, partitions=(part,)
            )

        topics = topic("__cluster_metadata"), topic("t")
        answer = await node.ask(build_request(Api.DESCRIBE_QUORUM, 2, topics=topics))
        known, strange = (one.partitions[0] for one in answer.topics)
        assert (known.error_code, known.leader_id) == (NONE, 1)
        assert [one.replica_id for one in known.current_voters] == [1, 2]
        assert known.high_watermark == node.metadata.image.end_offset
        assert [one.node_id for one in answer.nodes] == [1, 2]
        assert strange.error_code is ErrorCode.unknown_topic_or_partition
        oldest = build_request(Api.DESCRIBE_QUORUM, 0, topics=())
        assert (await node.ask(oldest)).error_code is NONE

    tell(story, brokers=(1, 2))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_of_features_cannot_be_changed(version: int) -> None:
    async def story(node: ToyNode) -> None:
        for feature, level, code in (
            ("group.version", 1, NONE),
            ("group.version", 0, ErrorCode.invalid_update_version),
            ("share.version", 1, ErrorCode.invalid_update_version),
        ):
            update = build_request_part(
                Api.UPDATE_FEATURES,
                version,
                "FeatureUpdateKey",
                feature=feature,
                max_version_level=level,
                upgrade_type=1,
                allow_downgrade=False,
            )
            answer = await node.ask(
                build_request(
                    Api.UPDATE_FEATURES,
                    version,
                    timeout=SOON,
                    feature_updates=(update,),
                    validate_only=False,
                )
            )
            assert answer.error_code is code
            for result in getattr(answer, "results", ()):
                assert (result.feature, result.error_code) == (feature, code)

    tell(story)


def test_replicas_cannot_move_to_another_directory() -> None:
    async def story(node: ToyNode) -> None:
        part = build_request_part(
            Api.ALTER_REPLICA_LOG_DIRS, 2, "AlterReplicaLogDirTopic", name="t", partitions=(0,)
        )
        moved = build_request_part(
            Api.ALTER_REPLICA_LOG_DIRS, 2, "AlterReplicaLogDir", path="/elsewhere", topics=(part,)
        )
        request = build_request(Api.ALTER_REPLICA_LOG_DIRS, 2, dirs=(moved,))
        (topic,) = (await node.ask(request)).results
        assert [one.error_code for one in topic.partitions] == [ErrorCode.log_dir_not_found]

    tell(story)


def test_fenced_brokers_are_described_on_request() -> None:
    async def story(node: ToyNode) -> None:
        for fenced in (True, False):
            answer = await node.ask(
                build_request(
                    Api.DESCRIBE_CLUSTER,
                    2,
                    include_cluster_authorized_operations=False,
                    endpoint_type=1,
                    include_fenced_brokers=fenced,
                )
            )
            assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(1, False)]

    tell(story)


def test_topics_of_a_transaction_s_offsets_are_known_by_id() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        part = build_request_part(
            Api.TXN_OFFSET_COMMIT,
            6,
            "TxnOffsetCommitRequestPartition",
            partition_index=0,
            committed_offset=5,
            committed_metadata="",
        )
        topic = build_request_part(
            Api.TXN_OFFSET_COMMIT,
            6,
            "TxnOffsetCommitRequestTopic",
            topic_id=UUID(int=9),
            partitions=(part,),
        )
        answer = await node.ask(
            build_request(
                Api.TXN_OFFSET_COMMIT,
                6,
                transactional_id="tx",
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                topics=(topic,),
            )
        )
        (found,) = answer.topics
        assert found.topic_id == UUID(int=9)
        assert found.partitions[0].error_code is ErrorCode.unknown_topic_id

    tell(story)
