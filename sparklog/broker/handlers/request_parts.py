"""Parts that handlers of requests with many topics or partitions share.

- Find the topic and partition that a request names, by the topic's name or by its id.
- Run one function for each partition of a request, and build a response by topic.
- Append many decisions at once, each with its own error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from sparklog.broker.handlers.responses import code_of
from sparklog.broker.runtime.metadata_access import Decision, MetadataAccess
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.metadata.records import Record
from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of


class UnknownTopicId(UnknownTopicOrPartition):
    """No topic has this id: it is deleted, or not known here yet. Refresh metadata."""

    kafka_code = 100


def topic_of(image: MetadataImage, asked: Any) -> Topic | SparklogError:
    """Return the topic that a part of a request names, or the error if there is none.

    The name is in `name` or `topic`, by message; the id is in `topic_id`, if the version has one.
    """
    return topic_known_as(image, _key_of(asked))


def _key_of(asked: Any) -> UUID | str | None:
    name: str | None = getattr(asked, "name", None) or getattr(asked, "topic", None)
    uuid: UUID | None = getattr(asked, "topic_id", None)
    return named_or_identified(name, uuid)


def named_or_identified(name: str | None, uuid: UUID | None) -> UUID | str | None:
    """Return the topic's id or name in a request. Clients that send an id leave the name empty."""
    return uuid if uuid is not None and not name else name


def topic_known_as(image: MetadataImage, key: UUID | str | None) -> Topic | SparklogError:
    """Return the topic with this id or name, or the error if there is none. No topic has None."""
    if isinstance(key, str):
        named = image.topics.get(key)
        return named or UnknownTopicOrPartition(f"no such topic; refresh metadata. topic={key}")
    found = None if key is None else image.topic_of(topic_id_of(key))
    return found or UnknownTopicId(f"no topic has this id; refresh metadata. topic_id={key}")


def asked_as(topic: Topic | SparklogError, asked: Any, number: int) -> PartitionId:
    """Return the requested partition; if its topic is unknown, by the id or name in the request."""
    if isinstance(topic, Topic):
        return PartitionId(topic.topic_id, number)
    key = _key_of(asked)
    return PartitionId(topic_id_of(key) if isinstance(key, UUID) else key or "", number)


def partition_of(topic: Topic | SparklogError, number: int) -> PartitionId | SparklogError:
    """Return one partition of a topic, or the error if the topic or partition does not exist."""
    if isinstance(topic, SparklogError):
        return topic
    if not 0 <= number < topic.partitions:
        return UnknownTopicOrPartition(
            f"no such partition; refresh metadata. topic={topic.name} partition={number}"
        )
    return PartitionId(topic.topic_id, number)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ResultShape(Generic[Result]):
    """The structures and fields of topics and partitions in one API's messages."""

    topic: str
    """The structure of a topic in the response."""
    partition: str
    fields: Callable[[Result], dict[str, Any]]
    """Returns the response fields of a partition's result."""
    unknown: Result
    """The result of a partition with an error."""
    name: str = "name"
    """The field of a topic's name in both messages; `number` is that of a partition's number."""
    number: str = "partition_index"


async def answer_each(
    answer: ResponseBuilder,
    shape: ResultShape[Result],
    image: MetadataImage,
    topics: Any,
    ask: Callable[[PartitionId, Any], Awaitable[Result]],
) -> tuple[Any, ...]:
    """Return the response's topics, with the result or error of `ask` for each partition.

    The calls of `ask` run concurrently.
    """

    async def answered(topic: Any, part: Any) -> Any:
        number = int(getattr(part, shape.number))
        where = partition_of(topic_of(image, topic), number)
        failed: SparklogError | None = None
        result = shape.unknown
        if isinstance(where, SparklogError):
            failed = where
        else:
            try:
                result = await ask(where, part)
            except SparklogError as error:
                failed = error
        values = {shape.number: number, "error_code": code_of(failed), **shape.fields(result)}
        return answer.entity(shape.partition, **values)

    flat = iter(await asyncio.gather(*(answered(t, p) for t in topics for p in t.partitions)))
    return tuple(
        answer.entity(
            shape.topic,
            **{shape.name: getattr(topic, shape.name)},
            partitions=tuple(next(flat) for _ in topic.partitions),
        )
        for topic in topics
    )


Key = TypeVar("Key", bound=Hashable)
Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class AcceptedItems(Generic[Key]):
    """The result of many decisions."""

    image: MetadataImage
    """The image after all accepted decisions. With `validate_only` it is only computed."""
    refused: Mapping[Key, SparklogError]


async def decide_each(
    metadata: MetadataAccess, decisions: Mapping[Key, Decision], *, validate_only: bool = False
) -> AcceptedItems[Key]:
    """Run every decision on the newest image, and append all their records at once.

    Each decision sees the image after the decisions before it. Its cost grows with the number of
    topics; for many decisions use `decide_apart`. A decision that raises an error does not affect
    the others. Before an error is final, this broker reads the newest image, because a client may
    have changed the metadata through another broker. If the append fails, all decisions get its
    error. `validate_only` appends nothing.
    """

    def decide(image: MetadataImage) -> _Made[Key]:
        made = _Made[Key](image)
        for key, decision in decisions.items():
            records = made.records_of(key, decision, made.image)
            made.image = made.image.applied(records, made.image.end_offset + len(records))
        return made

    return await _append(metadata, decisions, decide, validate_only=validate_only)


async def decide_apart(
    metadata: MetadataAccess,
    decisions: Mapping[Key, Callable[[Context], list[Record]]],
    begin: Callable[[MetadataImage], Context],
    *,
    validate_only: bool = False,
) -> AcceptedItems[Key]:
    """Append as `decide_each` does, for decisions about different topics.

    All decisions see the same image. A decision learns of those before it from the context. `begin`
    creates a context for each image that the decisions run on.
    """

    def decide(image: MetadataImage) -> _Made[Key]:
        made, context = _Made[Key](image), begin(image)
        for key, decision in decisions.items():
            made.records_of(key, decision, context)
        made.image = image.applied(made.records, image.end_offset + len(made.records))
        return made

    return await _append(metadata, decisions, decide, validate_only=validate_only)


class _Made(Generic[Key]):
    """The records and errors of decisions on one image."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.records: list[Record] = []
        self.refused: dict[Key, SparklogError] = {}

    def records_of(
        self, key: Key, decision: Callable[[Context], list[Record]], context: Context
    ) -> list[Record]:
        try:
            records = decision(context)
        except SparklogError as error:
            self.refused[key] = error
            return []
        self.records += records
        return records


async def _append(
    metadata: MetadataAccess,
    keys: Collection[Key],
    decide: Callable[[MetadataImage], _Made[Key]],
    *,
    validate_only: bool,
) -> AcceptedItems[Key]:
    made = _Made[Key](metadata.image)

    def all_of(image: MetadataImage) -> list[Record]:
        nonlocal made
        made = decide(image)
        return [] if validate_only else made.records

    try:
        all_of(metadata.image)
        if made.refused:
            await metadata.catch_up()
        image = await metadata.decide(all_of)
    except SparklogError as error:
        return AcceptedItems(metadata.image, dict.fromkeys(keys, error))
    return AcceptedItems(made.image if validate_only else image, made.refused)


def refusing(error: SparklogError) -> Callable[[object], list[Record]]:
    """Return a decision that always raises `error`."""

    def decide(on: object) -> list[Record]:
        raise error

    return decide
