"""The registry: several logs create, change and delete topics on one root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.metadata import changes, snapshot
from sparklog.cluster.metadata import records as codec
from sparklog.cluster.metadata.image import Broker, Controller, MetadataImage, PartitionState, Topic
from sparklog.cluster.metadata.records import (
    BROKER_RESOURCE,
    EVERY_BROKER,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerIdsRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerChangeRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    HeartbeatRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicAlreadyExists,
    TopicDeleted,
    UnknownTopicOrPartition,
)
from sparklog.core.topic_names import CLOSED_TOPICS
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionLayout
from sparklog.security.acls import checked_binding
from sparklog.security.principal import ANONYMOUS
from sparklog.security.sasl.credentials import ScramCredential, ScramMechanism
from sparklog.security.sasl.delegation_tokens import DelegationToken
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import batch
from tests.harness.newer_metadata import spelled, stored


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("registry")


def test_topic_is_visible_to_other_logs_on_the_root(store: MemoryStore) -> None:
    made = Log(store).create_topic("flights", 3, {"retention.ms": "1000"})
    seen = Log(store).topic("flights")
    assert seen == made
    assert seen.partitions == 3
    assert seen.configs == {"retention.ms": "1000"}


def test_recreated_topic_shares_nothing_with_the_old_one(store: MemoryStore) -> None:
    log, other = Log(store), Log(store)
    first = log.create_topic("flights", 1)
    log.partition("flights", 0).append([batch([b"old"])])
    assert other.partition("flights", 0).view().end_offset == 1
    log.delete_topic("flights")
    with pytest.raises(UnknownTopicOrPartition, match="sparklog topics --create --topic flights"):
        other.topic("flights")
    second = other.create_topic("flights", 1)
    assert second.topic_id != first.topic_id
    assert log.partition("flights", 0).view().end_offset == 0
    left = [i.key for i in store.list("topics/flights~") if first.topic_id in i.key]
    assert len(left) == 1
    assert "/0/manifest/" in left[0]


@pytest.mark.parametrize("absorbed", [False, True])
def test_stale_writer_fails_after_the_topic_was_deleted(store: MemoryStore, absorbed: bool) -> None:
    log, other, late = Log(store), Log(store), Log(store)
    log.create_topic("flights", 2)
    log.partition("flights", 0).append([batch([b"old"])])
    stale, never_looked = other.partition("flights", 0), late.partition("flights", 1)
    stale.append([batch([b"mine"])])
    if absorbed:
        stale.absorb_tail()
    log.delete_topic("flights")
    for handle in (stale, never_looked, stale):
        with pytest.raises(TopicDeleted, match="look it up again"):
            handle.append([batch([b"nobody would read this"])])
        with pytest.raises(TopicDeleted):
            handle.view()
    with pytest.raises(UnknownTopicOrPartition):
        other.topic("flights")


def test_damaged_topic_can_be_deleted(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("flights", 1)
    partition = log.partition("flights", 0)
    partition.append([batch([b"one"])])
    key = partition.layout.key(partition.layout.chain_name(0))
    store.delete(key)
    store.put(key, b"not a segment")
    Log(store).delete_topic("flights")
    with pytest.raises(TopicDeleted):
        partition.append([batch([b"two"])])


def test_partitions_grow_and_never_shrink(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("t", 2)
    assert log.add_partitions("t", 5).partitions == 5
    for total in (5, 4, 0):
        with pytest.raises(InvalidPartitions):
            log.add_partitions("t", total)
    assert Log(store).topic("t").partitions == 5
    with pytest.raises(UnknownTopicOrPartition, match="partitions=5"):
        log.partition("t", 5)


def test_invalid_requests_raise_clear_errors(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("a.b", 1)
    with pytest.raises(TopicAlreadyExists, match=r"topic=a\.b"):
        log.create_topic("a.b", 1)
    with pytest.raises(InvalidTopic, match=r"existing=a\.b"):
        log.create_topic("a_b", 1)
    with pytest.raises(InvalidTopic):
        log.create_topic("a b", 1)
    with pytest.raises(InvalidPartitions):
        log.create_topic("c", 0)
    with pytest.raises(InvalidReplicationFactor, match="replication factor"):
        log.create_topic("c", 1, replication_factor=0)
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        log.create_topic("c", 1, {"retention.mss": "1"})
    with pytest.raises(InvalidConfig):
        log.alter_configs("a.b", {"retention.ms": "soon"})
    assert list(Log(store).topics()) == ["a.b"]


def test_settings_are_set_and_removed(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("t", 1, {"retention.ms": "5", "compression.type": "zstd"})
    log.alter_configs("t", {"retention.bytes": "7"}, remove=["retention.ms"])
    assert Log(store).topic("t").configs == {"compression.type": "zstd", "retention.bytes": "7"}
    log.partition("t", 0).append([batch([b"x" * 1000])])
    (entry,) = log.partition("t", 0).view().entries
    assert log.partition("t", 0).config.codec == "zstd"
    assert entry.size_bytes < 3000


def test_topic_name_is_created_once_in_a_race(store: MemoryStore) -> None:
    def create(_: int) -> str:
        try:
            return Log(store).create_topic("wanted", 1).topic_id
        except TopicAlreadyExists:
            return ""

    with ThreadPoolExecutor(8) as pool:
        ids = [i for i in pool.map(create, range(24)) if i]
    assert ids == [Log(store).topic("wanted").topic_id]


def test_snapshot_bounds_the_replay_and_is_optional(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_EVERY", 4)
    log = Log(store)
    for i in range(5):
        log.create_topic(f"t{i}", 2)
    layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
    snapshots = [i.key for i in store.list(layout.snapshot_prefix)]
    assert snapshots
    expected = log.topics()
    assert Log(store).topics() == expected
    for key in snapshots:
        store.put(key, store.get(key).replace(b"t1", b"tX"))
    assert Log(store).topics() == expected


def test_longest_legal_topic_name_fits_a_file_system(tmp_path: Path) -> None:
    with open_log(str(tmp_path)) as log:
        longest = ["x" * 248 + end for end in "ab"]
        for name in longest:
            log.create_topic(name, 1)
            log.partition(name, 0).append([batch([name.encode()])])
        for name in longest:
            assert log.partition(name, 0).view().end_offset == 1


def test_topic_uses_cluster_defaults_where_it_sets_nothing(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("before", 1, {"retention.ms": "5"})
    log.alter_topic_defaults({"log.retention.ms": "7", "compression.type": "zstd"})
    log.create_topic("after", 1)
    for reader in (log, Log(store)):
        assert reader.topic_defaults() == {"log.retention.ms": "7", "compression.type": "zstd"}
        assert reader.topic("before").settings == {"retention.ms": "5", "compression.type": "zstd"}
        assert reader.topic("after").settings == {"retention.ms": "7", "compression.type": "zstd"}
        assert reader.topic("after").configs == {}
        assert reader.partition("after", 0).config.codec == "zstd"
    log.alter_topic_defaults(remove=["compression.type", "log.retention.ms"])
    assert Log(store).topic("after").settings == {}
    assert Log(store).partition("after", 0).config.codec == "lz4"


def test_snapshot_keeps_the_defaults_of_all_topics(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_EVERY", 2)
    log = Log(store)
    log.alter_topic_defaults({"min.insync.replicas": "2"})
    for name in "abc":
        log.create_topic(name, 1)
    layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
    assert list(store.list(layout.snapshot_prefix))
    assert Log(store).topics() == log.topics()
    assert Log(store).topic("a").settings == {"min.insync.replicas": "2"}


def test_default_is_rejected_when_a_topic_contradicts_it(
    store: MemoryStore,
) -> None:
    log = Log(store)
    log.create_topic("t", 1, {"max.compaction.lag.ms": "10"})
    with pytest.raises(InvalidConfig, match="topic=t "):
        log.alter_topic_defaults({"log.cleaner.min.compaction.lag.ms": "11"})
    log.alter_topic_defaults({"log.cleaner.min.compaction.lag.ms": "10"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        log.alter_configs("t", {"max.compaction.lag.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        log.create_topic("u", 1, {"max.compaction.lag.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"log\.retention\.ms"):
        log.alter_topic_defaults({"retention.ms": "1"})
    assert log.topic_defaults() == {"log.cleaner.min.compaction.lag.ms": "10"}


def test_snapshot_keeps_group_settings() -> None:
    name = "consumer.session.timeout.ms"
    broker = parse_broker_configs({})
    image = MetadataImage().applied(
        changes.alter_group_configs(MetadataImage(), "g", broker, {name: "50000"}, ()), 1
    )
    assert image.group_configs == {"g": {name: "50000"}}
    assert snapshot.from_document(snapshot.to_document(image), 1) == image
    gone = changes.alter_group_configs(image, "g", broker, {}, [name])
    assert image.applied(gone, 2).group_configs == {}
    assert changes.alter_group_configs(image, "g", broker, {name: "50000"}, ()) == []


def test_snapshot_keeps_the_whole_image() -> None:
    state = PartitionState((1, 2), (1,), 1, 3, 4, True, ("1-a",), (2,), (1,), 2, True)
    defaults = {"retention.ms": "7"}
    image = MetadataImage(
        9,
        {"t": Topic("t", "A" * 22, (state,), {"retention.bytes": "5"}, 2, defaults, "User:a")},
        {"A" * 22: "t"},
        {
            1: Broker(
                1,
                "a",
                "localhost",
                9092,
                "r",
                3,
                fenced=True,
                shutting_down=True,
                endpoints=(BrokerEndpoint("EXTERNAL", "SASL_SSL", "kafka.example", 9094),),
                level=2,
            )
        },
        Controller(1, "a", 4),
        {EVERY_BROKER: {"log.retention.ms": "7"}},
        1000,
        "B" * 22,
        {"g": {"consumer.session.timeout.ms": "50000"}},
        {(("client-id", None), ("user", "u")): {"producer_byte_rate": 1024.0}},
        heartbeats={1: 8},
        cluster_secret="5" * 32,
        acls={"i": checked_binding(2, "t", 3, "User:a", "*", 3, 3)},
        scram_credentials={
            "a": {ScramMechanism.SHA_512: ScramCredential(b"\0salt", b"stored", b"server", 4096)}
        },
        tokens={"id": DelegationToken("id", ANONYMOUS, ANONYMOUS, (ANONYMOUS,), 1, 3, 2)},
        features={"sparklog.version": 2},
        broker_ids={"blue": BrokerIdsRecord("blue", 1, 3)},
    )
    document = json.loads(json.dumps(snapshot.to_document(image)))
    assert snapshot.from_document(document, 9) == image
    # A new field of an image must be in its snapshot, except `strange`, which concerns this
    # version.
    parts: list[MetadataImage | Topic | Broker | PartitionState]
    parts = [image, *image.topics.values(), *image.brokers.values(), state]
    for part in parts:
        for known in fields(part):
            assert getattr(part, known.name) or known.name == "strange", known.name


def test_newer_settings_are_kept_and_have_no_effect(store: MemoryStore) -> None:
    log = Log(store)
    log.create_topic("t", 1, {"retention.ms": "5"})
    own = ConfigRecord("t", "from.tomorrow", "7")
    stored(log, spelled(own, ConfigRecord("", "log.from.tomorrow", "8", BROKER_RESOURCE)))
    log.alter_configs("t", {"retention.ms": "6"})
    log.alter_topic_defaults({"log.retention.bytes": "9"})
    seen = Log(store)
    assert seen.topic("t").configs == {"from.tomorrow": "7", "retention.ms": "6"}
    assert seen.topic_defaults() == {"log.from.tomorrow": "8", "log.retention.bytes": "9"}
    seen.partition("t", 0).append([batch([b"x"])])
    # A client that replaces all settings returns the ones that it read.
    log.alter_configs("t", {"from.tomorrow": "7", "retention.ms": "6"})
    for change in ({"from.tomorrow": "8"}, {"from.the.day.after": "1"}):
        with pytest.raises(InvalidConfig, match="unknown setting"):
            log.alter_configs("t", change)
    with pytest.raises(InvalidConfig, match="unknown setting"):
        log.alter_topic_defaults({"log.from.tomorrow": "9"})
    log.alter_configs("t", remove=["from.tomorrow"])
    log.alter_topic_defaults(remove=["log.from.tomorrow"])
    assert Log(store).topic("t").configs == {"retention.ms": "6"}
    assert Log(store).topic_defaults() == {"log.retention.bytes": "9"}


NEWER = {"compression.type": "brotli", "min.compaction.lag.ms": "auto"}
"""Known settings with unknown values."""


@pytest.fixture
def newer(store: MemoryStore) -> Log:
    """Return a log with a topic and defaults of a newer version, and another topic."""
    log = Log(store)
    log.create_topic("t", 1, {"retention.ms": "5"})
    log.create_topic("beside", 1)
    stored(log, spelled(*(ConfigRecord("t", name, text) for name, text in NEWER.items())))
    stored(log, spelled(ConfigRecord("", "log.segment.bytes", "fitting", BROKER_RESOURCE)))
    return Log(store)


def test_newer_values_do_not_affect_reads_and_writes(newer: Log) -> None:
    newer.partition("t", 0).append([batch([b"x"])])
    assert newer.partition("t", 0).readable().end_offset == 1
    assert newer.partition("t", 0).config.codec == "lz4"


def test_newer_values_do_not_block_other_changes(newer: Log) -> None:
    newer.alter_configs("t", {"retention.ms": "6"})
    newer.alter_configs("beside", {"retention.ms": "6"})
    newer.create_topic("after", 1, {"retention.ms": "7"})
    newer.alter_topic_defaults({"log.retention.bytes": "9"})
    # A client that replaces all settings returns the ones that it read.
    newer.alter_configs("t", {**NEWER, "max.compaction.lag.ms": "9"}, remove=["retention.ms"])
    assert newer.topic("t").configs == {**NEWER, "max.compaction.lag.ms": "9"}
    assert newer.topic_defaults() == {"log.segment.bytes": "fitting", "log.retention.bytes": "9"}
    # The topic has a value of its own, even if unknown, so the default does not contradict it.
    newer.alter_topic_defaults({"log.cleaner.min.compaction.lag.ms": "10"})
    newer.alter_configs("t", {"max.compaction.lag.ms": "8"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms=10"):
        newer.alter_configs("t", remove=["min.compaction.lag.ms"])


def test_newer_values_are_replaced_and_removed_by_name(newer: Log) -> None:
    for change in ({"compression.type": "other"}, {"max.compaction.lag.ms": "auto"}):
        with pytest.raises(InvalidConfig, match="takes"):
            newer.alter_configs("t", change)
    with pytest.raises(InvalidConfig, match=r"log\.segment\.bytes takes"):
        newer.alter_topic_defaults({"log.segment.bytes": "other"})
    newer.alter_configs("t", {"compression.type": "zstd"}, remove=["min.compaction.lag.ms"])
    newer.alter_topic_defaults(remove=["log.segment.bytes"])
    assert newer.topic("t").configs == {"retention.ms": "5", "compression.type": "zstd"}
    assert newer.topic_defaults() == {}
    assert newer.partition("t", 0).config.codec == "zstd"


@pytest.mark.parametrize(
    "newer",
    [
        [b'{"type": "TomorrowRecord"}'],
        [b'{"type": "ClusterRecord", "clusterId": "c", "fromTomorrow": 1}'],
        spelled(ConfigRecord("s", "n", "v", resource_type=99)),
    ],
    ids=["type", "field", "resource"],
)
def test_snapshot_is_not_stored_when_newer_records_were_skipped(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, newer: list[bytes]
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_EVERY", 2)
    log = Log(store)
    layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
    log.create_topic("before", 1)
    before = [i.key for i in store.list(layout.snapshot_prefix)]
    assert before
    stored(log, newer)
    for name in "abc":
        log.create_topic(name, 1)
    assert [i.key for i in store.list(layout.snapshot_prefix)] == before
    assert set(Log(store).topics()) == {"before", *"abc"}


def test_records_of_this_version_are_not_taken_for_newer() -> None:
    """Records with all fields set: none of them looks like a newer version's."""
    records: list[Record] = [
        TopicRecord("t", "A" * 22, 2, "User:a"),
        PartitionState((1, 2), (1,), 1, 3, 4, True, ("1-a",), (2,), (1,), 2, True).record(
            "A" * 22, 0
        ),
        ConfigRecord("t", "n", "v", BROKER_RESOURCE),
        ClientQuotaRecord((("client-id", None), ("user", "u")), "producer_byte_rate", 1024.0),
        RegisterBrokerRecord(
            1,
            "a",
            "localhost",
            9092,
            "r",
            (BrokerEndpoint("SSL", "SSL", "kafka.example", 9093),),
            2,
        ),
        BrokerRegistrationChangeRecord(1, 0, fenced=True, in_controlled_shutdown=True),
        UnregisterBrokerRecord(1, 0),
        ControllerChangeRecord(1, "a", 1),
        ProducerIdsRecord(1, 0, 1000),
        HeartbeatRecord(1, 0),
        ClusterRecord("c", "s", 2),
        FeatureLevelRecord("sparklog.version", 2),
        BrokerIdsRecord("blue", 1, 3),
        RemoveTopicRecord("A" * 22),
        AccessControlEntryRecord("i", 2, "t", 3, "User:a", "*", 3, 3),
        RemoveAccessControlEntryRecord("i"),
        UserScramCredentialRecord("a", 2, b"\0salt", b"stored", b"server", 4096),
        RemoveUserScramCredentialRecord("a", 2),
        DelegationTokenRecord("id", "User:a", "User:b", ("User:c",), 1, 3, 2),
        RemoveDelegationTokenRecord("id"),
    ]
    assert {type(record) for record in records} == set(get_args(Record))
    for record in records:
        for known in fields(record):
            assert getattr(record, known.name) not in (known.default, ()), known.name
    assert codec.decode(codec.encode(records), 0) == (records, False)


