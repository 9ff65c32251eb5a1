"""Answers that the demo's client interprets."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from sparklog.spark.demo.plain_client import PlainClient

NOBODY = "127.0.0.1:1"


class Told:
    """A message of librdkafka when only a later one's answer came: it has no offset."""

    def __init__(self, partition: int | None) -> None:
        self._partition = partition

    def partition(self) -> int | None:
        return self._partition


def answered(error: KafkaError | None, partition: int | None) -> PlainClient:
    client = PlainClient(NOBODY, "t", [])
    message: Any = Told(partition)
    client._answered(7, error, message)
    return client


def test_a_record_may_be_acknowledged_without_its_offset() -> None:
    client = answered(None, 2)
    assert [(one.number, one.partition) for one in client.acknowledged] == [(7, 2)]
    assert client.failed == []
    assert len(client.acknowledgements_s(2)) == 1


def test_rejected_message_is_kept_with_the_reason() -> None:
    client = answered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), 2)
    assert client.acknowledged == []
    assert "size" in client.failed[0].lower()
    assert client.acknowledgements_s(2) == []
