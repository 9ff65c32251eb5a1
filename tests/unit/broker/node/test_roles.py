"""The topics that a broker looks at for one image of the metadata."""

from __future__ import annotations

import pytest

from sparklog.broker.node.roles import RoleAssigner
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.core.types import PartitionId
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ReplicaCluster

TOPICS = 20


def created(number: int, topic_id: str) -> list[Record]:
    state = PartitionRecord(
        topic_id, 0, (1,), (1,), leader=1, leader_epoch=0, recovering=True, take_lead=True
    )
    return [TopicRecord(f"topic-{number}", topic_id), state]


def test_roles_look_at_changed_topics_only_when_an_image_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    apply_topic = RoleAssigner._apply_topic

    def counted(self: RoleAssigner, topic: Topic, before: Topic | None) -> None:
        looked_at.append(topic.name)
        apply_topic(self, topic, before)

    monkeypatch.setattr(RoleAssigner, "_apply_topic", counted)
    world = World()
    ids = [f"{number:022d}" for number in range(TOPICS)]

    async def scenario() -> None:
        cluster = ReplicaCluster(world)
        roles = (await cluster.start(1)).replicas.roles

        def applied(*records: Record) -> list[str]:
            looked_at.clear()
            image = cluster.metadata.image
            cluster.metadata.image = image.applied(records, image.end_offset + len(records))
            roles.apply(cluster.metadata.image)
            return list(looked_at)

        every = [record for n, topic_id in enumerate(ids) for record in created(n, topic_id)]
        assert len(applied(*every)) == TOPICS
        assert applied(ProducerIdsRecord(1, 0, 1_000)) == []
        assert applied(ConfigRecord("topic-7", "retention.ms", "1")) == ["topic-7"]
        assert applied(RemoveTopicRecord(ids[3])) == []
        assert set(roles.replicas) == {PartitionId(t, 0) for t in ids if t != ids[3]}
        # A topic of a deleted topic's name is a new topic, as its id differs.
        again = f"{TOPICS:022d}"
        assert applied(RemoveTopicRecord(ids[4]), *created(4, again)) == ["topic-4"]
        assert PartitionId(again, 0) in roles.replicas
        assert PartitionId(ids[4], 0) not in roles.replicas

    world.run(scenario())
