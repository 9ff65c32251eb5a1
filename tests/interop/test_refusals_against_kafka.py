"""Wrong requests to coordinators: brokers answer each as a real Kafka does.

One conversation of bad requests is held with both; then the codes they gave are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.connections import BrokerConnections as Asked
from sparklog.client.connections import RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.routing import CoordinatorKind, ask_coordinators
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.protocol.api_keys import Api
from tests.harness.plain_requests import codes_of
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka import KafkaCluster

MOVES = frozenset({14, 15, 16})
GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
HOSTILE = ["", " ", "../../x", "a/b\0c", "ü" * 200, "%s{}", "-" * 249]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
Build = Callable[[RequestDraft], Any]
Codes = dict[str, list[int]]
Parts = tuple[tuple[Any, tuple[int, ...]], ...]
"""Topic ids with numbers of partitions."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=SETTINGS) as cluster:
        yield cluster


class Talk:
    """Requests to one cluster, and the codes of its answers."""

    def __init__(self, bootstrap: str) -> None:
        self.asked = Asked(bootstrap_addresses(bootstrap))
        self.codes: Codes = {}
        self.topic = f"t-{uuid4().hex[:8]}"
        self.group = f"g-{uuid4().hex[:8]}"
        self.name = f"x-{uuid4().hex[:8]}"
        with Admin(bootstrap) as admin:
            admin.create_topic(self.topic, partitions=2)
        for address in bootstrap.split(","):
            one = AdminClient({"bootstrap.servers": address})
            eventually(lambda: self.topic in one.list_topics().topics, f"{address} has heard")  # noqa: B023

    def say(self, kind: CoordinatorKind, key: str, api: Api, version: int, build: Build) -> Any:
        def ask(coordinator: Any, keys: Any) -> dict[str, Any]:
            answer = self.asked.tell(coordinator.address, api, version, version, build)
            if MOVES & set(found := codes_of(answer)):
                raise of_code(found[0], None, "not yet")
            return {key: answer}

        answer = ask_coordinators(self.asked, kind, [key], ask, SYSTEM_CLOCK)[key]
        assert is_dataclass(answer), (api, key, answer)
        return answer

    def hear(self, what: str, answer: Any) -> None:
        assert what not in self.codes
        self.codes[what] = sorted(codes_of(answer))

    # Groups.

    def join(self, group: str, member_id: str = "", **more: Any) -> Any:
        def build(of: RequestDraft) -> Any:
            protocol = of.part("JoinGroupRequestProtocol", name="range", metadata=b"\0\0\0\0\0\0")
            told = {
                "session_timeout": timedelta(seconds=30),
                "rebalance_timeout": timedelta(seconds=30),
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": (protocol,),
                **more,
            }
            return of.request(group_id=group, member_id=member_id, **told)

        return self.say(GROUP, group, Api.JOIN_GROUP, 5, build)

    def sync(self, generation: int, member_id: str) -> Any:
        def build(of: RequestDraft) -> Any:
            share = of.part("SyncGroupRequestAssignment", member_id=member_id, assignment=b"x")
            return of.request(
                group_id=self.group, generation_id=generation, member_id=member_id,
                group_instance_id=None, assignments=(share,),
            )  # fmt: skip

        return self.say(GROUP, self.group, Api.SYNC_GROUP, 3, build)

    def heartbeat(self, generation: int, member_id: str) -> Any:
        return self.say(
            GROUP, self.group, Api.HEARTBEAT, 3,
            lambda of: of.request(
                group_id=self.group, generation_id=generation, member_id=member_id,
                group_instance_id=None,
            ),
        )  # fmt: skip

    def leave(self, member_id: str) -> Any:
        def build(of: RequestDraft) -> Any:
            who = of.part("MemberIdentity", member_id=member_id, group_instance_id=None)
            return of.request(group_id=self.group, members=(who,))

        return self.say(GROUP, self.group, Api.LEAVE_GROUP, 3, build)

    def commit(
        self,
        group: str,
        generation: int = -1,
        member_id: str = "",
        *,
        partition: int = 0,
        topic: str | None = None,
        note: str = "",
        offset: int = 1,
        version: int = 7,
    ) -> Any:
        def build(of: RequestDraft) -> Any:
            part = of.part(
                "OffsetCommitRequestPartition", partition_index=partition, committed_offset=offset,
                committed_leader_epoch=-1, committed_metadata=note,
            )  # fmt: skip
            named = of.part(
                "OffsetCommitRequestTopic", name=topic or self.topic, partitions=(part,)
            )
            return of.request(
                group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
                group_instance_id=None, topics=(named,),
            )  # fmt: skip

        return self.say(GROUP, group, Api.OFFSET_COMMIT, version, build)

    def consumer(self, member_id: str, epoch: int, owned: Parts | None = None) -> Any:
        """Send the heartbeat of a consumer: all it has to say in the first, then what it owns."""

        def build(of: RequestDraft) -> Any:
            told: dict[str, Any] = {"topic_partitions": None}
            if owned is not None:
                parts = (of.part("TopicPartitions", topic_id=t, partitions=n) for t, n in owned)
                told["topic_partitions"] = tuple(parts)
            if not epoch:
                told["rebalance_timeout"] = timedelta(seconds=60)
                told["subscribed_topic_names"] = (self.topic,)
            return of.request(
                group_id=self.group, member_id=member_id, member_epoch=epoch, **told
            )  # fmt: skip

        return self.say(GROUP, self.group, Api.CONSUMER_GROUP_HEARTBEAT, 1, build)

    def share(self, member_id: str, epoch: int, group: str = "", **more: Any) -> Any:
        """Send the heartbeat of a member of a share group."""

        def build(of: RequestDraft) -> Any:
            told = {"subscribed_topic_names": None if epoch else (self.topic,), **more}
            return of.request(
                group_id=self.group if group == "" else group, member_id=member_id,
                member_epoch=epoch, **told,
            )  # fmt: skip

        return self.say(GROUP, group or self.group, Api.SHARE_GROUP_HEARTBEAT, 1, build)

    def about(self, group: str, api: Api, version: int, **told: Any) -> Any:
        """Send a request of an administrator about one group."""
        return self.say(GROUP, group, api, version, lambda of: of.request(**told))

    def told(self, member_id: str, epoch: int, owned: Parts | None = None) -> tuple[int, Parts]:
        """Send heartbeats until one is answered with an assignment; return the epoch, too."""
        answer: Any = None

        def is_told() -> bool:
            nonlocal answer
            answer = self.consumer(member_id, epoch, owned)
            return answer.assignment is not None

        eventually(is_told, f"{member_id} is told what it reads")
        parts = answer.assignment.topic_partitions
        return int(answer.member_epoch), tuple((one.topic_id, one.partitions) for one in parts)

    def commit_in_transaction(
        self, producer: tuple[int, int], generation: int = -1, member_id: str = ""
    ) -> Any:
        def build(of: RequestDraft) -> Any:
            part = of.part(
                "TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=1,
                committed_leader_epoch=-1, committed_metadata="",
            )  # fmt: skip
            named = of.part("TxnOffsetCommitRequestTopic", name=self.topic, partitions=(part,))
            return of.request(
                transactional_id=self.name, group_id=self.group, producer_id=producer[0],
                producer_epoch=producer[1], generation_id=generation, member_id=member_id,
                group_instance_id=None, topics=(named,),
            )  # fmt: skip

        return self.say(GROUP, self.group, Api.TXN_OFFSET_COMMIT, 3, build)

    # Transactions.

    def init(self, name: str, timeout_ms: int = 60_000) -> Any:
        return self.say(
            TRANSACTION, name, Api.INIT_PRODUCER_ID, 3,
            lambda of: of.request(
                transactional_id=name, transaction_timeout=timedelta(milliseconds=timeout_ms),
                producer_id=-1, producer_epoch=-1,
            ),
        )  # fmt: skip

    def end(self, name: str, producer: tuple[int, int], version: int = 3) -> Any:
        return self.say(
            TRANSACTION, name, Api.END_TXN, version,
            lambda of: of.request(
                transactional_id=name, producer_id=producer[0], producer_epoch=producer[1],
                committed=True,
            ),
        )  # fmt: skip

    def add_offsets(self, name: str, producer: tuple[int, int]) -> Any:
        return self.say(
            TRANSACTION, name, Api.ADD_OFFSETS_TO_TXN, 3,
            lambda of: of.request(
                transactional_id=name, producer_id=producer[0], producer_epoch=producer[1],
                group_id=self.group,
            ),
        )  # fmt: skip

    def add(self, name: str, producer: tuple[int, int], *partitions: int, topic: str = "") -> Any:
        def build(of: RequestDraft) -> Any:
            named = of.part(
                "AddPartitionsToTxnTopic", name=topic or self.topic, partitions=partitions
            )
            return of.request(
                v3_and_below_transactional_id=name, v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1], v3_and_below_topics=(named,),
            )  # fmt: skip

        return self.say(TRANSACTION, name, Api.ADD_PARTITIONS_TO_TXN, 3, build)


