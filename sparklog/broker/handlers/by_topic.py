"""Requests that ask one thing of each of many partitions, and answer topic by topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sparklog.broker.handlers.answering import code_of
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.cluster.image import MetadataImage
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Shape(Generic[Result]):
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
    answer: Answer,
    shape: Shape[Result],
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
