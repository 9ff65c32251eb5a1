"""A member of a group that commits offsets at a pace, in a process of its own.

python -m tests.bench.groups.committer BOOTSTRAP GROUP TOPIC PER_S SECONDS

It joins, prints `ready`, waits for a line, and commits one offset at a time, without waiting for
answers but when hundreds are due. At the end it prints JSON with the numbers of sent and answered
commits. It adds the seconds from the first to the last answer, and the time of every answer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import TopicPartition

from tests.bench.common.side import ANSWER_TIMEOUT_S
from tests.bench.groups.members import POLL_S, joined

SLICE_S = 0.005
"""Commits of so long are sent together."""
IN_FLIGHT = 250
"""Commits that wait for their answers: more would only wait in the client."""
WARM_UP = 200


class Committer:
    """One consumer, and what became of its commits."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        """Join, and wait for partition 0."""
        self.sent_at: dict[int, float] = {}
        self.took_s: list[float] = []
        self.failed: list[str] = []
        self.last_at = 0.0
        self._topic = topic
        self._consumer = joined(bootstrap, group_id, topic, {"on_commit": self._answered})

    def commit(self, number: int) -> None:
        """Commit an offset."""
        self.sent_at[number] = time.monotonic()
        offsets = [TopicPartition(self._topic, 0, number)]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def settle(self) -> None:
        """Wait until all are answered."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.sent_at and time.monotonic() < deadline:
            self._consumer.poll(POLL_S)

    def run(self, first: int, per_s: float, seconds: float) -> int:
        """Commit at a pace; return how many were sent."""
        began = time.monotonic()
        sent = 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * per_s)
            while sent < due and len(self.sent_at) < IN_FLIGHT:
                self.commit(first + sent)
                sent += 1
            self._consumer.poll(SLICE_S)
        return sent

    def committed(self) -> int:
        """Return the offset that the coordinator has."""
        found = self._consumer.committed([TopicPartition(self._topic, 0)], ANSWER_TIMEOUT_S)
        return int(found[0].offset)

    def _answered(self, error: Any, offsets: list[TopicPartition]) -> None:
        now = time.monotonic()
        sent = self.sent_at.pop(offsets[0].offset)
        if error is not None or offsets[0].error is not None:
            self.failed.append(str(error or offsets[0].error))
        else:
            self.took_s.append(now - sent)
            self.last_at = now


def main(bootstrap: str, group_id: str, topic: str, per_s: str, seconds: str) -> None:
    """See the module."""
    committer = Committer(bootstrap, group_id, topic)
    for number in range(1, WARM_UP + 1):
        committer.commit(number)
    committer.settle()
    committer.took_s.clear()
    _tell("ready")
    sys.stdin.readline()
    began = time.monotonic()
    sent = committer.run(WARM_UP + 1, float(per_s), float(seconds))
    committer.settle()
    found = {
        "sent": sent,
        "seconds": committer.last_at - began,
        "took_s": committer.took_s,
        "failed": committer.failed,
        "unanswered": len(committer.sent_at),
        "last": WARM_UP + sent,
        "committed": committer.committed(),
    }
    _tell(json.dumps(found))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