def talk_of_groups(talk: Talk) -> None:
    for name in HOSTILE:
        talk.hear(f"join {name!r}", talk.join(name))
        talk.hear(f"commit {name!r}", talk.commit(name))
    talk.hear("generation of no group", talk.commit(talk.group, 3, "x"))
    for session_ms in (0, 5_999, 1_800_001):
        asked = timedelta(milliseconds=session_ms)
        talk.hear(f"session {session_ms}", talk.join(talk.group, session_timeout=asked))
    talk.hear("member of no group", talk.join(talk.group, "x"))
    talk.hear("no protocol", talk.join(talk.group, protocols=()))
    talk.hear("no protocol type", talk.join(talk.group, protocol_type=""))
    talk.hear("heartbeat of nobody", talk.heartbeat(1, "x"))
    talk.hear("sync of nobody", talk.sync(1, "x"))
    named = talk.join(talk.group).member_id
    joined = talk.join(talk.group, named)
    now = int(joined.generation_id)
    talk.hear("sync too late", talk.sync(now - 1, named))
    talk.hear("sync", talk.sync(now, named))
    for generation in (now - 1, now + 1, -1):
        talk.hear(f"heartbeat {generation - now}", talk.heartbeat(generation, named))
        talk.hear(f"commit {generation - now}", talk.commit(talk.group, generation, named))
    talk.hear("commit of a stranger", talk.commit(talk.group, now, "x"))
    talk.hear("commit of no member", talk.commit(talk.group))
    talk.hear("commit", talk.commit(talk.group, now, named))
    talk.hear("partition that is not", talk.commit(talk.group, now, named, partition=2))
    talk.hear("partition below none", talk.commit(talk.group, now, named, partition=-1))
    talk.hear("topic that is not", talk.commit(talk.group, now, named, topic="nobody's"))
    talk.hear("long note", talk.commit(talk.group, now, named, note="x" * 4_096))
    talk.hear("too long note", talk.commit(talk.group, now, named, note="x" * 4_097))
    talk.hear("offset below zero", talk.commit(talk.group, now, named, offset=-2))
    talk.hear("another type", talk.join(talk.group, named, protocol_type="connect"))
    talk.hear("stranger in a group", talk.join(talk.group, "x"))
    talk.hear("leave of a stranger", talk.leave("x"))
    talk.hear("heartbeat after all that", talk.heartbeat(now, named))
    talk.hear("leave", talk.leave(named))


