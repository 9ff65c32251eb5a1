"""Requests that are small and ask for gigabytes, sent to a real broker beside a client at work.

The client is served all the time, and the broker's peak memory follows from its settings.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames as messages
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.header import HEADER_BYTES, REFERENCE_BIT, parse_header, seal_header
from sparklog.protocol.records.record_batch import Codec
from tests.harness.broker_processes import BrokerProcess, BrokerProcesses
from tests.harness.wire_batches import raw_batch, record, zigzag

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
MIB = 1 << 20
QUEUED, TAIL, CACHE, UNFOLDED = 64 * MIB, 64 * MIB, 16 * MIB, 32 * MIB
SETTINGS = {
    "queued.max.request.bytes": str(QUEUED),
    "tail.bytes": str(TAIL),
    "history.cache.bytes": str(CACHE),
}
ALLOWED_BYTES = 5 * (QUEUED + TAIL + CACHE + 2 * UNFOLDED) // 4
"""Memory that the settings let a broker hold, and a quarter: issue 31's bound.

Batches unfold to half of QUEUED at a time, and their columns take as much again.
"""
DEADLINE_S = 60.0
ROUND_TRIP_S = 10.0
"""A stall; those that issue 31 found lasted 13 s and longer."""
ANSWER_S = 20.0
TOPIC = "watched"


@cache
def empty_headers() -> bytes:
    """Return a batch of one record with 15 million empty headers, in a few kilobytes."""
    headers = zigzag(15_000_000) + b"\x00\x01" * 15_000_000
    return raw_batch([record(0, headers=headers)], codec=Codec.ZSTD)


def reference_of_brackets(size: int = 120 * MIB) -> bytes:
    """Return a reference batch whose document is nothing but empty arrays."""
    data = raw_batch([record(0, b"[]" * (size // 2))], codec=Codec.ZSTD)
    header = parse_header(data)
    body = data[HEADER_BYTES:]
    return seal_header(header._replace(attributes=header.attributes | REFERENCE_BIT), body) + body


def produce_frame(batch: bytes) -> bytes:
    """Return a Produce request with one batch."""
    part = build_request_part(Api.PRODUCE, 9, "PartitionProduceData", index=0, records=batch)
    data = build_request_part(
        Api.PRODUCE, 9, "TopicProduceData", name=TOPIC, partition_data=(part,)
    )
    request = build_request(
        Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=timedelta(seconds=10),
        topic_data=(data,),
    )  # fmt: skip
    return bytes(messages.encode_request(request, 1, "hostile"))


def ask(address: str, frame: bytes) -> None:
    """Send a frame, and wait for the answer or the end of the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as line, suppress(ConnectionError):
        line.sendall(frame)
        line.recv(4)


def half_sent(address: str) -> socket.socket:
    """Return a connection that claims 64 MiB and has sent as much of 32 MiB as is read."""
    host, _, port = address.rpartition(":")
    line = socket.create_connection((host, int(port)), ANSWER_S)
    line.settimeout(0.2)
    with suppress(OSError):  # the broker stops reading: that is what it should do
        line.sendall(struct.pack(">i", 64 * MIB - 1) + bytes(32 * MIB))
    return line


class Watched:
    """A client that produces a record, reads it back, and so on, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        """Use the cluster there."""
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watched"})
        self._consumer.assign([TopicPartition(TOPIC, 1, 0)])
        self._stop = threading.Event()
        self.round_trips = 0

    def stop(self) -> None:
        """Let the round trip that is under way be the last."""
        self._stop.set()

    def run(self) -> int:
        """Make round trips; return how many.

        Raises:
            AssertionError: one of them took too long.
        """
        try:
            while not self._stop.is_set():
                self._producer.produce(TOPIC, b"%d" % self.round_trips, partition=1)
                assert self._producer.flush(ROUND_TRIP_S) == 0, "a record is not acknowledged"
                message = self._consumer.poll(ROUND_TRIP_S)
                assert message is not None, "a record is not read"
                assert message.error() is None, message.error()
                assert message.value() == b"%d" % self.round_trips
                self.round_trips += 1
        finally:
            self._consumer.close()
        return self.round_trips


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process that has served a client for a while."""
    root = (tmp_path / "root").as_uri()
    with BrokerProcesses(root, tmp_path, SETTINGS, count=1) as cluster:
        admin = rd.AdminClient({"bootstrap.servers": cluster.bootstrap})
        configs = {"max.decompressed.message.bytes": str(UNFOLDED)}
        admin.create_topics([rd.NewTopic(TOPIC, 2, 1, config=configs)])[TOPIC].result(DEADLINE_S)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            ask(cluster.bootstrap, produce_frame(raw_batch([record(0)], codec=codec)))
        yield cluster.brokers[0]


def resident_bytes(broker: BrokerProcess, field: str) -> int:
    """Return VmRSS, or VmHWM: the peak since it was last reset."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith(field))
    return int(line.split()[1]) * 1024


def reset_peak(broker: BrokerProcess) -> int:
    """Have the kernel measure the peak from now on; return what is resident."""
    assert broker.process is not None
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
    return resident_bytes(broker, "VmRSS")


def attack(broker: BrokerProcess, attacks: Callable[[str], None]) -> tuple[int, int]:
    """Run attacks beside a client; return the peak beyond before, and the client's round trips."""
    before = reset_peak(broker)
    watched = Watched(broker.address)
    with ThreadPoolExecutor(1) as threads:
        served = threads.submit(watched.run)
        try:
            attacks(broker.address)
        finally:
            watched.stop()
        return resident_bytes(broker, "VmHWM") - before, served.result(DEADLINE_S)


def together(address: str, frames: list[bytes], lines: int) -> None:
    """Send frames over some connections at once."""
    with ThreadPoolExecutor(lines) as threads:
        for done in [threads.submit(ask, address, frame) for frame in frames]:
            done.result(DEADLINE_S)


def known_attacks(address: str) -> None:
    """Do what issue 31 found: references, headers, and requests that never become whole."""
    held = [half_sent(address) for _ in range(24)]
    try:
        together(address, [produce_frame(reference_of_brackets())] * 6, 6)
        together(address, [produce_frame(empty_headers())] * 6, 6)
    finally:
        for line in held:
            line.close()


def test_small_requests_that_ask_for_gigabytes_do_not_stop_a_client(
    broker: BrokerProcess,
) -> None:
    peak, round_trips = attack(broker, known_attacks)
    assert round_trips > 0
    assert peak < ALLOWED_BYTES, f"{peak / MIB:.0f} MiB"
