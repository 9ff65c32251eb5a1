"""Requests that ask one thing of each of many partitions, and answer topic by topic.

Which partition a request means: by the topic's name, or by its id.

Many decisions in one append, each with its own error.
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
    """No topic has this id, any more or yet: refresh metadata."""

    kafka_code = 100


def topic_of(image: MetadataImage, asked: Any) -> Topic | SparklogError:
    """Return the topic that a part of a request names, or why there is none.

    The name is in `name` or `topic`, by message; the id, where the version has one, in `topic_id`.
    """
    return topic_known_as(image, _key_of(asked))


def _key_of(asked: Any) -> UUID | str | None:
    name: str | None = getattr(asked, "name", None) or getattr(asked, "topic", None)
    uuid: UUID | None = getattr(asked, "topic_id", None)
    return named_or_identified(name, uuid)


def named_or_identified(name: str | None, uuid: UUID | None) -> UUID | str | None:
    """Return what a request names a topic by. With an id, clients leave the name null or empty."""
    return uuid if uuid is not None and not name else name


def topic_known_as(image: MetadataImage, key: UUID | str | None) -> Topic | SparklogError:
    """Return the topic with this id or name, or why there is none; None is the id of none."""
    if isinstance(key, str):
        named = image.topics.get(key)
        return named or UnknownTopicOrPartition(f"no such topic; refresh metadata. topic={key}")
    found = None if key is None else image.topic_of(topic_id_of(key))
    return found or UnknownTopicId(f"no topic has this id; refresh metadata. topic_id={key}")


def asked_as(topic: Topic | SparklogError, asked: Any, number: int) -> PartitionId:
    """Return which partition a request means, known here or not: of an unknown one as it says."""
    if isinstance(topic, Topic):
        return PartitionId(topic.topic_id, number)
    key = _key_of(asked)
    return PartitionId(topic_id_of(key) if isinstance(key, UUID) else key or "", number)


def partition_of(topic: Topic | SparklogError, number: int) -> PartitionId | SparklogError:
    """Return one partition of a topic that was found, or why there is none."""
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
    """How one message spells topics and partitions."""

    topic: str
    """The structure of a topic in the answer."""
    partition: str
    fields: Callable[[Result], dict[str, Any]]
    """Returns what the answer says of a partition."""
    unknown: Result
    """What it says of one of which nothing is known."""
    name: str = "name"
    """The field of a topic's name, asked and answered; the next one is a partition's number."""
    number: str = "partition_index"


async def answer_each(
    answer: ResponseBuilder,
    shape: ResultShape[Result],
    image: MetadataImage,
    topics: Any,
    ask: Callable[[PartitionId, Any], Awaitable[Result]],
) -> tuple[Any, ...]:
    """Return the answer's topics, with what `ask` says or raises for each partition of a request.

    All are asked side by side.
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
    """What came of it."""

    image: MetadataImage
    """After all of it; the image as it would be, if nothing was to be changed."""
    refused: Mapping[Key, SparklogError]


async def decide_each(
    metadata: MetadataAccess, decisions: Mapping[Key, Decision], *, validate_only: bool = False
) -> AcceptedItems[Key]:
    """Append what every decision makes of the newest image, all at once.

    Each is made on the image after those before it, which costs time for each that grows with the
    number of topics. For many of them there is `decide_apart`. A decision that refuses leaves the
    others alone; before that stands, the newest image is looked for, since what a client did
    through another broker may not be known here yet. An append that fails refuses all.
    `validate_only` appends nothing.
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

    All are made on one image. What one has to know of those before it is in the context, which
    `begin` makes of each image that is decided on.
    """

    def decide(image: MetadataImage) -> _Made[Key]:
        made, context = _Made[Key](image), begin(image)
        for key, decision in decisions.items():
            made.records_of(key, decision, context)
        made.image = image.applied(made.records, image.end_offset + len(made.records))
        return made

    return await _append(metadata, decisions, decide, validate_only=validate_only)


class _Made(Generic[Key]):
    """What decisions came to on one image."""

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
    """Return a decision that is refused whatever it is made on."""

    def decide(on: object) -> list[Record]:
        raise error

    return decide
