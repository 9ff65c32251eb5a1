"""Created partitions: the quota of the client for them, and the wait until they have leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from sparklog.broker.network.quotas import ControllerMutationQuota
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.metadata.records import NO_LEADER

MILLISECOND = timedelta(milliseconds=1)


def mutation_quota(
    node: BrokerNode, context: RequestContext, *, strict: bool
) -> ControllerMutationQuota:
    """Return the quota of a request that creates or deletes partitions. Brokers have none."""
    quotas = {} if node.is_broker(context) else node.metadata.image.client_quotas
    return node.throttle.mutations(quotas, context, strict=strict)


async def until_led(node: BrokerNode, names: Iterable[str], within: timedelta) -> None:
    """Wait until a leader serves each partition of these topics, or until the time is over.

    So a client that creates a topic can use it at once. Topics deleted meanwhile are skipped.
    """
    waiting = list(names)
    if not node.metadata.image.eligible_brokers():
        return  # no live broker can lead
    try:
        async with asyncio.timeout(within // MILLISECOND / 1000):
            while True:
                image = node.metadata.image
                waiting = [name for name in waiting if not _is_led(image.topics.get(name))]
                if not waiting:
                    return
                await node.metadata.beyond(image.end_offset)
    except TimeoutError:
        return  # the topics exist; their leaders follow later


def _is_led(topic: Topic | None) -> bool:
    """Return True if every partition of a topic has a leader that has reported it as served."""
    states = () if topic is None else topic.partition_states
    return all(p.leader != NO_LEADER and not p.recovering for p in states)
