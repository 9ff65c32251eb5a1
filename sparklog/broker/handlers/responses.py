"""Parts of responses that handlers share: error codes, and fields with a constant value here.

`described` builds a topic for the two messages that describe topics; their fields have the same
names.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.request import UNTHROTTLED
from sparklog.cluster.metadata.image import Broker, MetadataImage, Topic
from sparklog.cluster.metadata.records import NO_LEADER
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import uuid_of

NO_THROTTLE: Final = UNTHROTTLED
NOT_ASKED: Final = -(2**31)
"""The authorized operations in a response to a request that does not ask for them."""
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe and the two for configs: every client may do these
if no authorizer restricts it."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, the two for configs, idempotent write."""

Item = TypeVar("Item")


def code_of(error: SparklogError | None) -> ErrorCode:
    """Return Kafka's code of an error, or the one for success."""
    return ErrorCode.none if error is None else ErrorCode(error.kafka_code)


def message_of(error: SparklogError | None) -> str | None:
    """Return the message of an error, or None for success."""
    return None if error is None else str(error)


def error_fields(error: SparklogError | None) -> dict[str, Any]:
    """Return the fields `error_code` and `error_message` of an error, or of success."""
    return {"error_code": code_of(error), "error_message": message_of(error)}


def listed(
    answer: ResponseBuilder, structure: str, brokers: list[Broker], key: str
) -> tuple[Any, ...]:
    """Return brokers as a response lists them; `key` names the field of the broker's id."""
    return tuple(
        answer.entity(structure, host=b.host, port=b.port, rack=b.rack, **{key: b.broker_id})
        for b in brokers
    )


def controller_id(image: MetadataImage) -> int:
    """Return the controller's id, else that of a live broker, as any can do its work, else -1."""
    controller = image.controller
    if controller is not None and _is_live(image, controller.broker_id):
        return controller.broker_id
    return next((b.broker_id for b in image.live_brokers()), -1)


def leader_hints(
    answer: ResponseBuilder, structure: str, image: MetadataImage, leaders: set[int]
) -> tuple[Any, ...]:
    """Return the addresses of `leaders`, for errors of partitions that they lead (KIP-951)."""
    brokers = [b for b in image.live_brokers() if b.broker_id in leaders]
    return listed(answer, structure, brokers, "node_id") if brokers else ()


def offline(image: MetadataImage, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas whose broker is not live."""
    return tuple(r for r in replicas if not _is_live(image, r))


def named_twice(kind: str, name: str) -> InvalidRequest:
    """Return the error of a request that names a thing more than once."""
    return InvalidRequest(f"the request names it twice; name it once. {kind}={name}")


def _is_live(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def described(
    answer: ResponseBuilder,
    message: str,
    image: MetadataImage,
    topic: Topic,
    operations: int,
    *,
    partitions: range,
    **more: Any,
) -> Any:
    """Return a topic with some of its partitions.

    Args:
        answer: builds the structures.
        message: the beginning of the names of the structures.
        image: the metadata.
        topic: the topic to describe.
        operations: the authorized operations, a bit for each.
        partitions: the numbers of the partitions to describe.
        more: further fields of a partition.
    """
    states = [(number, topic.partition_states[number]) for number in partitions]
    return answer.entity(
        f"{message}Topic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=uuid_of(topic.topic_id),
        is_internal=topic.name in LISTED_AS_INTERNAL,
        partitions=tuple(
            answer.entity(
                f"{message}Partition",
                error_code=ErrorCode.leader_not_available
                if state.leader == NO_LEADER
                else ErrorCode.none,
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=offline(image, state.replicas),
                **more,
            )
            for number, state in states
        ),
        topic_authorized_operations=operations,
    )
