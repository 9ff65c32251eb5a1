"""DeleteTopics (20): by name, or by id.

A topic is gone at once, also for direct writers. Its objects, which nothing names any more, follow
after `file.delete.delay.ms`, but for those that named snapshots have; those of a broker that stops
before are collected by retention.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of, named_twice
from sparklog.broker.handlers.deciding import decide_each, refusing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import UnknownTopicId
from sparklog.broker.metadata_access import Decision
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.records import Record
from sparklog.core.config import understood_configs
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.settings import TOPIC_SETTINGS
from sparklog.log.bury import bury, remains
from sparklog.log.view import PartitionView
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

logger = logging.getLogger(__name__)


class TopicDeletionDisabled(InvalidRequest):
    """Topics are deleted by other means."""

    kafka_code = 73


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Delete every topic that can be; the others have their own errors."""
    answer = Answer.to(request)
    asked = _asked(request)
    first = {one: place for place, one in reversed(list(enumerate(asked)))}
    decisions: dict[int, Decision] = {
        place: _decision(node, name, topic_id, first[name, topic_id] < place)
        for place, (name, topic_id) in enumerate(asked)
    }
    known = [_topic(node.metadata.image, name, topic_id) for name, topic_id in asked]
    decided = await decide_each(node.metadata, decisions)
    results = []
    for place, ((name, topic_id), topic) in enumerate(zip(asked, known, strict=True)):
        error = decided.refused.get(place)
        results.append(_result(answer, name, topic_id, topic, error))
        if error is None and topic is not None:
            node.background(_delete_objects(node, topic), f"delete objects of {topic.name}")
    return answer.response(throttle_time=NO_THROTTLE, responses=tuple(results))


def _asked(request: Any) -> list[tuple[str | None, str | None]]:
    """Return the names and the ids of topics; one of both is None."""
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [(name, None) for name in names]
    return [
        (t.name, None if t.topic_id is None else topic_id_of(t.topic_id)) for t in request.topics
    ]


def _topic(image: MetadataImage, name: str | None, topic_id: str | None) -> Topic | None:
    if name is not None:
        return image.topics.get(name)
    return image.topic_of(topic_id) if topic_id is not None else None


def _decision(
    node: HandlerNode, name: str | None, topic_id: str | None, repeated: bool
) -> Decision:
    if not node.config.flag("delete.topic.enable"):
        return refusing(
            TopicDeletionDisabled("this broker deletes none: delete.topic.enable=false")
        )
    if (name is None) == (topic_id is None):
        return refusing(InvalidRequest(f"give a name or an id. name={name} topic_id={topic_id}"))
    if repeated:
        return refusing(named_twice("topic", name or str(topic_id)))
    return partial(_delete, name, topic_id)


def _delete(name: str | None, topic_id: str | None, image: MetadataImage) -> list[Record]:
    if name is None:
        topic = _topic(image, name, topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has this id. topic_id={topic_id}")
        name = topic.name
    return registry.delete_topic(image, name)


def _result(
    answer: Answer,
    name: str | None,
    topic_id: str | None,
    topic: Topic | None,
    error: SparklogError | None,
) -> Any:
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    return answer.entity(
        "DeletableTopicResult",
        name=name,
        topic_id=None if topic_id is None else uuid_of(topic_id),
        error_code=code_of(error),
        error_message=message_of(error),
    )


async def _delete_objects(node: HandlerNode, topic: Topic) -> None:
    """Remove a deleted topic's objects, when nobody reads or flushes them any more."""
    store, entropy = node.environment.store, node.environment.entropy
    try:
        configs = understood_configs(topic.settings, TOPIC_SETTINGS)
        delay_ms = configs.whole("file.delete.delay.ms")
        layouts = topic.layouts()
        burials = [store.run(bury(PartitionView(one), new_nonce(entropy))) for one in layouts]
        graves = await asyncio.gather(*burials)
        await asyncio.sleep(delay_ms / 1000)
        for layout, grave in zip(layouts, graves, strict=True):
            doomed, problem = await store.run(remains(layout, grave))
            for info in doomed:
                await store.delete(info.key)
            if problem:
                logger.error("objects of a deleted topic stay: %s topic=%s", problem, topic.name)
    except SparklogError as error:
        logger.warning("objects of a deleted topic stay: %s topic=%s", error, topic.name)
