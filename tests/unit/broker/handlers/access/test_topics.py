"""Requests about topics: a client sees the topics that it may describe, and no others."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.cluster.metadata import changes
from sparklog.core.entropy import new_topic_id
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import AclPermission
from sparklog.security.acls import ResourceType as Kind
from tests.harness.access_node import ALICE, ROOT, grant, names_of, new_topic, tell_guarded
from tests.harness.handler_node import PEER, ToyNode
from tests.harness.handler_requests import create_topics, delete_topics
from tests.harness.plain_requests import plain_request

DENIED = ErrorCode.topic_authorization_failed
NONE = ErrorCode.none
AUTO_CREATION_SINCE = 4
DESCRIBES_A = (Do.DESCRIBE, Kind.TOPIC, "a")


def metadata(*names: str, version: int = 13, **more: Any) -> Any:
    topics = [{"name": name} for name in names]
    if version >= AUTO_CREATION_SINCE:
        more = {"allow_auto_topic_creation": False, **more}
    return plain_request(Api.METADATA, version, topics=topics, **more)


def found(answer: Any) -> list[tuple[str | None, ErrorCode]]:
    return [(one.name, one.error_code) for one in answer.topics]


def test_topics_have_errors_in_the_order_of_the_request() -> None:
    async def story(node: ToyNode) -> Any:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, DESCRIBES_A, (Do.DESCRIBE, Kind.TOPIC, "missing"))
        return await node.ask(metadata("missing", "b", "a", "hidden"), ALICE)

    answer = tell_guarded(story)
    unknown = ErrorCode.unknown_topic_or_partition
    assert found(answer) == [("missing", unknown), ("b", DENIED), ("a", NONE), ("hidden", DENIED)]
    denied = answer.topics[1]
    assert (denied.topic_id, denied.partitions) == (None, ())
    assert len(answer.brokers) == 1


def test_all_topics_are_those_that_may_be_described() -> None:
    async def story(node: ToyNode) -> None:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, DESCRIBES_A)
        everything = plain_request(Api.METADATA, 13, topics=None)
        paged = plain_request(Api.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=100)
        for request in (everything, metadata(version=0), paged):
            assert names_of(await node.ask(request, ALICE)) == ["a"]
            assert names_of(await node.ask(request, ROOT)) == ["a", "b"]
            assert names_of(await node.ask(request, PEER)) == ["a", "b"]

    tell_guarded(story)


def test_a_denied_topic_in_version_0_does_not_ask_for_all() -> None:
    async def story(node: ToyNode) -> Any:
        await new_topic(node, "a")
        await grant(node, DESCRIBES_A)
        return await node.ask(metadata("b", version=0), ALICE)

    answer = tell_guarded(story)
    assert found(answer) == [("b", DENIED)]
    assert len(answer.brokers) == 1


def test_an_id_does_not_reveal_the_name_of_its_topic() -> None:
    async def story(node: ToyNode) -> tuple[Any, UUID]:
        topic_id = await new_topic(node, "b")
        topics = [{"topic_id": topic_id}, {"topic_id": UUID(int=9)}]
        older = await node.ask(plain_request(Api.METADATA, 10, topics=topics), ALICE)
        assert found(older) == [("", DENIED), ("", ErrorCode.unknown_topic_id)]
        return await node.ask(plain_request(Api.METADATA, 13, topics=topics), ALICE), topic_id

    answer, topic_id = tell_guarded(story)
    assert found(answer) == [(None, DENIED), (None, ErrorCode.unknown_topic_id)]
    assert answer.topics[0].topic_id == topic_id


def test_missing_topics_are_created_only_with_the_right() -> None:
    describes = tuple((Do.DESCRIBE, Kind.TOPIC, name) for name in ("a", "b"))

    async def story(node: ToyNode) -> None:
        request = metadata("a", "b", allow_auto_topic_creation=True)
        await grant(node, *describes)
        assert found(await node.ask(request, ALICE)) == [("a", DENIED), ("b", DENIED)]
        await grant(node, (Do.CREATE, Kind.TOPIC, "b"))
        codes = dict(found(await node.ask(request, ALICE)))
        assert codes["a"] is DENIED
        assert codes["b"] is not DENIED
        assert set(node.metadata.image.topics) == {"b"}
        await grant(node, (Do.CREATE, Kind.CLUSTER, "kafka-cluster"))
        assert DENIED not in dict(found(await node.ask(request, ALICE))).values()
        assert set(node.metadata.image.topics) == {"a", "b"}

    tell_guarded(story, auto_create_topics_enable="true", num_partitions="1")


def test_operations_are_those_of_the_client() -> None:
    async def story(node: ToyNode) -> None:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, (Do.READ, Kind.TOPIC, "a"))
        request = metadata("a", "b", version=10, include_topic_authorized_operations=True,
                           include_cluster_authorized_operations=True)  # fmt: skip
        answer = await node.ask(request, ALICE)
        bits = [one.topic_authorized_operations for one in answer.topics]
        assert bits == [1 << Do.READ | 1 << Do.DESCRIBE, -(2**31)]
        assert answer.cluster_authorized_operations == 0
        cluster = plain_request(
            Api.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_cluster_authorized_operations=True
        )
        assert (await node.ask(cluster, ALICE)).cluster_authorized_operations == 0
        await grant(node, (Do.ALTER, Kind.CLUSTER, "kafka-cluster"))
        both = 1 << Do.ALTER | 1 << Do.DESCRIBE
        assert (await node.ask(request, ALICE)).cluster_authorized_operations == both
        assert (await node.ask(cluster, ALICE)).cluster_authorized_operations == both
        whole = (await node.ask(cluster, ROOT)).cluster_authorized_operations
        assert whole == 0b1_1111_1010_0000

    tell_guarded(story)


def test_denied_topics_come_last_in_a_page() -> None:
    async def story(node: ToyNode) -> Any:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, DESCRIBES_A)
        names = [{"name": name} for name in ("b", "hidden", "a")]
        request = plain_request(
            Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=names, response_partition_limit=100
        )
        return await node.ask(request, ALICE)

    answer = tell_guarded(story)
    assert found(answer) == [("a", NONE), ("b", DENIED), ("hidden", DENIED)]
    assert answer.topics[0].topic_authorized_operations == 1 << Do.DESCRIBE


def test_an_id_is_checked_if_its_topic_becomes_known_later() -> None:
    """Another broker has just created the topic, and the handler looks for news."""

    async def story(node: ToyNode) -> None:
        other = MetadataLog(node.environment)
        await other.open()
        topic_id = new_topic_id(node.environment.entropy)
        create = partial(changes.create_topic, name="a", topic_id=topic_id, partitions=1)
        await other.decide(lambda image: create(image, configs={}))
        assert node.metadata.image.topic_of(topic_id) is None
        request = delete_topics(ids=(uuid_of(topic_id),))
        (refused,) = (await node.ask(request, ALICE)).responses
        assert (refused.name, refused.error_code) == (None, DENIED)
        assert set(node.metadata.image.topics) == {"a"}
        (deleted,) = (await node.ask(request, ROOT)).responses
        assert (deleted.name, deleted.error_code) == ("a", NONE)

    tell_guarded(story)


def test_settings_of_a_new_topic_need_a_right_of_their_own() -> None:
    async def story(node: ToyNode) -> None:
        await grant(node, *((Do.CREATE, Kind.TOPIC, name) for name in ("a", "c")))
        answer = await node.ask(create_topics("a", "b", factor=1), ALICE)
        assert found(answer) == [("a", NONE), ("b", DENIED)]
        made = answer.topics[0]
        assert made.topic_config_error_code == DENIED
        assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, ())
        await grant(node, (Do.DESCRIBE_CONFIGS, Kind.TOPIC, "c"))
        (made,) = (await node.ask(create_topics("c", factor=1), ALICE)).topics
        assert (made.topic_config_error_code, made.num_partitions) == (0, 1)
        assert made.configs

    tell_guarded(story)


def test_a_deleted_id_shows_its_name_to_a_client_that_may_describe_it() -> None:
    async def story(node: ToyNode) -> None:
        ids = {name: await new_topic(node, name) for name in ("a", "b", "c")}
        await grant(node, DESCRIBES_A, (Do.DELETE, Kind.TOPIC, "c"))
        await grant(node, (Do.DESCRIBE, Kind.TOPIC, "c"), permission=AclPermission.DENY)
        unknown = UUID(int=9)
        answer = await node.ask(delete_topics(ids=(*ids.values(), unknown)), ALICE)
        shown = [(one.name, one.error_code) for one in answer.responses]
        missing = (None, ErrorCode.unknown_topic_id)
        assert shown == [("a", DENIED), (None, DENIED), (None, NONE), missing]
        assert set(node.metadata.image.topics) == {"a", "b"}
        await grant(node, (Do.READ, Kind.TOPIC, "missing"))
        for version in (3, 5, 6):
            asked = delete_topics("b", "hidden", "missing", version=version)
            answer = await node.ask(asked, ALICE)
            codes = [one.error_code for one in answer.responses]
            assert codes == [DENIED, DENIED, ErrorCode.unknown_topic_or_partition]

    tell_guarded(story)
