"""Output of Kafka's performance tools: it is parsed, and an incomplete run is rejected."""

from __future__ import annotations

import pytest

from tests.bench.broker.perf_tools import end_to_end_of, produced_of
from tests.peers.kafka_tools import ToolFailed

OUTPUT = """\
24993 records sent, 4998.6 records/sec (4.88 MB/sec), 5.1 ms avg latency, 310.0 ms max latency.
50000 records sent, 9996.001599 records/sec (9.76 MB/sec), 2.94 ms avg latency, 310.00 ms max \
latency, 1 ms 50th, 9 ms 95th, 41 ms 99th, 99 ms 99.9th.
"""
STEADY = """\
40000 steady state records sent, 9990.0 records/sec (9.75 MB/sec), 1.10 ms avg latency, 30.00 ms \
max latency, 1 ms 50th, 3 ms 95th, 8 ms 99th, 20 ms 99.9th.
"""


def test_the_last_line_is_the_summary() -> None:
    found = produced_of(OUTPUT, 50_000)
    assert (found.records_per_s, found.mib_per_s) == (9996.001599, 9.76)
    assert (found.p50_ms, found.p99_ms, found.p999_ms) == (1, 41, 99)


@pytest.mark.parametrize("output", ["", OUTPUT.splitlines()[0], OUTPUT.replace("50000", "49999")])
def test_a_run_that_did_not_send_everything_has_failed(output: str) -> None:
    with pytest.raises(ToolFailed):
        produced_of(output, 50_000)


def test_records_after_the_first_have_a_summary_of_their_own() -> None:
    output = OUTPUT + STEADY
    assert produced_of(output, 50_000) == produced_of(OUTPUT, 50_000)
    found = produced_of(output, 40_000, steady=True)
    assert (found.records, found.p50_ms, found.p99_ms, found.p999_ms) == (40_000, 1, 8, 20)
    with pytest.raises(ToolFailed):
        produced_of(OUTPUT, 50_000, steady=True)


def test_end_to_end_percentiles_are_read() -> None:
    found = end_to_end_of("Avg latency: 2.1 ms\nPercentiles: 50th = 2, 99th = 11, 99.9th = 30\n")
    assert (found.p50_ms, found.p99_ms) == (2, 11)
    with pytest.raises(ToolFailed):
        end_to_end_of("Avg latency: 2.1 ms\n")
