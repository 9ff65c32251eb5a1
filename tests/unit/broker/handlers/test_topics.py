"""Topics: made, described, grown, deleted."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.controller import isr
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.records import ConfigRecord, Record, TopicRecord
from sparklog.log.manifest.pins import pin
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.principal import USER, Principal
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import (
    SOON,
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
)

NONE = ErrorCode.none


def codes(results: Any) -> list[ErrorCode]:
    return [r.error_code for r in results]


def test_a_topic_is_made_and_described() -> None:
    async def story(node: ToyNode) -> None:
        request = create_topics("t", partitions=3, factor=2, configs={"retention.ms": "5"})
        (made,) = (await node.ask(request)).topics
        assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 3, 2)
        sources = {c.name: (c.value, c.config_source) for c in made.configs}
        assert sources["retention.ms"] == ("5", 1)
        assert sources["flush.ms"] == ("10000", 5)

        described = await node.ask(metadata("t"))
        assert [(b.node_id, b.host, b.rack) for b in described.brokers] == [
            (1, "broker-1", "rack-1"),
            (2, "broker-2", "rack-2"),
        ]
        assert described.cluster_id == "cluster"
        assert described.controller_id == 1
        (topic,) = described.topics
        assert (topic.name, topic.topic_id) == ("t", made.topic_id)
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        for part in topic.partitions:
            assert part.leader_id in part.isr_nodes
            assert sorted(part.replica_nodes) == [1, 2]
            assert (part.leader_epoch, part.error_code) == (0, NONE)

    tell(story, brokers=(1, 2))


def test_creator_is_recorded_and_described_as_read_only() -> None:
    async def story(node: ToyNode) -> None:
        alice = RequestContext("client", "10.0.0.1", Principal(USER, "alice"))
        await node.ask(create_topics("hers"), alice)
        await node.ask(metadata("auto", create=True), alice)
        await node.ask(create_topics("open"))
        topics = node.metadata.image.topics
        assert {name: topic.creator for name, topic in topics.items()} == {
            "hers": "User:alice", "auto": "User:alice", "open": "",
        }  # fmt: skip
        asked = [
            build_request_part(
                Api.DESCRIBE_CONFIGS, 4, "DescribeConfigsResource", resource_type=2,
                resource_name=name, configuration_keys=("sparklog.created.by",),
            )
            for name in ("hers", "open")
        ]  # fmt: skip
        answer = await node.ask(
            build_request(
                Api.DESCRIBE_CONFIGS, 4, resources=tuple(asked), include_synonyms=False,
                include_documentation=False,
            )
        )  # fmt: skip
        found = [
            [(c.value, c.read_only, c.config_source) for c in result.configs]
            for result in answer.results
        ]
        assert found == [[("User:alice", True, 5)], []]
        await node.metadata.decide(
            lambda image: [TopicRecord("hers", image.topics["hers"].topic_id, 2)]
        )
        grown = node.metadata.image.topics["hers"]
        assert (grown.creator, grown.replication_factor) == ("User:alice", 2)

    tell(story)


def test_each_topic_of_a_request_has_its_own_answer() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("old"))
        answer = await node.ask(create_topics("new", "old", "a/b", "x", "x"))
        assert {t.name: t.error_code for t in answer.topics} == {
            "new": NONE,
            "old": ErrorCode.topic_already_exists,
            "a/b": ErrorCode.invalid_topic_exception,
            "x": ErrorCode.invalid_request,
        }
        assert set(node.metadata.image.topics) == {"old", "new"}

    tell(story)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"partitions": 0}, ErrorCode.invalid_partitions),
        ({"factor": 2}, ErrorCode.invalid_replication_factor),
        ({"configs": {"no.such": "1"}}, ErrorCode.invalid_config),
        ({"configs": {"retention.ms": None}}, ErrorCode.invalid_config),
        ({"assignments": {0: (1,)}}, ErrorCode.invalid_request),
        (
            {"assignments": {0: (7,)}, "partitions": -1},
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused(wrong: dict[str, Any], code: ErrorCode) -> None:
    async def story(node: ToyNode) -> None:
        (refused,) = (await node.ask(create_topics("t", **wrong))).topics
        assert refused.error_code is code
        assert refused.error_message
        assert not node.metadata.image.topics

    tell(story)


def test_validating_makes_nothing() -> None:
    async def story(node: ToyNode) -> None:
        (would,) = (await node.ask(create_topics("t", partitions=4, validate_only=True))).topics
        assert (would.error_code, would.num_partitions) == (NONE, 4)
        assert not node.metadata.image.topics

    tell(story)


def test_a_topic_made_through_another_broker_is_known_when_it_matters() -> None:
    async def story(node: ToyNode) -> None:
        other = ToyNode(node.environment, {})
        await other.metadata.open()
        await other.ask(create_topics("t"))
        assert "t" not in node.metadata.image.topics
        assert codes((await node.ask(delete_topics("t"))).responses) == [NONE]

    tell(story)


def test_metadata_names_all_topics_when_none_is_named() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("a", "b"))
        oldest = build_request(Api.METADATA, 0, topics=())
        assert [t.name for t in (await node.ask(oldest)).topics] == ["a", "b"]
        assert [t.name for t in (await node.ask(metadata(None))).topics] == ["a", "b"]
        assert (await node.ask(metadata())).topics == ()

    tell(story)


@pytest.mark.parametrize("name", [None, ""])
def test_metadata_finds_a_topic_by_its_id_without_a_name(name: str | None) -> None:
    async def story(node: ToyNode) -> None:
        (made,) = (await node.ask(create_topics("t"))).topics
        for topic_id, found in ((made.topic_id, "t"), (UUID(int=7), None)):
            part = build_request_part(
                Api.METADATA, 13, "MetadataRequestTopic", name=name, topic_id=topic_id
            )
            request = build_request(
                Api.METADATA,
                13,
                topics=(part,),
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=False,
            )
            (topic,) = (await node.ask(request)).topics
            assert (topic.name, topic.topic_id) == (found, topic_id)
            assert topic.error_code == (NONE if found else ErrorCode.unknown_topic_id)
        assert list(node.metadata.image.topics) == ["t"], "no topic was made of the empty name"

    tell(story)


def test_topic_name_that_collides_in_metrics_is_rejected() -> None:
    async def story(node: ToyNode) -> None:
        made = await node.ask(create_topics("a.b", "a_b"))
        assert codes(made.topics) == [NONE, ErrorCode.invalid_topic_exception]

    tell(story)


def test_a_missing_topic_is_made_when_the_client_wants_it() -> None:
    async def story(node: ToyNode) -> None:
        assert codes((await node.ask(metadata("t"))).topics) == [
            ErrorCode.unknown_topic_or_partition
        ]
        made = (await node.ask(metadata("t", "a/b", create=True))).topics
        assert codes(made) == [NONE, ErrorCode.invalid_topic_exception]
        assert len(made[0].partitions) == 3

    tell(story, num_partitions="3")


def test_a_missing_topic_is_not_made_when_the_broker_shall_not() -> None:
    async def story(node: ToyNode) -> None:
        answer = await node.ask(metadata("t", create=True))
        assert codes(answer.topics) == [ErrorCode.unknown_topic_or_partition]
        assert not node.metadata.image.topics

    tell(story, auto_create_topics_enable="false")


def test_a_topic_is_found_by_its_id() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        uuid = uuid_of(node.metadata.image.topics["t"].topic_id)

        def by_id(uuid: Any) -> Any:
            topic = build_request_part(
                Api.METADATA, 12, "MetadataRequestTopic", name=None, topic_id=uuid
            )
            return build_request(
                Api.METADATA, 12, topics=(topic,), include_topic_authorized_operations=True
            )

        (found,) = (await node.ask(by_id(uuid))).topics
        assert (found.name, found.topic_id) == ("t", uuid)
        assert found.topic_authorized_operations == 3576
        unknown = uuid_of("AAAAAAAAAAAAAAAAAAAAAg")
        assert codes((await node.ask(by_id(unknown))).topics) == [ErrorCode.unknown_topic_id]

    tell(story)


def test_a_topic_grows() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", factor=1))
        answer = await node.ask(create_partitions("t", 3, ((2,), (1,))))
        assert codes(answer.results) == [NONE]
        states = node.metadata.image.topics["t"].partition_states
        assert [s.replicas for s in states[1:]] == [(2,), (1,)]
        refused = await node.ask(create_partitions("t", 2))
        assert codes(refused.results) == [ErrorCode.invalid_partitions]
        refused = await node.ask(create_partitions("nobody", 2))
        assert codes(refused.results) == [ErrorCode.unknown_topic_or_partition]

    tell(story, brokers=(1, 2))


def test_named_snapshots_keep_objects_of_a_deleted_topic() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"file.delete.delay.ms": "1000"}))
        (layout,) = node.metadata.image.topics["t"].layouts()
        store = node.environment.store
        await store.run(take_leadership(PartitionView(layout), 1, "a" * 32))
        pinned = await store.run(pin(PartitionView(layout), iter(["5" * 32])))
        await store.put(layout.key(layout.chain_name(1)), b"later")
        await node.ask(delete_topics("t", version=5))
        for task in node.tasks:
            await task
        left = [layout.relative(info.key) for info in await store.list(layout.folder)]
        named = [entry.object for entry in pinned.manifest.entries]
        assert left == [*named, layout.manifest_name(1), layout.pin_name("5" * 32)]

    tell(story)


def test_topic_with_configs_of_a_newer_version_can_be_deleted() -> None:
    newer: list[Record] = [ConfigRecord("t", "compression.type", "brotli")]

    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"file.delete.delay.ms": "1000"}))
        await node.metadata.decide(lambda image: newer)
        (layout,) = node.metadata.image.topics["t"].layouts()
        store = node.environment.store
        await store.run(take_leadership(PartitionView(layout), 1, "a" * 32))
        await node.ask(delete_topics("t", version=5))
        for task in node.tasks:
            await task
        left = [layout.relative(info.key) for info in await store.list(layout.folder)]
        assert left == [layout.manifest_name(1)]

    tell(story)


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_deleted_by_name_and_their_objects_follow(version: int) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"file.delete.delay.ms": "1000"}))
        topic_id = node.metadata.image.topics["t"].topic_id
        key = f"topics/t~{topic_id}/0/log/x"
        await node.environment.store.put(key, b"old")
        answer = await node.ask(delete_topics("t", "nobody", version=version))
        assert codes(answer.responses) == [NONE, ErrorCode.unknown_topic_or_partition]
        assert not node.metadata.image.topics
        assert key in [i.key for i in await node.environment.store.list("topics/t~")]
        for task in node.tasks:
            await task
        left = [info.key for info in await node.environment.store.list("topics/t~")]
        assert left == [f"topics/t~{topic_id}/0/manifest/{1:020}.arrow"]

    tell(story)


def test_topics_are_deleted_by_id() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        uuid = uuid_of(node.metadata.image.topics["t"].topic_id)
        answer = await node.ask(delete_topics(ids=(uuid, uuid, None)))
        assert codes(answer.responses) == [
            NONE,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert answer.responses[0].name == "t"
        answer = await node.ask(delete_topics(ids=(uuid,)))
        assert codes(answer.responses) == [ErrorCode.unknown_topic_id]

    tell(story)


def test_topics_stay_when_the_broker_deletes_none() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        answer = await node.ask(delete_topics("t"))
        assert codes(answer.responses) == [ErrorCode.topic_deletion_disabled]
        assert set(node.metadata.image.topics) == {"t"}

    tell(story, delete_topic_enable="false")


def test_partitions_are_described_page_by_page() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("a", "b", partitions=3))

        def page(cursor: Any, *names: str) -> Any:
            api = Api.DESCRIBE_TOPIC_PARTITIONS
            topics = tuple(build_request_part(api, 0, "TopicRequest", name=n) for n in names)
            if cursor is not None:
                cursor = build_request_part(
                    api,
                    0,
                    "Cursor",
                    topic_name=cursor.topic_name,
                    partition_index=cursor.partition_index,
                )
            return build_request(api, 0, topics=topics, response_partition_limit=2, cursor=cursor)

        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            answer = await node.ask(page(cursor))
            seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
            cursor = answer.next_cursor
            if cursor is None:
                break
        assert seen == [(name, p) for name in "ab" for p in range(3)]
        answer = await node.ask(page(None, "nobody"))
        assert codes(answer.topics) == [ErrorCode.unknown_topic_or_partition]

    tell(story)


def test_the_cluster_is_described() -> None:
    async def story(node: ToyNode) -> None:
        request = build_request(Api.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
        answer = await node.ask(request)
        assert [b.broker_id for b in answer.brokers] == [1, 2]
        assert (answer.cluster_id, answer.controller_id) == ("cluster", 1)
        assert answer.cluster_authorized_operations == 8096

    tell(story, brokers=(1, 2))


async def serve(node: ToyNode) -> None:
    """Have this broker say that it serves all it leads, as a leader does when it has recovered."""
    image = node.metadata.image
    leading = [(where, p.leader_epoch) for where, p in image.partitions()]
    await node.metadata.decide(lambda newest: isr.recovered(newest, leading, node.broker_id))


@pytest.mark.parametrize("grows", [False, True])
def test_creating_partitions_answers_when_their_leaders_serve(grows: bool) -> None:
    async def story(node: ToyNode) -> None:
        if grows:
            await node.metadata.decide(lambda i: changes.create_topic(i, "t", "t" * 22, 1, {}))
            await serve(node)
        request = create_partitions("t", 4) if grows else create_topics("t", partitions=4)
        asked = asyncio.ensure_future(node.ask(request))
        await asyncio.sleep(3)
        assert not asked.done()
        assert node.metadata.image.topics["t"].partitions == 4
        await serve(node)
        answer = await asked
        assert codes(answer.results if grows else answer.topics) == [NONE]

    tell(story)


def test_create_topics_answers_at_its_time_out_without_a_leader() -> None:
    async def story(node: ToyNode) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        (made,) = (await node.ask(create_topics("t"))).topics
        assert made.error_code is NONE
        assert loop.time() == pytest.approx(began_s + SOON.total_seconds(), abs=1)

    tell(story)


def test_create_topics_has_a_limit_of_partitions_per_request() -> None:
    async def story(node: ToyNode) -> None:
        most = changes.CREATED_MAX
        too_many = create_topics("a", "b", partitions=most // 2 + 1)
        refused = (await node.ask(too_many)).topics
        assert codes(refused) == [ErrorCode.policy_violation] * 2
        assert "several requests" in refused[0].error_message
        assert not node.metadata.image.topics
        assert codes((await node.ask(create_topics("a", partitions=most))).topics) == [NONE]
        grown = (await node.ask(create_partitions("a", 2 * most + 1))).results
        assert codes(grown) == [ErrorCode.policy_violation]
        assert node.metadata.image.topics["a"].partitions == most

    tell(story)


@pytest.mark.parametrize(("partitions", "at_once"), [("1", 100), ("40", 2), ("5000", 1)])
def test_metadata_creates_few_missing_topics_by_one_request(partitions: str, at_once: int) -> None:
    async def story(node: ToyNode) -> None:
        names = [f"t{n:05}" for n in range(20_000)]
        answer = await node.ask(metadata(*names, create=True))
        assert list(node.metadata.image.topics) == names[:at_once]
        later = {t.error_code for t in answer.topics[at_once:]}
        assert later == {ErrorCode.leader_not_available}
        await node.ask(metadata(*names[at_once : 2 * at_once], create=True))
        assert list(node.metadata.image.topics) == names[: 2 * at_once]

    tell(story, num_partitions=partitions)
