"""`sparklog produce`: Kafka's console producer, through brokers or directly into the storage.

`LineInput` reads lines from standard input, with limits for the wait and for the length of a line.

It reads the file descriptor itself, and without a thread: a thread in a blocking read would keep an
interrupted process from ending.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    check_known,
    counting_number,
    key_values,
    whole_number,
)
from sparklog.cli.console.line_reader import LineReader, LineRecord
from sparklog.cli.console.record_sinks import LineSink, SinkDelivery, TopicAppender
from sparklog.cli.output import Output
from sparklog.cli.target import (
    add_log_options,
    bootstrap_of,
    client_settings_of,
    connected,
    opened_log,
)
from sparklog.client.values import ConfigResource
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.model import understood_configs
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.errors import NotServing, RecordTooLarge, SparklogError
from sparklog.core.topic_names import check_not_closed

READ_BYTES = 256 * 1024


class LineInput:
    """Splits a byte stream at newlines, and removes a carriage return before one."""

    def __init__(self, stream: BinaryIO, line_bytes_max: int) -> None:
        """Read `stream`; a line longer than `line_bytes_max` is an error."""
        self._stream = stream
        self._line_bytes_max = line_bytes_max
        self._partial = bytearray()
        self._ended = False
        try:
            self._descriptor: int | None = stream.fileno()
        except io.UnsupportedOperation:
            self._descriptor = None

    def lines(self, timeout_s: float | None) -> list[bytes] | None:
        """Return the next lines; none after `timeout_s`, None at the end of input.

        Raises:
            RecordTooLarge: a line without an end.
        """
        if self._ended:
            return None
        if not self._ready(timeout_s):
            return []
        data = self._read()
        if not data:
            self._ended = True
            return [self._whole(bytes(self._partial))] if self._partial else None
        self._partial += data
        *lines, rest = self._partial.split(b"\n") if b"\n" in data else [self._partial]
        if len(rest) > self._line_bytes_max:
            raise RecordTooLarge(
                "a line is longer than any record may be; raise max.message.bytes or cut it. "
                f"bytes={len(rest)} max={self._line_bytes_max}"
            )
        self._partial = bytearray(rest) if lines else self._partial
        return [self._whole(bytes(line)) for line in lines]

    def _ready(self, timeout_s: float | None) -> bool:
        if self._descriptor is None or timeout_s is None:
            return True
        return bool(select.select([self._descriptor], [], [], max(0.0, timeout_s))[0])

    def _read(self) -> bytes:
        if self._descriptor is None:
            return self._stream.read(READ_BYTES)
        return os.read(self._descriptor, READ_BYTES)

    @staticmethod
    def _whole(line: bytes) -> bytes:
        return line.removesuffix(b"\r")


BATCH_BYTES = 4 * 1024 * 1024
"""Kafka's 16 KiB would make a request and an object of every few lines."""
BATCH_RECORDS_MAX = 100_000
LINGER_MS = 1000
"""Kafka's console producer waits this long for more lines; with a keyboard it does not wait."""
MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default of `max.message.bytes`."""
HEADERS_ALLOWANCE = 4
"""A line may be this many times the largest record, for null markers and separators."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCER_PROPERTIES = ("acks", "batch.size", "compression.type", "linger.ms")


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument("--topic", required=True, help="where to append")
    for option, name in (("--property", "property"), ("--reader-property", "reader_property")):
        parser.add_argument(
            option,
            dest=name,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="how to read a line: parse.key, key.separator, parse.headers, headers.delimiter, "
            "headers.separator, headers.key.separator, null.marker, ignore.error",
        )
    parser.add_argument(
        "--batch-size",
        type=counting_number,
        metavar="BYTES",
        help=f"append once this much is gathered (default {BATCH_BYTES}; librdkafka's for brokers)",
    )
    parser.add_argument(
        "--timeout",
        type=whole_number,
        metavar="MS",
        help=f"how long a line may wait for more of them (default {LINGER_MS}; 0 when typing; "
        "librdkafka's for brokers)",
    )
    parser.add_argument("--sync", action="store_true", help="append every line by itself")
    parser.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        choices=CODECS,
        metavar="CODEC",
        help=f"one of {', '.join(CODECS)} (default: the topic's compression.type; none for "
        "brokers); segments know lz4 and zstd, so gzip is stored as zstd and snappy as lz4",
    )
    for option, name in (
        ("--producer-property", "producer_property"),
        ("--command-property", "command_property"),
    ):
        parser.add_argument(
            option,
            dest=name,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"a producer's setting: {', '.join(PRODUCER_PROPERTIES)}; "
            "with --bootstrap-server any of librdkafka's",
        )
    add_log_options(parser)


@dataclass(frozen=True, slots=True)
class Batching:
    """Limits at which collected lines are appended."""

    size_bytes: int
    linger_s: float
    one_by_one: bool


@dataclass(slots=True)
class _GatheredRecords:
    """Lines that wait to be appended."""

    records: list[LineRecord] = field(default_factory=list)
    size_bytes: int = 0
    since_s: float = 0.0


def run(args: Arguments, output: Output) -> int:
    """Append lines until the input ends; before an error, append the lines read so far."""
    reader = LineReader(_properties(args, "property", "reader_property"))
    settings = _properties(args, "producer_property", "command_property")
    if settings.get("acks", "all") not in ("all", "-1", "0", "1"):
        raise UsageError("acks is 0, 1 or all; an append to a root waits for the storage anyway")
    check_not_closed(args.topic, "append to it")
    codec = args.compression_codec or _codec(settings)
    typing = sys.stdin.isatty() and sys.stdout.isatty() and not output.as_json
    bootstrap = bootstrap_of(args)
    if bootstrap is not None:
        _produce_to_brokers(bootstrap, args, settings, reader, output, typing=typing)
        return 0
    check_known(settings, PRODUCER_PROPERTIES, "--producer-property")
    batching = _batching(args, settings, typing=typing)
    with opened_log(args) as log:
        topic = log.topic(args.topic)
        configs = understood_configs(topic.settings, TOPIC_SETTINGS)
        largest = configs.whole("max.message.bytes")
        source = LineInput(sys.stdin.buffer, largest * HEADERS_ALLOWANCE)
        session = _ProduceSession(TopicAppender(log, topic, codec), reader, batching, output)
        try:
            session.run(source, prompt=typing)
        except NotServing as error:
            raise NotServing(
                "brokers lead this topic; produce through them with --bootstrap-server "
                f"(`sparklog brokers` lists them). topic={args.topic}"
            ) from error
    return 0


def _produce_to_brokers(
    bootstrap: str,
    args: Arguments,
    settings: dict[str, str],
    reader: LineReader,
    output: Output,
    *,
    typing: bool,
) -> None:
    from sparklog.cli.console.broker_sink import TopicSender  # noqa: PLC0415 - a root needs no client

    with connected(args) as admin:
        configs = admin.configs(ConfigResource.TOPIC, [args.topic])[args.topic]
    sizes = [c.value for c in configs if c.name == "max.message.bytes" and c.value]
    largest = int(sizes[0]) if sizes else MESSAGE_BYTES_MAX
    sender = TopicSender(
        bootstrap,
        args.topic,
        # librdkafka rejects records above its own limit before the broker could.
        {
            "message.max.bytes": str(max(largest, MESSAGE_BYTES_MAX)),
            **client_settings_of(args),
            **_wire_settings(args, settings),
        },
    )
    source = LineInput(sys.stdin.buffer, largest * HEADERS_ALLOWANCE)
    # Lines go to librdkafka at once, which collects them.
    _ProduceSession(sender, reader, Batching(BATCH_BYTES, 0.0, args.sync), output).run(
        source, prompt=typing
    )


def _wire_settings(args: Arguments, settings: dict[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for the options; acks of 0 or 1 exclude idempotence."""
    chosen: dict[str, str] = {}
    if settings.get("acks") in ("0", "1"):
        chosen["enable.idempotence"] = "false"
    if args.compression_codec is not None:
        chosen["compression.type"] = args.compression_codec
    if args.batch_size is not None:
        chosen["batch.size"] = str(args.batch_size)
    if args.timeout is not None:
        chosen["linger.ms"] = str(args.timeout)
    if args.sync:
        chosen["linger.ms"] = "0"
    return {**chosen, **settings}


class _ProduceSession:
    """Collects lines and appends them."""

    def __init__(
        self,
        sink: LineSink,
        reader: LineReader,
        batching: Batching,
        output: Output,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._sink = sink
        self._reader = reader
        self._batching = batching
        self._output = output
        self._clock = clock
        self._gathered = _GatheredRecords()

    def run(self, source: LineInput, *, prompt: bool) -> None:
        """Read to the end; an unreadable line or an interrupt keeps the lines before."""
        try:
            while True:
                if prompt and not self._gathered.records:
                    self._output.raw(b">")
                    self._output.flush()
                lines = source.lines(self._patience_s())
                if lines is None:
                    break
                for line in lines:
                    self._take(self._reader.parse(line))
                if not self._may_wait():
                    self._append()
        except (SparklogError, KeyboardInterrupt):
            gathered = self._gathered
            if gathered.records:
                self._append()
            self._tell(self._sink.finish())
            raise
        self._append()
        self._tell(self._sink.finish())

    def _take(self, record: LineRecord) -> None:
        gathered = self._gathered
        if not gathered.records:
            gathered.since_s = self._clock.monotonic_s()
        gathered.records.append(record)
        gathered.size_bytes += record.size_bytes
        full = (
            gathered.size_bytes >= self._batching.size_bytes
            or len(gathered.records) >= BATCH_RECORDS_MAX
        )
        if full or self._batching.one_by_one:
            self._append()

    def _patience_s(self) -> float | None:
        if not self._gathered.records:
            return None
        waited_s = self._clock.monotonic_s() - self._gathered.since_s
        return max(0.0, self._batching.linger_s - waited_s)

    def _may_wait(self) -> bool:
        patience_s = self._patience_s()
        return patience_s is None or patience_s > 0

    def _append(self) -> None:
        records = self._gathered.records
        # Reset first: failed records must not be appended again at the exit.
        self._gathered = _GatheredRecords()
        if not records:
            return
        self._tell(self._sink.append(records))
        if self._batching.one_by_one:
            self._tell(self._sink.finish())

    def _tell(self, deliveries: Iterable[SinkDelivery]) -> None:
        for delivery in deliveries:
            self._output.document(
                {
                    "topic": delivery.topic_partition.topic,
                    "partition": delivery.topic_partition.partition,
                    "baseOffset": delivery.base_offset,
                    "count": delivery.count,
                }
            )
        self._output.flush()


def _properties(args: Arguments, old: str, new: str) -> dict[str, str]:
    """Return properties given under either of an option's two names."""
    if getattr(args, old) and getattr(args, new):
        options = [f"--{name.replace('_', '-')}" for name in (old, new)]
        raise UsageError(f"{options[0]} and {options[1]} say the same; use one")
    return key_values(getattr(args, old) or getattr(args, new), f"--{new.replace('_', '-')}")


def _batching(args: Arguments, settings: dict[str, str], *, typing: bool) -> Batching:
    linger_ms = args.timeout
    if linger_ms is None:
        default = 0 if typing else LINGER_MS
        linger_ms = _setting(settings, "linger.ms", default)
    size_bytes = args.batch_size or _setting(settings, "batch.size", BATCH_BYTES)
    return Batching(size_bytes, linger_ms / 1000, args.sync)


def _setting(settings: dict[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default)).strip()
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} takes a whole number, not {text!r}")
    return int(text)


def _codec(settings: dict[str, str]) -> str | None:
    codec = settings.get("compression.type")
    if codec is not None and codec not in CODECS:
        raise UsageError(f"compression.type is one of {', '.join(CODECS)}, not {codec!r}")
    return codec
