"""Members of one group, each a librdkafka consumer in a thread, and what they have at any moment.

Only a client's view counts. A partition is a member's from its assignment callback to its
revocation callback, and it is read when a record of it comes. Moments are seconds on the monotonic
clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Condition, Thread
from typing import Any

from confluent_kafka import Consumer

from sparklog.core.types import Closeable
from tests.bench.common.side import ANSWER_TIMEOUT_S

POLL_S = 0.05
HEARTBEAT_MS = 500
"""Members learn of a change from a heartbeat: the defaults (3 and 5 s) would hide all else."""
SESSION_MS = 6_000
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS},
    "cooperative": {
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"group.protocol": "consumer"},
}
"""Settings of a client by protocol. The newer protocol has its times from the brokers."""
BROKER_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}
CLIENT: Mapping[str, object] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    # A partition that is new to a consumer is asked for with its next fetch.
    "fetch.wait.max.ms": 100,
    "log_level": 2,
}


def client_settings(bootstrap: str, group_id: str, protocol: str) -> dict[str, object]:
    """Return the client settings of a member of a group."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        **CLIENT,
        **PROTOCOLS[protocol],
    }


def joined(bootstrap: str, group_id: str, topic: str, more: Mapping[str, object]) -> Consumer:
    """Return a consumer that is the only member of its group, and has its partitions."""
    consumer = Consumer({**client_settings(bootstrap, group_id, "classic"), **more})
    consumer.subscribe([topic])
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the group did not form in time"
        consumer.poll(POLL_S)
    return consumer


class Member:
    """A consumer that polls in a thread of its own until it leaves."""

    def __init__(self, group: Group, number: int) -> None:
        """Join at once."""
        self.number = number
        self.owned: frozenset[int] = frozenset()
        self._group = group
        self._leaves = False
        self._thread = Thread(target=self._run, name=f"member {number}", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Close the consumer: it leaves the group."""
        self._leaves = True
        self._thread.join()

    def _run(self) -> None:
        consumer = Consumer({**self._group.client, "client.id": f"member-{self.number}"})
        consumer.subscribe([self._group.topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not self._leaves:
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self._group.read(message.partition() or 0)
        consumer.close()

    def _assigned(self, _: Consumer, partitions: list[Any]) -> None:
        self._group.changed(self, self.owned | {one.partition for one in partitions})

    def _revoked(self, _: Consumer, partitions: list[Any]) -> None:
        self._group.changed(self, self.owned - {one.partition for one in partitions})


class Group(Closeable):
    """The members of one group in this process; a context manager that ends them."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, protocol: str) -> None:
        """Begin without members."""
        self.topic = topic
        self.client = client_settings(bootstrap, group_id, protocol)
        self.members: list[Member] = []
        self._changed = Condition()
        self._read_at: dict[int, float] = {}
        self._twice = 0

    def close(self) -> None:
        """Let all members leave."""
        for member in self.members:
            member._leaves = True
        for member in self.members:
            member.leave()

    def join(self, count: int = 1) -> float:
        """Have more members join; return the moment before."""
        moment = time.monotonic()
        first = len(self.members)
        self.members += [Member(self, first + n) for n in range(count)]
        return moment

    def leave(self) -> float:
        """Have the member that came last leave; return the moment before."""
        moment = time.monotonic()
        self.members.pop().leave()
        return moment

    def changed(self, member: Member, owned: frozenset[int]) -> None:
        """Record the partitions that a member has from now on."""
        with self._changed:
            member.owned = owned
            counts = sum(len(one.owned) for one in self.members)
            self._twice += counts - len(frozenset().union(*(m.owned for m in self.members)))
            self._changed.notify_all()

    def read(self, partition: int) -> None:
        """Record that a record was read."""
        with self._changed:
            self._read_at[partition] = time.monotonic()
            self._changed.notify_all()

    @property
    def owners_at_once(self) -> int:
        """Return how often a partition was seen to have a second owner."""
        return self._twice

    def await_share(self, partitions: int, timeout_s: float) -> float:
        """Wait until `partitions` are spread evenly over all members; return that moment.

        Raises:
            TimeoutError: they were not, in time.
        """
        count = len(self.members)
        low, high = partitions // count, -(-partitions // count)

        def is_even() -> bool:
            sizes = [len(one.owned) for one in self.members]
            return sum(sizes) == partitions and low <= min(sizes) and max(sizes) <= high

        return self._await(is_even, f"{partitions} partitions over {count}", timeout_s)

    def await_read(self, partitions: frozenset[int], since: float, timeout_s: float) -> float:
        """Wait until a record of each was read after a moment; return when the last one was.

        Raises:
            TimeoutError: they were not, in time.
        """

        def are_read() -> bool:
            return all(self._read_at.get(one, 0.0) > since for one in partitions)

        return self._await(are_read, f"{len(partitions)} partitions read again", timeout_s)

    def _await(self, holds: Any, what: str, timeout_s: float) -> float:
        with self._changed:
            if not self._changed.wait_for(holds, timeout_s):
                sizes = [len(one.owned) for one in self.members]
                raise TimeoutError(f"still not so after {timeout_s} s: {what} owned={sizes}")
        return time.monotonic()