def talk_of_consumers(talk: Talk) -> None:
    """A rebalance is under way: `a` has given up one of two partitions, and does not know it."""

    def commit(what: str, epoch: int, member_id: str, version: int = 9, partition: int = 0) -> None:
        answer = talk.commit(talk.group, epoch, member_id, partition=partition, version=version)
        talk.hear(f"{what} v{version}", answer)

    for version in (8, 9):
        commit("epoch of no group", 3, "x", version)
    talk.hear("heartbeat of no group", talk.consumer("a", 3, ()))
    talk.hear("join without the word on partitions", talk.consumer("a", 0))
    first, both = talk.told("a", 0, ())
    talk.consumer("b", 0, ())
    _, kept = talk.told("a", first)
    (kept_number,) = kept[0][1]
    lost = 1 - kept_number
    for what, number in (("kept", kept_number), ("to give up", lost)):
        commit(f"{what} before", first, "a", partition=number)
    second = int(talk.consumer("a", first, kept).member_epoch)
    assert (len(both[0][1]), second > first) == (2, True)
    for what, epoch in (("now", second), ("before", first), ("never", 0), ("later", second + 1)):
        commit(f"kept {what}, joined", epoch, "a", partition=kept_number)
        commit(f"given up {what}, joined", epoch, "a", partition=lost)
    commit("epoch that an older client sends", second, "a", 8, kept_number)
    commit("stranger", second, "x")
    commit("nobody", -1, "")
    commit("member without an epoch", -1, "a")
    began = talk.init(talk.name)
    mine = (int(began.producer_id), int(began.producer_epoch))
    talk.hear("offsets", talk.add_offsets(talk.name, mine))
    for what, epoch in (("later", second + 1), ("without an epoch", -1)):
        talk.hear(f"transaction {what}", talk.commit_in_transaction(mine, epoch, "a"))
    talk.hear("transaction of a stranger", talk.commit_in_transaction(mine, second, "x"))
    talk.hear("transaction of nobody", talk.commit_in_transaction(mine))
    talk.hear("end", talk.end(talk.name, mine))