def test_snapshot_of_a_newer_version_is_marked_strange() -> None:
    document = snapshot.to_document(MetadataImage())
    assert not snapshot.from_document(document, 0).strange
    assert snapshot.from_document({**document, "fromTomorrow": []}, 0).strange
    topic = {"name": "t", "topicId": "A" * 22, "configs": {}, "partitions": [], "tier": 1}
    assert snapshot.from_document({"topics": [topic]}, 0).strange


class CountedTopics(dict[str, Topic]):
    """Counts the scans over all topics."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def test_topics_of_one_request_scan_existing_topics_once() -> None:
    topics = CountedTopics({f"old.{n}": Topic(f"old.{n}", f"{n:022}") for n in range(100)})
    image = MetadataImage(topics=topics, brokers={1: Broker(1, "a", "localhost", 9092, None, 0)})
    existing = changes.ExistingTopics(image)
    looks = []
    for n in range(50):
        changes.create_topic(image, f"new.{n}", f"n{n:021}", 2, {}, existing=existing)
        looks.append(topics.looks)
    assert (set(looks), existing.partitions) == ({looks[0]}, 100)
    with pytest.raises(InvalidTopic, match=r"existing=new\.7"):
        changes.create_topic(image, "new_7", "x" * 22, 1, {}, existing=existing)


@pytest.mark.parametrize("name", sorted(CLOSED_TOPICS))
def test_cluster_topic_is_not_created_or_deleted_by_clients(store: MemoryStore, name: str) -> None:
    log = Log(store)
    with pytest.raises(InvalidTopic, match="the cluster's own state"):
        log.create_topic(name)
    made = log.create_topic(name, by_cluster=True)
    for change in (log.delete_topic, lambda topic: log.add_partitions(topic, 2)):
        with pytest.raises(InvalidTopic, match="the cluster's own state"):
            change(name)
    assert log.topic(name) == made
    assert log.alter_configs(name, {"segment.bytes": "2097152"}).configs
