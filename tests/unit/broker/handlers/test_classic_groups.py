"""Groups on whole brokers, in messages of every version: members, offsets, hostile input."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.coordinator.internal_topics import GROUPS_TOPIC, partition_for
from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.handler_requests import create_topics, delete_topics
from tests.harness.live_cluster import RETRIED, LiveCluster

GROUP = "group"
NEWEST = -1
QUICK = {"group_initial_rebalance_delay_ms": "100"}
READS_T = bytes.fromhex("000000000001000174ffffffff")


def versions(api: Api) -> range:
    return range(APIS[api].min, APIS[api].max + 1)


@dataclass
class GroupClient:
    """Speaks for members and administrators; finds the coordinator, and again when it moved."""

    cluster: LiveCluster
    group: str = GROUP

    async def find(self, version: int = 3, kind: int = 0) -> Any:
        request = build_request(
            Api.FIND_COORDINATOR,
            version,
            key=self.group,
            key_type=kind,
            coordinator_keys=(self.group,),
        )
        answer = await self.cluster.ask(next(iter(self.cluster.nodes)), request)
        return answer.coordinators[0] if version >= 4 else answer

    async def ask(self, api: Api, version: int, code_of: Any = None, **values: Any) -> Any:
        """Ask the coordinator, and retry until it answers."""
        version = APIS[api].max if version == NEWEST else version
        request = build_request(api, version, **values)
        async with asyncio.timeout(30):
            while True:
                found = await self.find()
                if found.error_code is ErrorCode.none and int(found.node_id) in self.cluster.nodes:
                    answer = await self.cluster.ask(int(found.node_id), request)
                    code = answer.error_code if code_of is None else code_of(answer)
                    if code not in RETRIED:
                        return answer
                await asyncio.sleep(0.05)

    async def join(self, member_id: str = "", version: int = NEWEST, **more: Any) -> Any:
        api = Api.JOIN_GROUP
        version = APIS[api].max if version == NEWEST else version
        part = build_request_part(
            api, version, "JoinGroupRequestProtocol", name="range", metadata=READS_T
        )
        values: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=60),
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": (part,),
            "reason": None,
        }
        return await self.ask(api, version, **{**values, **more})

    async def sync(
        self, member_id: str, generation: int, share: bytes = b"", version: int = NEWEST
    ) -> Any:
        api = Api.SYNC_GROUP
        version = APIS[api].max if version == NEWEST else version
        part = build_request_part(
            api, version, "SyncGroupRequestAssignment", member_id=member_id, assignment=share
        )
        return await self.ask(
            api,
            version,
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(part,),
        )

    async def heartbeat(self, member_id: str, generation: int, version: int = NEWEST) -> ErrorCode:
        answer = await self.ask(
            Api.HEARTBEAT,
            version,
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
        )
        return ErrorCode(answer.error_code)

    async def leave(self, member_id: str, version: int = NEWEST) -> ErrorCode:
        api = Api.LEAVE_GROUP
        version = APIS[api].max if version == NEWEST else version
        values: dict[str, Any] = {"group_id": self.group, "member_id": member_id}
        if version >= 3:
            del values["member_id"]
            part = build_request_part(
                api,
                version,
                "MemberIdentity",
                member_id=member_id,
                group_instance_id=None,
                reason=None,
            )
            values["members"] = (part,)
        answer = await self.ask(api, version, **values)
        if version < 3 or answer.error_code is not ErrorCode.none:
            return ErrorCode(answer.error_code)
        return ErrorCode(answer.members[0].error_code)

    async def member(self, version: int = NEWEST) -> tuple[str, int]:
        """Be the only member of the group; return its id and generation."""
        told = await self.join(version=version)
        if told.error_code is ErrorCode.member_id_required:
            told = await self.join(told.member_id, version)
        assert told.error_code is ErrorCode.none, told
        assert told.leader == told.member_id
        synced = await self.sync(told.member_id, int(told.generation_id), b"mine")
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
        return told.member_id, int(told.generation_id)

    async def commit(
        self,
        *offsets: tuple[int, int],
        topic: str = "t",
        member: tuple[str, int] = ("", -1),
        version: int = 8,
        note: str = "",
        topic_id: Any = None,
    ) -> list[ErrorCode]:
        api = Api.OFFSET_COMMIT
        parts = tuple(
            build_request_part(
                api,
                version,
                "OffsetCommitRequestPartition",
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=4,
                committed_metadata=note,
            )
            for partition, offset in offsets
        )
        names = {"topic_id": topic_id} if version >= 10 else {"name": topic}
        asked = build_request_part(
            api, version, "OffsetCommitRequestTopic", partitions=parts, **names
        )
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": member[1],
            "member_id": member[0],
            "retention_time": timedelta(milliseconds=-1),
            "group_instance_id": None,
            "topics": (asked,),
        }
        answer = await self.ask(
            api, version, lambda a: a.topics[0].partitions[0].error_code, **values
        )
        return [ErrorCode(p.error_code) for p in answer.topics[0].partitions]

    async def committed(
        self, *partitions: int, topic: str = "t", version: int = 7, topic_id: Any = None
    ) -> list[tuple[int, ErrorCode]]:
        api = Api.OFFSET_FETCH
        many = version >= 8
        kind = "OffsetFetchRequestTopics" if many else "OffsetFetchRequestTopic"
        names = {"topic_id": topic_id} if version >= 10 else {"name": topic}
        asked = (build_request_part(api, version, kind, partition_indexes=partitions, **names),)
        if many:
            group = build_request_part(
                api,
                version,
                "OffsetFetchRequestGroup",
                group_id=self.group,
                topics=asked,
                member_id=None,
                member_epoch=-1,
            )
            answer = await self.ask(
                api, version, lambda a: a.groups[0].error_code, groups=(group,),
                require_stable=True,
            )  # fmt: skip
            topics = answer.groups[0].topics
        else:

            def code_of(answer: Any) -> ErrorCode:
                return ErrorCode(answer.topics[0].partitions[0].error_code)

            values: dict[str, Any] = {"require_stable": True} if version == 7 else {}
            answer = await self.ask(
                api, version, code_of, group_id=self.group, topics=asked, **values
            )
            topics = answer.topics
        return [(int(p.committed_offset), ErrorCode(p.error_code)) for p in topics[0].partitions]

    async def described(self, version: int = NEWEST) -> Any:
        answer = await self.ask(
            Api.DESCRIBE_GROUPS,
            version,
            lambda a: a.groups[0].error_code,
            groups=(self.group,),
            include_authorized_operations=True,
        )
        return answer.groups[0]

    async def listed(self, version: int = NEWEST, **filters: Any) -> dict[str, Any]:
        values = {"states_filter": (), "types_filter": (), **filters}
        names = {3: (), 4: ("states_filter",), 5: ("states_filter", "types_filter")}
        kept = {k: values[k] for k in names.get(APIS[Api.LIST_GROUPS].max, ()) if version == NEWEST}
        answer = await self.ask(Api.LIST_GROUPS, version, **kept)
        return {g.group_id: g for g in answer.groups}

    async def delete(self, version: int = NEWEST) -> ErrorCode:
        answer = await self.ask(
            Api.DELETE_GROUPS,
            version,
            lambda a: a.results[0].error_code,
            groups_names=(self.group,),
        )
        return ErrorCode(answer.results[0].error_code)

    async def delete_offset(self, partition: int, topic: str = "t") -> tuple[ErrorCode, Any]:
        api = Api.OFFSET_DELETE
        part = build_request_part(api, 0, "OffsetDeleteRequestPartition", partition_index=partition)
        asked = build_request_part(
            api, 0, "OffsetDeleteRequestTopic", name=topic, partitions=(part,)
        )
        answer = await self.ask(api, 0, group_id=self.group, topics=(asked,))
        codes = [ErrorCode(p.error_code) for t in answer.topics for p in t.partitions]
        return ErrorCode(answer.error_code), codes[0] if codes else None


def tell(story: Any, brokers: int = 1, **settings: str) -> None:
    """Run a story about a group on a cluster with topic `t` of two partitions."""
    cluster = LiveCluster(1, **{**QUICK, **settings})

    async def run() -> None:
        await cluster.begin(brokers, partitions=2)
        await story(GroupClient(cluster))

    cluster.run(run())


def test_a_coordinator_is_found_in_every_version() -> None:
    async def story(client: GroupClient) -> None:
        await client.ask(Api.HEARTBEAT, 0, group_id=GROUP, generation_id=1, member_id="x")
        places = set()
        for version in versions(Api.FIND_COORDINATOR):
            found = await client.find(version)
            assert found.error_code is ErrorCode.none
            places.add((int(found.node_id), found.host, int(found.port)))
        assert places == {(1, "b1", 9092)}
        for version in (3, 6):
            share = await client.find(version, kind=2)
            assert (share.error_code, share.node_id) == (ErrorCode.invalid_request, -1)
        image = client.cluster.nodes[1].node.metadata.image
        assert image.topics[GROUPS_TOPIC].configs["cleanup.policy"] == "compact"

    tell(story)


def test_members_of_every_version_join_commit_and_leave() -> None:
    async def story(client: GroupClient) -> None:
        for version in versions(Api.JOIN_GROUP):
            client.group = f"joins-{version}"
            member_id, generation = await client.member(version)

            again = await client.sync(
                member_id, generation, version=min(version, APIS[Api.SYNC_GROUP].max)
            )
            assert again.assignment == b"mine"
            version_of = min(version, APIS[Api.HEARTBEAT].max)
            assert await client.heartbeat(member_id, generation, version_of) is ErrorCode.none
            described = await client.described(min(version, APIS[Api.DESCRIBE_GROUPS].max))
            assert (described.group_state, described.protocol_data) == ("Stable", "range")
            assert described.members[0].member_assignment == b"mine"
            left = await client.leave(member_id, min(version, APIS[Api.LEAVE_GROUP].max))
            assert left is ErrorCode.none
            assert (await client.described()).group_state == "Empty"

    tell(story)


def test_offsets_of_every_version_are_found_by_every_version() -> None:
    async def story(client: GroupClient) -> None:
        image = client.cluster.nodes[1].node.metadata.image
        uuid = uuid_of(image.topics["t"].topic_id)
        for version in versions(Api.OFFSET_COMMIT):
            codes = await client.commit((0, version), (1, 9), version=version, topic_id=uuid)
            assert codes == [ErrorCode.none] * 2
            for reader in versions(Api.OFFSET_FETCH):
                found = await client.committed(0, 1, 7, version=reader, topic_id=uuid)
                assert [offset for offset, _ in found] == [version, 9, -1]

    tell(story)


def test_commits_for_missing_topics_are_rejected_one_by_one() -> None:
    async def story(client: GroupClient) -> None:
        unknown = ErrorCode.unknown_topic_or_partition
        assert await client.commit((0, 1), topic="nope") == [unknown]
        assert await client.commit((0, 1), (2, 1), (-1, 1)) == [ErrorCode.none, unknown, unknown]
        no_id = [ErrorCode.unknown_topic_id]
        assert await client.commit((0, 1), version=10, topic_id=uuid_of("A" * 22)) == no_id
        found = await client.committed(0, version=10, topic_id=uuid_of("A" * 22))
        assert found == [(-1, ErrorCode.unknown_topic_id)]
        too_long = await client.commit((0, 5), note="x" * 4097)
        assert too_long == [ErrorCode.offset_metadata_too_large]
        assert await client.committed(0) == [(1, ErrorCode.none)]

    tell(story)


@pytest.mark.parametrize("name", ["", " ", "../../x", "a/b\0c", "ü" * 200, "%s{}", "-" * 249])
def test_a_hostile_group_name_is_only_a_name(name: str) -> None:
    async def story(client: GroupClient) -> None:
        client.group = name
        assert await client.commit((0, 3)) == [ErrorCode.none]
        assert await client.committed(0) == [(3, ErrorCode.none)]
        joined = await client.join()
        named = ErrorCode.member_id_required if name else ErrorCode.invalid_group_id
        assert joined.error_code is named
        assert name in await client.listed()
        deleted = await client.delete()
        assert deleted is ErrorCode.none
        assert name not in await client.listed()

    tell(story)


def test_a_long_client_id_still_makes_a_member() -> None:
    async def story(client: GroupClient) -> None:
        long = "x" * 32_767
        told = await client.join(group_instance_id=long)
        assert told.error_code is ErrorCode.none
        assert len(told.member_id) < 2_000
        left = await client.leave(told.member_id)
        assert left is ErrorCode.none

    tell(story)


def test_members_that_are_none_are_refused() -> None:
    async def story(client: GroupClient) -> None:
        member_id, generation = await client.member()
        stranger = ErrorCode.unknown_member_id
        assert await client.heartbeat("x", generation) is stranger
        assert await client.heartbeat(member_id, generation + 1) is ErrorCode.illegal_generation
        assert (await client.sync("x", generation)).error_code is stranger
        stale = await client.sync(member_id, generation - 1)
        assert stale.error_code is ErrorCode.illegal_generation
        assert await client.leave("x") is stranger
        assert await client.leave("x", 2) is stranger
        assert await client.commit((0, 1), member=("x", generation)) == [stranger]
        assert await client.commit((0, 1)) == [stranger]
        stale_commit = await client.commit((0, 1), member=(member_id, generation - 1))
        assert stale_commit == [ErrorCode.illegal_generation]
        short = await client.join(session_timeout=timedelta(milliseconds=5_999))
        assert short.error_code is ErrorCode.invalid_session_timeout
        assert (await client.join("x")).error_code is stranger
        assert await client.delete() is ErrorCode.non_empty_group
        assert await client.delete_offset(0) == (
            ErrorCode.none,
            ErrorCode.group_subscribed_to_topic,
        )
        assert await client.heartbeat(member_id, generation) is ErrorCode.none
        await client.leave(member_id)
        assert await client.delete_offset(0) == (ErrorCode.none, ErrorCode.none)
        assert (await client.delete_offset(9))[1] is ErrorCode.unknown_topic_or_partition
        assert await client.delete() is ErrorCode.none
        assert await client.delete() is ErrorCode.group_id_not_found
        assert (await client.delete_offset(0))[0] is ErrorCode.group_id_not_found
        gone = await client.described()
        assert (gone.group_state, gone.error_code) == ("Dead", ErrorCode.group_id_not_found)
        assert (await client.described(5)).error_code is ErrorCode.none

    tell(story)


def test_groups_are_listed_by_state_and_type() -> None:
    async def story(client: GroupClient) -> None:
        await client.member()
        client.group = "simple"
        await client.commit((0, 1))
        listed = await client.listed()
        assert {g: (v.group_state, v.group_type) for g, v in listed.items()} == {
            GROUP: ("Stable", "classic"),
            "simple": ("Empty", "classic"),
        }
        assert set(await client.listed(states_filter=("STABLE",))) == {GROUP}
        assert set(await client.listed(types_filter=("consumer",))) == set()
        assert set(await client.listed(types_filter=("Classic",))) == {GROUP, "simple"}
        assert set(await client.listed(0)) == {GROUP, "simple"}

    tell(story)


def test_another_broker_sends_clients_to_the_coordinator() -> None:
    async def story(client: GroupClient) -> None:
        await client.commit((0, 1))
        owner = await client.cluster.leader(GROUPS_TOPIC, partition_for(GROUP, 2))
        request = build_request(
            Api.HEARTBEAT, 4, group_id=GROUP, generation_id=1, member_id="", group_instance_id=None
        )
        answer = await client.cluster.ask(3 - owner, request)
        assert answer.error_code is ErrorCode.not_coordinator

    tell(story, brokers=2)


def test_group_continues_after_its_coordinator_is_killed() -> None:
    async def story(client: GroupClient) -> None:
        member_id, generation = await client.member()
        for offset in range(20):
            await client.commit((0, offset), member=(member_id, generation))
        client.cluster.kill(await client.cluster.leader(GROUPS_TOPIC, partition_for(GROUP, 2)))
        began_s = asyncio.get_running_loop().time()
        assert await client.heartbeat(member_id, generation) is ErrorCode.none
        assert asyncio.get_running_loop().time() - began_s < 4.0
        assert await client.committed(0) == [(19, ErrorCode.none)]
        done = await client.commit((0, 20), member=(member_id, generation))
        assert done == [ErrorCode.none]
        described = await client.described()
        assert [m.member_id for m in described.members] == [member_id]

    tell(story, brokers=3)


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    async def story(client: GroupClient) -> None:
        await client.commit((0, 5))
        await client.cluster.ask(1, delete_topics("t"))
        await asyncio.sleep(1.0)
        assert await client.committed(0) == [(-1, ErrorCode.none)]

    tell(story)


def test_offsets_of_a_deleted_topic_are_not_shown_for_its_namesake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when its coordinator could not be had to forget them."""
    monkeypatch.setattr(GroupCoordinator, "apply", lambda *_: None)

    async def story(client: GroupClient) -> None:
        await client.commit((0, 5))
        await client.cluster.ask(1, delete_topics("t"))
        assert await client.committed(0) == [(5, ErrorCode.none)]
        await client.cluster.ask(1, create_topics("t"))
        assert await client.committed(0) == [(-1, ErrorCode.none)]
        await client.commit((0, 2))
        assert await client.committed(0) == [(2, ErrorCode.none)]

    tell(story)


def test_commit_of_too_many_offsets_is_rejected_and_changes_nothing() -> None:
    async def story(client: GroupClient) -> None:
        await client.commit((1, 7))
        refused = await client.commit(*((0, n) for n in range(600)), note="x" * 4_000)
        assert set(refused) == {ErrorCode.invalid_commit_offset_size}
        assert await client.committed(0, 1) == [(-1, ErrorCode.none), (7, ErrorCode.none)]

    tell(story)