def talk_of_shares(talk: Talk) -> None:
    classic, newer = f"{talk.group}-c", f"{talk.group}-n"
    talk.hear("epoch of no group", talk.share("m", 3))
    talk.hear("leaves no group", talk.share("m", -1))
    talk.hear("no member id", talk.share("", 0))
    talk.hear("blank group", talk.share("m", 0, " "))
    talk.hear("empty rack", talk.share("m", 0, rack_id=""))
    for names in (None, ()):
        talk.hear(f"subscribes to {names}", talk.share("m", 0, subscribed_topic_names=names))
    talk.hear("epoch below all", talk.share("m", -2))
    joined = talk.share("m", 0)
    talk.hear("joins", joined)
    epoch = int(joined.member_epoch)
    talk.hear("stays", talk.share("m", epoch))
    talk.hear("joins again", talk.share("m", 0))
    for off in (7, 70):
        talk.hear(f"epoch {off} beyond", talk.share("m", epoch + off))
    talk.hear("stranger", talk.share("x", epoch))
    talk.hear("stranger leaves", talk.share("x", -1))
    talk.hear("topic that is not", talk.share("m", 0, subscribed_topic_names=("nobody's",)))
    talk.hear("classic member", talk.join(talk.group))
    talk.hear("classic member again", talk.join(talk.group, "m"))
    talk.hear("classic heartbeat", talk.heartbeat(1, "m"))
    talk.hear("sync", talk.sync(1, "m"))
    talk.hear("consumer", talk.consumer("c", 0, ()))
    talk.hear("consumer stays", talk.consumer("m", epoch))
    talk.hear("commit", talk.commit(talk.group))
    talk.hear("commit of a member", talk.commit(talk.group, epoch, "m"))
    mine, quiet = (talk.group,), {"include_authorized_operations": False}
    described = talk.about(talk.group, Api.DESCRIBE_GROUPS, 6, groups=mine, **quiet)
    talk.hear("described as classic", described)
    talk.hear("deleted", talk.about(talk.group, Api.DELETE_GROUPS, 2, groups_names=mine))
    talk.join(classic)
    talk.commit(classic)
    talk.hear("in a classic group", talk.share("m", 0, classic))
    talk.hear("stays in a classic group", talk.share("m", 1, classic))
    group, talk.group = talk.group, newer
    talk.consumer("c", 0, ())
    talk.hear("in a consumer group", talk.share("m", 0))
    talk.hear("leaves a consumer group", talk.share("m", -1))
    talk.group = group
    for api in (Api.SHARE_GROUP_DESCRIBE, Api.CONSUMER_GROUP_DESCRIBE):
        for what, name in (("share", group), ("classic", classic), ("consumer", newer)):
            answer = talk.about(name, api, 1, group_ids=(name,), **quiet)
            talk.hear(f"{api.name} of a {what} group", answer)
        absent = f"{group}-x"
        answer = talk.about(absent, api, 1, group_ids=(absent,), **quiet)
        talk.hear(f"{api.name} of none", answer)
    talk.hear("leaves", talk.share("m", -1))
    talk.hear("leaves twice", talk.share("m", -1))


