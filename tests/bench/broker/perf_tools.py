"""Kafka's own performance tools, run in a JVM of their own, and what their last lines say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.peers.kafka_tools import ToolFailed, run_tool

JVM = ("-Xmx512m",)
TIMEOUT_S = 900.0

_SUMMARY = re.compile(
    r"(\d+) (steady state )?records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), "
    r"([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
_PERCENTILES = re.compile(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)")


@dataclass(frozen=True)
class Produced:
    """Figures of the producer tool. Latencies are from send to acknowledgement."""

    records: int
    records_per_s: float
    mib_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True)
class Paced:
    """A producer that kept to a rate."""

    whole: Produced
    steady: Produced
    """Without its first records. A producer begins with code that its JVM has yet to compile. It
    also sends at full speed first, to make up for the time until it was connected.
    """


@dataclass(frozen=True)
class EndToEnd:
    """From send to receipt, one record at a time."""

    p50_ms: float
    p99_ms: float


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    size_bytes: int,
    *,
    records_per_s: float = -1,
    settings: Mapping[str, str] | None = None,
) -> Produced:
    """Run `kafka-producer-perf-test`; a rate of -1 is as fast as it goes.

    Raises:
        ToolFailed: it did not send everything.
    """
    words = _producer_words(bootstrap, topic, records, size_bytes, records_per_s, settings or {})
    return produced_of(_run("ProducerPerformance", *words), records)


def produce_paced(
    bootstrap: str,
    topic: str,
    records: int,
    size_bytes: int,
    *,
    records_per_s: float,
    first_records: int,
) -> Paced:
    """Run `kafka-producer-perf-test` at a rate; `steady` leaves its first records out.

    Raises:
        ToolFailed: it did not send everything.
    """
    words = _producer_words(bootstrap, topic, records, size_bytes, records_per_s, {})
    output = _run("ProducerPerformance", *words, "--warmup-records", str(first_records))
    steady = produced_of(output, records - first_records, steady=True)
    return Paced(produced_of(output, records), steady)


def produced_of(output: str, records: int, *, steady: bool = False) -> Produced:
    """Return what the tool's output says, of all records or of those after its first.

    Raises:
        ToolFailed: fewer records, or no such summary at all.
    """
    found = [line for line in _SUMMARY.findall(output) if bool(line[1]) == steady]
    if not found or int(found[-1][0]) != records:
        raise ToolFailed(f"not all records were sent. output={output[-2000:]}")
    _, _, per_s, mib, _, _, p50, _, p99, p999 = found[-1]
    return Produced(records, float(per_s), float(mib), float(p50), float(p99), float(p999))


def _producer_words(
    bootstrap: str,
    topic: str,
    records: int,
    size_bytes: int,
    records_per_s: float,
    settings: Mapping[str, str],
) -> tuple[str, ...]:
    given = {"acks": "all", **settings}
    return (
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(size_bytes)),
        *("--throughput", f"{records_per_s:.0f}"),
        *("--command-property", *(f"{key}={value}" for key, value in given.items())),
    )


def end_to_end(bootstrap: str, topic: str, records: int, size_bytes: int) -> EndToEnd:
    """Run `kafka-e2e-latency`, acks=all.

    Raises:
        ToolFailed: it gave up.
    """
    words = (bootstrap, topic, str(records), "all", str(size_bytes))
    return end_to_end_of(_run("EndToEndLatency", *words))


def end_to_end_of(output: str) -> EndToEnd:
    """Return what the tool's output says.

    Raises:
        ToolFailed: it has no percentiles.
    """
    found = _PERCENTILES.search(output)
    if found is None:
        raise ToolFailed(f"no percentiles. output={output[-2000:]}")
    return EndToEnd(float(found.group(1)), float(found.group(2)))


def _run(name: str, *arguments: str) -> str:
    return run_tool(name, *arguments, jvm=JVM, timeout_s=TIMEOUT_S)
