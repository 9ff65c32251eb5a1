"""The pauses of a client while brokers are killed."""

from __future__ import annotations

from itertools import pairwise

from sparklog.spark.demo.plain_client import PlainClient
from tests.harness.waiting import eventually

WITHIN_S = 60.0
AFTERWARDS = 300
"""Records that go on to be acknowledged in each partition: a later take-over shows as a gap."""


def longest_gaps(client: PlainClient, partitions: int, since_s: float) -> list[float]:
    """Wait until a client goes on; return each partition's longest pause from a moment on, in s."""

    def go_on() -> bool:
        return all(
            sum(one >= since_s for one in client.acknowledgements_s(number)) >= AFTERWARDS
            for number in range(partitions)
        )

    eventually(go_on, "records are acknowledged in every partition", WITHIN_S)
    return [_longest(client.acknowledgements_s(number), since_s) for number in range(partitions)]


def _longest(times: list[float], since_s: float) -> float:
    later = [one for one in times if one >= since_s]
    earlier = [one for one in times if one < since_s][-1:]
    return max(b - a for a, b in pairwise([*earlier, *later]))
