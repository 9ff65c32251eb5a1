"""Capture the record batches that librdkafka and kafka-python write, with what is in them.

The client librdkafka produces to a broker of a few lines that keeps the bytes. The script calls the
batch builder of kafka-python as its producer does. It writes NAME.bin, librdkafka.json and
kafka_python.json into the folder. See README.md.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import sys
import threading
from pathlib import Path

from confluent_kafka import Producer
from kafka.record.memory_records import MemoryRecordsBuilder  # type: ignore[import-untyped]

T = 1_700_000_000_000
TOPIC = "vectors"
KEYS = {0: (0, 7), 1: (0, 11), 2: (0, 1), 3: (0, 1), 10: (0, 0), 18: (0, 0), 22: (0, 1)}
"""API keys advertised: produce, fetch, list offsets, metadata, find coordinator, versions, pid."""
PRODUCER_ID, PRODUCER_EPOCH = 4711, 2

PATTERN = bytes((i * 7 + i // 256) % 256 for i in range(100_000))
RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (T, b"key", b"value", []),
    (T + 1, None, b"without key", []),
    (T + 2, b"tombstone", None, []),
    (T + 3, b"", b"", []),
    (
        T - 5_000,
        b"with",
        b"headers",
        [("trace", b"1"), ("trace", b"2"), ("none", None), ("e", b"")],
    ),
    (T + 70_000, b"\x00\x01\xff", PATTERN[:70_000], [("größe", b"\x00\xff")]),
]


def text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


class Reader:
    """Fields of one request, in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return int(value)

    def octets(self, length: int) -> bytes:
        start = self.position
        self.position += max(0, length)
        return self.data[start : self.position]


class CapturingBroker:
    """Enough of a broker for a producer: keeps the bytes of every produce request."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.captured: list[bytes] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while size := stream.read(4):
            request = Reader(stream.read(struct.unpack(">i", size)[0]))
            key, version, correlation = request.take("h"), request.take("h"), request.take("i")
            request.octets(request.take("h"))
            answer = struct.pack(">i", correlation) + self.answer(key, version, request)
            connection.sendall(struct.pack(">i", len(answer)) + answer)

    def answer(self, key: int, version: int, request: Reader) -> bytes:
        if key == 18:
            error = 35 if version > KEYS[18][1] else 0
            rows = b"".join(struct.pack(">hhh", api, *span) for api, span in KEYS.items())
            return struct.pack(">hi", error, len(KEYS)) + rows
        if key == 3:
            broker = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self.port)
            partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
            topic = struct.pack(">h", 0) + text(TOPIC) + b"\0" + struct.pack(">i", 1) + partition
            return struct.pack(">i", 1) + broker + text(None) + struct.pack(">ii", 1, 1) + topic
        if key == 22:
            return struct.pack(">ihqh", 0, 0, PRODUCER_ID, PRODUCER_EPOCH)
        assert (key, version) == (0, 7), (key, version)
        request.octets(request.take("h"))
        request.take("h"), request.take("i")
        assert request.take("i") == 1
        request.octets(request.take("h"))
        assert request.take("i") == 1
        request.take("i")
        self.captured.append(request.octets(request.take("i")))
        partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0)
        return struct.pack(">i", 1) + text(TOPIC) + struct.pack(">i", 1) + partition + bytes(4)


def librdkafka(codec: str, idempotent: bool) -> bytes:
    broker = CapturingBroker()
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 500,
        }
    )
    for timestamp, key, value, headers in RECORDS:
        producer.produce(TOPIC, value, key, partition=0, timestamp=timestamp, headers=[*headers])
    assert producer.flush(20) == 0
    assert len(broker.captured) == 1, len(broker.captured)
    return broker.captured[0]


def kafka_python(codec: int, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    identity = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=codec,
        batch_size=1 << 20,
        transactional=producer[0] >= 0,
        **identity,
    )
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers)
    builder.close()
    return bytes(builder.buffer())


def octets(value: bytes | None) -> object:
    if value is None or len(value) <= 64:
        return None if value is None else value.hex()
    return {"length": len(value), "sha256": hashlib.sha256(value).hexdigest()}


def expected(codec: int, producer: tuple[int, int, int], transactional: bool) -> list[object]:
    """Return what went in, in the form java.json has."""
    records = [
        {
            "offset": offset,
            "timestamp": timestamp,
            "key": octets(key),
            "value": octets(value),
            "headers": [[octets(name.encode()), octets(content)] for name, content in headers],
        }
        for offset, (timestamp, key, value, headers) in enumerate(RECORDS)
    ]
    fields = {
        "base_offset": 0,
        "last_offset": len(RECORDS) - 1,
        "codec": codec,
        "timestamp_type": 0,
        "is_transactional": transactional,
        "is_control": False,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "base_sequence": producer[2],
        "record_count": len(RECORDS),
    }
    return [{**fields, "records": records}]


def main(folder: Path) -> None:
    codecs = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    nobody, somebody = (-1, -1, -1), (PRODUCER_ID, PRODUCER_EPOCH, 0)
    described: dict[str, dict[str, object]] = {"librdkafka": {}, "kafka_python": {}}

    def keep(client: str, name: str, data: bytes, content: object) -> None:
        (folder / f"{client}-{name}.bin").write_bytes(data)
        described[client][f"{client}-{name}"] = content

    for name, codec in codecs.items():
        if name != "none":
            keep("librdkafka", name, librdkafka(name, False), expected(codec, nobody, False))
    keep("librdkafka", "idempotent", librdkafka("zstd", True), expected(4, somebody, False))
    for name in ("gzip", "zstd"):
        keep(
            "kafka_python", name, kafka_python(codecs[name]), expected(codecs[name], nobody, False)
        )
    keep("kafka_python", "txn", kafka_python(1, somebody), expected(1, somebody, True))
    for client, content in described.items():
        (folder / f"{client}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
