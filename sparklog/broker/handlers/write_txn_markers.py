"""WriteTxnMarkers (27): a coordinator ends transactions in partitions led here.

An administrator may too, to get rid of a transaction that nobody ends. Source: KIP-98, KIP-664.
"""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction_shard import WriteMarkers
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition, once all markers are committed."""
    answer = Answer.to(request)
    wanted = [_wanted(marker) for marker in request.markers]
    results = await node.transactions.writer.write(wanted)
    return answer.response(
        markers=tuple(
            answer.entity(
                "WritableTxnMarkerResult",
                producer_id=marker.producer_id,
                topics=tuple(
                    answer.entity(
                        "WritableTxnMarkerTopicResult",
                        name=topic.name,
                        partitions=tuple(
                            answer.entity(
                                "WritableTxnMarkerPartitionResult",
                                partition_index=number,
                                error_code=codes[topic.name, int(number)],
                            )
                            for number in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker, codes in zip(request.markers, results, strict=True)
        ),
    )


def _wanted(marker: Any) -> WriteMarkers:
    return WriteMarkers(
        "",
        ProducerIdentity(int(marker.producer_id), int(marker.producer_epoch)),
        bool(marker.transaction_result),
        frozenset((t.name, int(number)) for t in marker.topics for number in t.partition_indexes),
        int(marker.coordinator_epoch),
        int(getattr(marker, "transaction_version", 0)),
    )
