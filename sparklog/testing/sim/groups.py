"""SimMember: a member of a classic group in a simulated cluster.

The group's leader assigns partitions. Members join, commit, sleep, crash and join again. A member
that sleeps past its session continues afterwards as if no time had passed. Durations are virtual
seconds.

SimGroupConsumer: a member of a consumer group (KIP-848) in a simulated cluster.

The coordinator assigns partitions. A member revokes partitions on request and confirms that, before
another member gets them. Members sleep past their sessions, crash, leave, lose responses, and
restart. Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sparklog.broker.runtime.environment import Address
from sparklog.core.bounded_json import parse_json
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.testing.history import CommittedHistory, GroupLog, Looked, Owned, OwnershipClaim
from sparklog.testing.sim.clients import BACKOFF_S, RETRIABLE, ClientSide
from sparklog.testing.sim.transactions import find_coordinator

GROUP_KEY: Final = 0
SESSION_S: Final = 1.0
STEP_S: Final = 0.2
"""Longest pause between two commits of a member.

A heartbeat precedes each commit, except the first after a sleep.
"""
SLEEP_SHARE: Final = 0.03
CRASH_SHARE: Final = 0.03
"""Shares of steps after which a member sleeps past its session, or restarts without leaving."""

JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
COMMIT_VERSION: Final = 7
FETCH_VERSION: Final = 6

NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
EXPECTED: Final = RETRIABLE | {NOT_COORDINATOR, REBALANCE_IN_PROGRESS}


class Rejoin(Exception):
    """The member is out of its generation."""


class SimMember:
    """One member, with all of its generations."""

    group = "members"
    commit_version = COMMIT_VERSION

    def __init__(self, side: ClientSide, log: GroupLog, topic: str, partitions: int) -> None:
        """Share the partitions of a topic with the other members."""
        self.side = side
        self.stopping = False
        self.settled = False
        self._log = log
        self._partitions = [TopicPartition(topic, n) for n in range(partitions)]
        self._coordinator: Address | None = None
        self._member_id = ""
        self._generation = -1
        self._positions: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Take part until `stopping`, and fetch the offsets once more at the end."""
        while not self.stopping:
            try:
                await self._join()
                while not self.stopping:
                    await self._step()
            except Rejoin:
                await self._pause(BACKOFF_S)
        await self._look(self._partitions)
        self.settled = True

    async def _step(self) -> None:
        entropy = self.side.entropy
        await self._pause(STEP_S)
        chance = entropy.random()
        if chance < SLEEP_SHARE:
            await asyncio.sleep(3 * SESSION_S)
        elif chance < SLEEP_SHARE + CRASH_SHARE:
            self._begin_anew()
            raise Rejoin
        else:
            await self._heartbeat()
        if self._positions:
            owned = sorted(self._positions)
            await self._commit(owned[int(entropy.random() * len(owned))])

    async def _pause(self, longest_s: float) -> None:
        await asyncio.sleep(longest_s * self.side.entropy.random())

    def _begin_anew(self) -> None:
        """Become another member: requests of the old one are invalid in the next generation."""
        self._member_id, self._generation, self._positions = "", -1, {}

    async def _join(self) -> None:
        self._positions = {}
        protocol = build_request_part(
            Api.JOIN_GROUP, JOIN_VERSION, "JoinGroupRequestProtocol", name="any", metadata=b"all"
        )
        request = build_request(
            Api.JOIN_GROUP,
            JOIN_VERSION,
            group_id=self.group,
            session_timeout=timedelta(seconds=SESSION_S),
            rebalance_timeout=timedelta(seconds=SESSION_S),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        answer = await self._ask(request)
        code = int(answer.error_code)
        if code == MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            raise Rejoin
        self._check("join", code)
        self._member_id, self._generation = answer.member_id, int(answer.generation_id)
        is_leader = answer.leader == answer.member_id
        await self._sync(sorted(m.member_id for m in answer.members) if is_leader else [])

    async def _sync(self, members: list[str]) -> None:
        """Get this member's partitions; the leader, with all `members`, sends the assignments."""
        shares = {
            member: [p.partition for p in self._partitions[at :: len(members)]]
            for at, member in enumerate(members)
        }
        assignments = tuple(
            build_request_part(
                Api.SYNC_GROUP,
                SYNC_VERSION,
                "SyncGroupRequestAssignment",
                member_id=member,
                assignment=json.dumps(share).encode(),
            )
            for member, share in shares.items()
        )
        request = self._in_generation(Api.SYNC_GROUP, SYNC_VERSION, assignments=assignments)
        answer = await self._ask(request)
        self._check("sync", int(answer.error_code))
        mine = parse_json(bytes(answer.assignment) or b"[]", "assignment")
        owned = [where for where in self._partitions if where.partition in mine]
        for where in owned:
            self._log.owned.append(Owned(self._generation, self._member_id, where))
        self._positions = await self._look(owned) if owned else {}

    async def _heartbeat(self) -> None:
        request = self._in_generation(Api.HEARTBEAT, HEARTBEAT_VERSION)
        answer = await self._ask(request)
        self._check("heartbeat", int(answer.error_code))

    async def _commit(self, where: TopicPartition) -> None:
        offset = self._positions[where] + 1 + int(3 * self.side.entropy.random())
        part = build_request_part(
            Api.OFFSET_COMMIT,
            self.commit_version,
            "OffsetCommitRequestPartition",
            partition_index=where.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topic = build_request_part(
            Api.OFFSET_COMMIT,
            self.commit_version,
            "OffsetCommitRequestTopic",
            name=where.topic,
            partitions=(part,),
        )
        request = build_request(
            Api.OFFSET_COMMIT,
            self.commit_version,
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            topics=(topic,),
        )
        self._log.tried.add((where, offset))
        answer = await self._ask(request)
        code = int(answer.topics[0].partitions[0].error_code)
        if code == 0:
            now_s = self.side.recorder.loop.time()
            self._log.commits.append(CommittedHistory(where, offset, now_s))
            self._positions[where] = offset
        else:
            self._commit_refused(code)

    def _commit_refused(self, code: int) -> None:
        """Continue after a rejected commit.

        Raises:
            Rejoin: the member must join again. After a coordinator error it restarts first, because
                the commit may have happened.
        """
        if code != REBALANCE_IN_PROGRESS:
            self._coordinator = None
            if code in RETRIABLE or code == NOT_COORDINATOR:
                self._begin_anew()
        self._check("offset commit", code)

    async def _look(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Fetch the committed offsets, record them, and return them."""
        topic = build_request_part(
            Api.OFFSET_FETCH,
            FETCH_VERSION,
            "OffsetFetchRequestTopic",
            name=self._partitions[0].topic,
            partition_indexes=tuple(where.partition for where in partitions),
        )
        request = build_request(
            Api.OFFSET_FETCH, FETCH_VERSION, group_id=self.group, topics=(topic,)
        )
        while True:
            invoked_s = self.side.recorder.loop.time()
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self.side, self.group, GROUP_KEY)
            answer = await self.side.ask(self._coordinator, request, "group")
            if answer is not None and int(answer.error_code) == 0:
                break
            if answer is not None and int(answer.error_code) not in EXPECTED:
                self.side.complain("offset fetch", int(answer.error_code))
            self._coordinator = None
            await self._pause(BACKOFF_S)
        found = {
            TopicPartition(self._partitions[0].topic, p.partition_index): int(p.committed_offset)
            for p in answer.topics[0].partitions
        }
        for where, offset in found.items():
            self._log.looks.append(Looked(where, offset, invoked_s))
        return {where: max(0, offset) for where, offset in found.items()}

    def _in_generation(self, api: Api, version: int, **more: Any) -> Any:
        return build_request(
            api,
            version,
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            **more,
        )

    async def _ask(self, request: Any) -> Any:
        """Return the coordinator's response.

        Raises:
            Rejoin: there is none.
        """
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.side, self.group, GROUP_KEY)
        answer = await self.side.ask(self._coordinator, request, "group")
        if answer is None:
            self._coordinator = None
            self._begin_anew()
            raise Rejoin
        return answer

    def _check(self, what: str, code: int) -> None:
        """Return if there is no error.

        Raises:
            Rejoin: there is one.
        """
        if code == 0:
            return
        if code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER):
            self._begin_anew()
        elif code not in EXPECTED:
            self.side.complain(what, code)
        if code != REBALANCE_IN_PROGRESS:
            self._coordinator = None
        raise Rejoin


SIM_GROUP_CONSUMERS_HEARTBEAT_VERSION: Final = 1
REBALANCE_S: Final = 10.0
"""Longer than a member ever takes to revoke partitions: its session ends before."""
LEAVE_SHARE: Final = 0.03
"""Share of steps after which a member leaves, and another one joins."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

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
            self._log.claims.append(
                OwnershipClaim(self._member_id, where, since_s, min(until_s, now_s))
            )

    def _now_s(self) -> float:
        return self.side.recorder.loop.time()

    def _request(self, epoch: int | None = None) -> Any:
        owned = None
        if self._says_all or self._has_news or epoch == LEAVE_EPOCH:
            owned = self._owned_topics()
        return build_request(
            Api.CONSUMER_GROUP_HEARTBEAT,
            SIM_GROUP_CONSUMERS_HEARTBEAT_VERSION,
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

    def _owned_topics(self) -> tuple[Any, ...]:
        if not self._positions:
            return ()
        part = build_request_part(
            Api.CONSUMER_GROUP_HEARTBEAT,
            SIM_GROUP_CONSUMERS_HEARTBEAT_VERSION,
            "TopicPartitions",
            topic_id=self._topic_id,
            partitions=tuple(where.partition for where in sorted(self._positions)),
        )
        return (part,)