def talk_of_transactions(talk: Talk) -> None:
    nobody = (987_654_321, 0)
    talk.hear("init without a name", talk.init(""))
    for timeout_ms in (0, -1, 900_001):
        talk.hear(f"timeout {timeout_ms}", talk.init(talk.name, timeout_ms))
    talk.hear("end of an unknown id", talk.end(talk.name, nobody))
    talk.hear("add to an unknown id", talk.add(talk.name, nobody, 0))
    talk.hear("offsets of an unknown id", talk.add_offsets(talk.name, nobody))
    talk.hear("commit of an unknown id", talk.commit_in_transaction(nobody))
    first = talk.init(talk.name)
    mine = (int(first.producer_id), int(first.producer_epoch))
    later, other = (mine[0], mine[1] + 1), (mine[0] + 1_000_000, mine[1])
    for what, producer in (("later", later), ("other", other), ("below", (mine[0], -1))):
        for version in (1, 3):
            talk.hear(f"end {what} v{version}", talk.end(talk.name, producer, version))
        talk.hear(f"add {what}", talk.add(talk.name, producer, 0))
        talk.hear(f"offsets {what}", talk.add_offsets(talk.name, producer))
        if producer[1] >= 0:
            talk.hear(f"commit {what}", talk.commit_in_transaction(producer))
    talk.hear("end of nothing", talk.end(talk.name, mine))
    talk.hear("commit not added", talk.commit_in_transaction(mine))
    talk.hear("partition that is not", talk.add(talk.name, mine, 0, 7))
    talk.hear("topic that is not", talk.add(talk.name, mine, 0, topic="nobody's"))
    talk.hear("offsets", talk.add_offsets(talk.name, mine))
    talk.hear("offsets of a stranger", talk.commit_in_transaction(mine, 3, "x"))
    talk.hear("offsets of a generation", talk.commit_in_transaction(mine, 3))
    talk.hear("offsets of mine", talk.commit_in_transaction(mine))
    talk.hear("end", talk.end(talk.name, mine))


@pytest.mark.parametrize(
    "conversation", [talk_of_groups, talk_of_consumers, talk_of_shares, talk_of_transactions]
)
def test_wrong_requests_get_kafkas_error_codes(
    kafka: KafkaCluster, brokers: Brokers, conversation: Callable[[Talk], None]
) -> None:
    found: list[Codes] = []
    for bootstrap in (brokers.bootstrap, kafka.bootstrap):
        talk = Talk(bootstrap)
        conversation(talk)
        talk.asked.close()
        found.append(talk.codes)
    ours, theirs = found
    assert ours == theirs
