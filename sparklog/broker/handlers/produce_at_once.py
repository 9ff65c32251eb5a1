"""Produce (0) as it nearly always is: appended as it comes in, answered when it is acknowledged.

Neither task nor coroutine stands between the bytes of such a request and its batches' append, nor
between their acknowledgement and the bytes of the answer. Whatever else there is to do, a
transaction to ask about, a partition to wait for, an error to tell, is done by `produce`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from sparklog.broker.handlers import produce, transactional
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.produce_job import Produced, ProduceJob
from sparklog.broker.request import Reply
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.core.names import CLOSED_TOPICS
from sparklog.core.types import PartitionId
from sparklog.protocol import messages, produce_frames
from sparklog.protocol.batch_header import BytesLike
from sparklog.protocol.produce_frames import PlainProduce

MILLISECOND = produce.MILLISECOND
ACKS: frozenset[int] = produce.ACKS - {0}
"""Those that have an answer."""


def begin(node: HandlerNode, asked: PlainProduce, reply: Reply) -> bool:
    """Append what a request carries and answer when it is acknowledged, if that is all.

    False, and nothing was done, if something has to be waited for first or is out of the ordinary.
    """
    batches = _batches(node.metadata.image, asked)
    if not batches or asked.acks not in ACKS:
        return False
    ended = partial(_ended, node, asked, reply)
    return node.replicas.begin_produce(batches, asked.acks, max(0, asked.timeout_ms), ended)


def _batches(image: MetadataImage, asked: PlainProduce) -> Mapping[PartitionId, BytesLike] | None:
    """Return the batches of a request in its order, None if any is not plainly to be appended."""
    batches: dict[PartitionId, BytesLike] = {}
    for key, _, partitions in asked.topics:
        topic = image.topic_of(key) if asked.by_id else image.topics.get(key)
        if topic is None or topic.name in CLOSED_TOPICS:
            return None
        for number, records in partitions:
            where = PartitionId(topic.topic_id, number)
            if where in batches or not _is_plain(topic, number, records):
                return None
            batches[where] = records
    return batches


def _is_plain(topic: Topic, number: int, records: BytesLike) -> bool:
    return 0 <= number < topic.partitions and not transactional.may_be(records)


def _ended(node: HandlerNode, asked: PlainProduce, reply: Reply, job: ProduceJob) -> None:
    places = [outcome for outcome in job.outcomes if isinstance(outcome, Produced)]
    if len(places) == len(job.batches):
        throttle = _throttle(node, asked, job)
        reply.answer(produce_frames.answer(asked, places, throttle // MILLISECOND), throttle)
    else:
        reply.go_on(_failed(node, asked, job))


async def _failed(node: HandlerNode, asked: PlainProduce, job: ProduceJob) -> Any:
    await node.replicas.finish_produce(job)
    _, request = messages.decode_request(asked.frame)
    return produce.answer(node, request, job.outcomes, _throttle(node, asked, job))


def _throttle(node: HandlerNode, asked: PlainProduce, job: ProduceJob) -> timedelta:
    return produce.charge(node, asked.header.client_id, job.batches)
