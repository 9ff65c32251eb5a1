"""SimGroupConsumer: a member of a consumer group (KIP-848) in a simulated cluster.

The coordinator assigns partitions. A member revokes partitions on request and confirms that, before
another member gets them. Members sleep past their sessions, crash, leave, lose responses, and
restart. Durations are virtual seconds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api
from sparklog.protocol.building import build_request, build_request_part
from sparklog.testing.group_history import Claim, GroupLog, Owned
from sparklog.testing.sim_clients import BACKOFF_S, RETRIABLE, ClientSide
from sparklog.testing.sim_groups import NOT_COORDINATOR, SESSION_S, Rejoin, SimMember
from sparklog.testing.sim_transactions import find_coordinator

HEARTBEAT_VERSION: Final = 1
REBALANCE_S: Final = 10.0
"""Longer than a member ever takes to revoke partitions: its session ends before."""
LEAVE_SHARE: Final = 0.03
"""Share of steps after which a member leaves, and another one joins."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
UNKNOWN_MEMBER: Final = 25
FENCED_EPOCH: Final = 110
STALE_EPOCH: Final = 113
GONE: Final = frozenset({UNKNOWN_MEMBER, FENCED_EPOCH})
ELSEWHERE: Final = RETRIABLE | {NOT_COORDINATOR}


class SimGroupConsumer(SimMember):
    """One member, with all of its member ids."""

    group = "consumers"
    commit_version = 9

    def __init__(self, side: ClientSide, log: GroupLog, topic: str, partitions: int) -> None:
        """Share the partitions of a topic with the other members."""
        super().__init__(side, log, topic, partitions)
        self._topic_id = UUID(int=0)
        self._says_all = True
        self._has_news = False
        """True if it owns other partitions than it reported last."""
        self._claimed: dict[TopicPartition, tuple[float, float]] = {}
        """Time span in which a partition surely belongs to this member."""

    async def run(self) -> None:
        """Take part until `stopping`, and fetch the offsets once more at the end."""
        await super().run()
        now_s = self._now_s()
        for where in list(self._positions):
            self._drop(where, now_s)

    async def _step(self) -> None:
        if self.side.entropy.random() < LEAVE_SHARE:
            await self._leave()
        await super()._step()

    async def _join(self) -> None:
        self._member_id = self.side.entropy.random_bytes(8).hex()
        self._generation, self._says_all = JOIN_EPOCH, True
        await self._heartbeat()

    def _begin_anew(self) -> None:
        now_s = self._now_s()
        for where in list(self._positions):
            self._drop(where, now_s)
        super()._begin_anew()

    async def _heartbeat(self) -> None:
        """Send heartbeats and apply the responses, until there is no change to report."""
        self._has_news = self._generation == JOIN_EPOCH
        while await self._say():
            self._has_news = True

    async def _say(self) -> bool:
        """Send one heartbeat; return True if the owned partitions changed."""
        invoked_s = self._now_s()
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.side, self.group, 0)
        answer = await self.side.ask(self._coordinator, self._request(), "group")
        code = None if answer is None else int(answer.error_code)
        if code in GONE:
            self._begin_anew()
            raise Rejoin
        if answer is None or code != 0:
            if code is not None and code not in ELSEWHERE:
                self.side.complain("consumer group heartbeat", code)
            # Its response may be lost: the next heartbeat requests a full one.
            self._coordinator, self._says_all = None, True
            if self._generation == JOIN_EPOCH:
                raise Rejoin
            await self._pause(BACKOFF_S)
            return False
        self._says_all = False
        epoch, assignment = int(answer.member_epoch), answer.assignment
        if epoch == self._generation and assignment is None:
            return False
        # The log has the records of such a response, so its sender was the coordinator then.
        self._generation = epoch
        has_changed = assignment is not None and await self._take(assignment)
        for where in self._positions:
            self._log.owned.append(Owned(epoch, self._member_id, where))
            self._claim(where, invoked_s + SESSION_S)
        return has_changed

    async def _take(self, assignment: Any) -> bool:
        """Own the assigned partitions, and no others; return True if that is a change."""
        wanted: set[TopicPartition] = set()
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
            wanted |= {p for p in self._partitions if p.partition in topic.partitions}
        now_s = self._now_s()
        lost = self._positions.keys() - wanted
        for where in sorted(lost):
            self._drop(where, now_s)
        found = sorted(wanted - self._positions.keys())
        if found:
            self._positions |= await self._look(found)
        return bool(lost or found)

    async def _leave(self) -> None:
        request = self._request(LEAVE_EPOCH)
        self._begin_anew()
        if self._coordinator is not None:
            await self.side.ask(self._coordinator, request, "group")
        raise Rejoin

    def _commit_refused(self, code: int) -> None:
        if code == STALE_EPOCH:
            return  # the next heartbeat returns the epoch
        self._begin_anew()
        if code not in GONE | ELSEWHERE:
            self.side.complain("offset commit", code)
        raise Rejoin

    def _claim(self, where: TopicPartition, until_s: float) -> None:
        now_s = self._now_s()
        since_s, before_s = self._claimed.get(where, (now_s, now_s))
        if before_s < now_s:
            self._drop_claim(where, now_s)
            since_s = now_s
        self._claimed[where] = since_s, max(before_s, until_s)

    def _drop(self, where: TopicPartition, now_s: float) -> None:
        del self._positions[where]
        self._drop_claim(where, now_s)

    def _drop_claim(self, where: TopicPartition, now_s: float) -> None:
        since_s, until_s = self._claimed.pop(where, (0.0, 0.0))
        if since_s < min(until_s, now_s):
            self._log.claims.append(Claim(self._member_id, where, since_s, min(until_s, now_s)))

    def _now_s(self) -> float:
        return self.side.recorder.loop.time()

    def _request(self, epoch: int | None = None) -> Any:
        owned = None
        if self._says_all or self._has_news or epoch == LEAVE_EPOCH:
            owned = self._told_owned()
        return build_request(
            Api.CONSUMER_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._generation if epoch is None else epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=timedelta(seconds=REBALANCE_S)
            if self._says_all
            else timedelta(milliseconds=-1),
            subscribed_topic_names=(self._partitions[0].topic,) if self._says_all else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned,
        )

    def _told_owned(self) -> tuple[Any, ...]:
        if not self._positions:
            return ()
        part = build_request_part(
            Api.CONSUMER_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            "TopicPartitions",
            topic_id=self._topic_id,
            partitions=tuple(where.partition for where in sorted(self._positions)),
        )
        return (part,)
