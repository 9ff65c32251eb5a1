"""What answers have in common: error codes, and the fields that never say anything here."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from sparklog.broker.request import UNTHROTTLED
from sparklog.cluster.image import Broker, MetadataImage
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.building import Answer

NO_THROTTLE: Final = UNTHROTTLED
NOT_ASKED: Final = -(2**31)
"""Operations that are authorized, where they were not asked for."""
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe and the two for configs: everybody may do it."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, the two for configs, idempotent write."""

Item = TypeVar("Item")


def code_of(error: SparklogError | None) -> ErrorCode:
    """Return Kafka's code of an error, or the one for success."""
    return ErrorCode.none if error is None else ErrorCode(error.kafka_code)


def message_of(error: SparklogError | None) -> str | None:
    """Return what an error says."""
    return None if error is None else str(error)


def error_fields(error: SparklogError | None) -> dict[str, Any]:
    """Return the two fields that tell an error, or that there is none."""
    return {"error_code": code_of(error), "error_message": message_of(error)}


def listed(answer: Answer, structure: str, brokers: list[Broker], key: str) -> tuple[Any, ...]:
    """Return brokers as a response lists them; `key` is the name of the field of the id."""
    return tuple(
        answer.entity(structure, host=b.host, port=b.port, rack=b.rack, **{key: b.broker_id})
        for b in brokers
    )


def controller_id(image: MetadataImage) -> int:
    """Return whom clients shall take for the controller; any broker answers what it would."""
    controller = image.controller
    if controller is not None and _is_live(image, controller.broker_id):
        return controller.broker_id
    return next((b.broker_id for b in image.live_brokers()), -1)


def leader_hints(
    answer: Answer, structure: str, image: MetadataImage, leaders: set[int]
) -> tuple[Any, ...]:
    """Return where the leaders are that answers to others' partitions point to. Source: KIP-951."""
    brokers = [b for b in image.live_brokers() if b.broker_id in leaders]
    return listed(answer, structure, brokers, "node_id") if brokers else ()


def offline(image: MetadataImage, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas that are on no live broker."""
    return tuple(r for r in replicas if not _is_live(image, r))


def named_twice(kind: str, name: str) -> InvalidRequest:
    """Return the error for something that a request names more than once."""
    return InvalidRequest(f"the request names it twice; name it once. {kind}={name}")


def _is_live(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced
