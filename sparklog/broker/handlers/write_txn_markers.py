"""WriteTxnMarkers (27): a coordinator ends transactions in partitions led here.

An administrator may abort one too, if nobody ends it, but neither commit it nor end one in a topic
of the cluster's own. Source: KIP-98, KIP-664.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import code_of
from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction_shard import WriteMarkers
from sparklog.coordinator.transaction_state import Partition
from sparklog.core.errors import ClusterAuthorizationFailed
from sparklog.core.names import CLOSED_TOPICS
from sparklog.protocol.api import Api
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition, once all markers are committed."""
    answer = Answer.to(request)
    wanted, refused = [], []
    for marker in request.markers:
        whole = _wanted(marker)
        closed = _closed(node, whole, context)
        wanted.append(whole._replace(partitions=whole.partitions - closed.keys()))
        refused.append(closed)
    written = await node.transactions.writer.write(wanted)
    results = [{**codes, **closed} for codes, closed in zip(written, refused, strict=True)]
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


def _closed(
    node: HandlerNode, wanted: WriteMarkers, context: RequestContext
) -> dict[Partition, ErrorCode]:
    """Return the partitions in which whoever asks may not end this transaction so."""
    names = {topic for topic, _ in wanted.partitions}
    ask_broker = names if wanted.is_commit else names & CLOSED_TOPICS
    if not ask_broker:
        return {}
    try:
        check_broker(node, context, Api.WRITE_TXN_MARKERS.label)
    except ClusterAuthorizationFailed as refused:
        return {p: code_of(refused) for p in wanted.partitions if p[0] in ask_broker}
    return {}


def _wanted(marker: Any) -> WriteMarkers:
    return WriteMarkers(
        "",
        ProducerIdentity(int(marker.producer_id), int(marker.producer_epoch)),
        bool(marker.transaction_result),
        frozenset((t.name, int(number)) for t in marker.topics for number in t.partition_indexes),
        int(marker.coordinator_epoch),
        int(getattr(marker, "transaction_version", 0)),
    )
