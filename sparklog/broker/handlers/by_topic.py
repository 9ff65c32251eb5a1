"""Requests that ask one thing of each of many partitions, and answer topic by topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.cluster.image import MetadataImage
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId

Result = TypeVar("Result")


async def ask_each(
    image: MetadataImage,
    topics: Any,
    number_of: Callable[[Any], int],
    ask: Callable[[PartitionId, Any], Awaitable[Result]],
) -> list[list[Result | SparklogError]]:
    """Return, for every partition of every topic of a request, what `ask` says or raises.

    All are asked side by side. `number_of` finds the partition's number in its part of the request.
    """

    async def answered(topic: Any, part: Any) -> Result | SparklogError:
        where = partition_of(topic_of(image, topic), number_of(part))
        if isinstance(where, SparklogError):
            return where
        try:
            return await ask(where, part)
        except SparklogError as error:
            return error

    flat = await asyncio.gather(*(answered(t, p) for t in topics for p in t.partitions))
    results = iter(flat)
    return [[next(results) for _ in t.partitions] for t in topics]
