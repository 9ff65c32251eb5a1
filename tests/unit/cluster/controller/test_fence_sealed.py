"""A controller fences what it has sealed, also when another broker has taken its place."""

from __future__ import annotations

import pytest

from sparklog.cluster.controller.controller import fence_sealed
from sparklog.cluster.metadata.image import Controller, MetadataImage
from sparklog.cluster.metadata.records import (
    BrokerRegistrationChangeRecord,
    ControllerChangeRecord,
    Record,
    RegisterBrokerRecord,
)
from sparklog.core.errors import Fenced


def incarnation(broker_id: int) -> str:
    return f"{broker_id:032x}"


def applied(image: MetadataImage, *records: Record) -> MetadataImage:
    return image.applied(records, image.end_offset + len(records))


def three(controller: int) -> MetadataImage:
    """Return an image in which brokers have the epochs 0 to 2, in the order of their ids."""
    registered = [RegisterBrokerRecord(i, incarnation(i), f"b{i}", 9092, None) for i in (1, 2, 3)]
    claim = ControllerChangeRecord(controller, incarnation(controller), 4)
    return applied(applied(MetadataImage(), *registered), claim)


def epoch(image: MetadataImage, broker_id: int) -> int:
    return image.brokers[broker_id].epoch


@pytest.mark.parametrize(
    ("controller", "after"),
    [(1, (1, 4)), (2, (1, 5)), (3, (3, 4))],
    ids=["it still is the controller", "the sealed one claimed", "a third one claimed"],
)
def test_a_sealed_broker_is_fenced_by_its_sealer(controller: int, after: tuple[int, int]) -> None:
    image = three(controller)
    found = applied(image, *fence_sealed(image, 1, incarnation(1), {2: epoch(image, 2)}))
    assert [b.broker_id for b in found.live_brokers()] == [1, 3]
    broker_id, number = after
    assert found.controller == Controller(broker_id, incarnation(broker_id), number)


def test_a_later_incarnation_of_a_sealed_broker_is_not_fenced() -> None:
    image = three(controller=2)
    sealed = {2: epoch(image, 2)}
    image = applied(image, RegisterBrokerRecord(2, "f" * 32, "b2", 9092, None))
    image = applied(image, ControllerChangeRecord(2, "f" * 32, 5))
    assert fence_sealed(image, 1, incarnation(1), sealed) == []


def test_a_fenced_broker_fences_none() -> None:
    image = three(controller=2)
    sealed = {2: epoch(image, 2)}
    image = applied(image, BrokerRegistrationChangeRecord(1, epoch(image, 1), fenced=True))
    with pytest.raises(Fenced, match="broker_id=1"):
        fence_sealed(image, 1, incarnation(1), sealed)


def test_a_broker_that_leaves_fences_and_does_not_claim() -> None:
    image = three(controller=2)
    leaves = BrokerRegistrationChangeRecord(1, epoch(image, 1), in_controlled_shutdown=True)
    image = applied(image, leaves)
    found = applied(image, *fence_sealed(image, 1, incarnation(1), {2: epoch(image, 2)}))
    assert found.brokers[2].fenced
    assert found.controller == image.controller
