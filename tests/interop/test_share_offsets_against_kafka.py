"""Offsets of share groups: brokers answer administrators with the codes of a real Kafka.

Three answers differ on purpose, and are not compared. Kafka never answers about a partition that
does not exist, knows of no unknown topic when it shows offsets, and accepts offsets below zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from sparklog.client.connections import RequestDraft
from sparklog.protocol.api_keys import Api
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.interop.test_refusals_against_kafka import GROUP, SETTINGS, Codes, Talk
from tests.peers.kafka import KafkaCluster


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=SETTINGS) as cluster:
        yield cluster


class ShareOffsetTalk(Talk):
    """Requests about the offsets of share groups."""

    def share_offsets(self, group: str, topics: Any) -> Any:
        """Ask for offsets of a share group: of some partitions, or of all."""

        def build(of: RequestDraft) -> Any:
            kind = "DescribeShareGroupOffsetsRequest"
            named = topics and tuple(
                of.part(f"{kind}Topic", topic_name=name, partitions=parts) for name, parts in topics
            )
            return of.request(groups=(of.part(f"{kind}Group", group_id=group, topics=named),))

        return self.say(GROUP, group, Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, build)

    def alter_share(self, group: str, offsets: Any) -> Any:
        """Set start offsets of a share group."""

        def build(of: RequestDraft) -> Any:
            kind = "AlterShareGroupOffsetsRequest"
            topics = tuple(
                of.part(
                    f"{kind}Topic",
                    topic_name=name,
                    partitions=(
                        of.part(f"{kind}Partition", partition_index=number, start_offset=at),
                    ),
                )
                for name, number, at in offsets
            )
            return of.request(group_id=group, topics=topics)

        return self.say(GROUP, group, Api.ALTER_SHARE_GROUP_OFFSETS, 0, build)

    def delete_share(self, group: str, names: tuple[str, ...]) -> Any:
        """Delete offsets of topics of a share group."""

        def build(of: RequestDraft) -> Any:
            kind = "DeleteShareGroupOffsetsRequestTopic"
            topics = tuple(of.part(kind, topic_name=name) for name in names)
            return of.request(group_id=group, topics=topics)

        return self.say(GROUP, group, Api.DELETE_SHARE_GROUP_OFFSETS, 0, build)


def talk_of_share_offsets(talk: ShareOffsetTalk) -> None:
    classic, group = f"{talk.group}-c", talk.group
    asked = {"all": None, "one": ((talk.topic, (0,)),), "no topics": ()}
    altered = {
        "one": ((talk.topic, 0, 0),),
        "no partition": ((talk.topic, 5, 0), (talk.topic, 1, 0)),
        "no topic": (("nobody's", 0, 0), (talk.topic, 1, 0)),
        "beyond the end": ((talk.topic, 0, 500),),
        "none": (),
    }
    deleted = {"one": (talk.topic,), "no topic": ("nobody's",), "none": ()}
    talk.join(classic)
    talk.commit(classic)

    def hear_all(what: str, name: str) -> None:
        for kind, topics in asked.items():
            talk.hear(f"{what} shown {kind}", talk.share_offsets(name, topics))
        for kind, names in deleted.items():
            talk.hear(f"{what} deleted {kind}", talk.delete_share(name, names))
        for kind, changes in altered.items():
            talk.hear(f"{what} altered {kind}", talk.alter_share(name, changes))

    hear_all("of no group", f"{group}-x")
    hear_all("of a group without members ever", f"{group}-x")
    hear_all("of a classic group", classic)
    epoch = int(talk.share("m", 0).member_epoch)

    def is_assigned() -> bool:
        nonlocal epoch
        answer = talk.share("m", epoch)
        epoch = int(answer.member_epoch)
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    eventually(is_assigned, "a member has partitions")
    hear_all("with a member", group)
    talk.share("m", -1)
    hear_all("without members", group)
    hear_all("again", group)


def test_offsets_of_share_groups_get_kafkas_error_codes(
    kafka: KafkaCluster, brokers: Brokers
) -> None:
    found: list[Codes] = []
    for bootstrap in (brokers.bootstrap, kafka.bootstrap):
        talk = ShareOffsetTalk(bootstrap)
        talk_of_share_offsets(talk)
        talk.asked.close()
        found.append(talk.codes)
    ours, theirs = found
    assert ours == theirs
