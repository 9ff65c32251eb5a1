"""Settings of topics and brokers, as admin clients see and change them."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.partition.config import TopicRules
from sparklog.broker.runtime.current_settings import SettingsInForce
from sparklog.cluster.metadata.records import ConfigRecord, Record
from sparklog.core.config.group import GROUP_CONFIGS
from sparklog.core.config.kafka_broker import kafka_broker_settings
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import (
    alter_configs,
    create_topics,
    describe_configs,
    replace_configs,
)

TOPIC, BROKER, GROUP = 2, 4, 32
NONE = ErrorCode.none
SET, DELETE, APPEND, SUBTRACT = range(4)


async def described(node: ToyNode, kind: int, name: str, *keys: str) -> dict[str, Any]:
    (result,) = (await node.ask(describe_configs(kind, name, keys or None))).results
    assert result.error_code is ErrorCode.none, result.error_message
    return {c.name: c for c in result.configs}


async def altered(node: ToyNode, request: Any) -> ErrorCode:
    (result,) = (await node.ask(request)).responses
    code = result.error_code
    assert isinstance(code, ErrorCode)
    return code


def test_topic_settings_are_described_with_their_sources() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"retention.ms": "7"}))
        configs = await described(node, TOPIC, "t")
        assert len(configs) > 20
        set_ = configs["retention.ms"]
        assert (set_.value, set_.config_source, set_.config_type) == ("7", 1, 5)
        assert [(s.value, s.source) for s in set_.synonyms] == [("7", 1), ("604800000", 5)]
        assert not set_.read_only
        assert set_.documentation
        assert configs["cleanup.policy"].config_source == 5
        assert set(await described(node, TOPIC, "t", "flush.ms")) == {"flush.ms"}

    tell(story)


def test_broker_settings_are_described_only_by_that_broker() -> None:
    async def story(node: ToyNode) -> None:
        configs = await described(node, BROKER, "1")
        assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == (
            "9",
            4,
        )
        assert configs["num.partitions"].read_only
        assert configs["max.connections"].config_source == 5
        (other,) = (await node.ask(describe_configs(BROKER, "2"))).results
        assert other.error_code is ErrorCode.invalid_request
        (strange,) = (await node.ask(describe_configs(99, "g"))).results
        assert strange.error_code is ErrorCode.invalid_request

    tell(story, num_partitions="9")


def test_settings_are_changed_one_by_one() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"retention.ms": "7"}))
        request = alter_configs(
            TOPIC,
            "t",
            ("retention.ms", DELETE, None),
            ("flush.ms", SET, "100"),
            ("cleanup.policy", APPEND, "compact"),
        )
        assert await altered(node, request) is ErrorCode.none
        assert node.metadata.image.topics["t"].configs == {
            "flush.ms": "100",
            "cleanup.policy": "delete,compact",
        }
        request = alter_configs(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
        assert await altered(node, request) is ErrorCode.none
        assert node.metadata.image.topics["t"].configs["cleanup.policy"] == "compact"

    tell(story)


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "nobody", ("flush.ms", SET, "1"), ErrorCode.unknown_topic_or_partition),
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.invalid_config),
        (TOPIC, "t", ("flush.ms", SET, "soon"), ErrorCode.invalid_config),
        (TOPIC, "t", ("flush.ms", SET, None), ErrorCode.invalid_config),
        (TOPIC, "t", ("flush.ms", APPEND, "1"), ErrorCode.invalid_config),
        (TOPIC, "t", ("flush.ms", 9, "1"), ErrorCode.invalid_request),
        (BROKER, "1", ("num.partitions", SET, "1"), ErrorCode.invalid_config),
        (BROKER, "1", ("log.retention.ms", SET, "1"), ErrorCode.invalid_config),
        (BROKER, "1", ("num.io.threads", SET, "1"), ErrorCode.invalid_config),
        (BROKER, "1", ("max.connections", SET, "0"), ErrorCode.invalid_config),
        (BROKER, "2", ("max.connections", SET, "9"), ErrorCode.invalid_request),
        (GROUP, "g", ("share.delivery.count.limit", SET, "1"), ErrorCode.invalid_config),
        (GROUP, "g", ("x", SET, "1"), ErrorCode.invalid_config),
        (99, "g", ("x", SET, "1"), ErrorCode.invalid_request),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        assert await altered(node, alter_configs(kind, name, change)) is code
        assert node.metadata.image.topics["t"].configs == {}

    tell(story)


def test_broker_settings_that_kafka_can_alter_change_at_run_time() -> None:
    async def story(node: ToyNode) -> None:
        assert (await described(node, BROKER, "1"))["max.connections"].value == "7"
        change = alter_configs(
            BROKER, "1", ("max.connections", SET, "5"), ("log.flush.interval.messages", SET, "9")
        )
        assert await altered(node, change) is NONE
        configs = await described(node, BROKER, "1")
        limit = configs["max.connections"]
        assert (limit.value, limit.config_source, limit.read_only) == ("5", 2, False)
        assert [(s.value, s.source) for s in limit.synonyms] == [("5", 2), ("7", 4), ("10000", 5)]
        assert configs["log.flush.interval.messages"].value == "9"
        in_force = SettingsInForce(node.config, node.metadata, 1)
        assert in_force.config.whole("max.connections") == 5
        assert (
            await altered(node, alter_configs(BROKER, "1", ("max.connections", DELETE, None)))
            is NONE
        )
        assert in_force.config.whole("max.connections") == 7

    tell(story, max_connections="7")


def test_broker_describes_every_setting_of_kafkas_brokers() -> None:
    async def story(node: ToyNode) -> None:
        configs = await described(node, BROKER, "1")
        kafkas = kafka_broker_settings()
        assert len(kafkas) == 379
        assert kafkas.keys() <= configs.keys()
        foreign = configs["num.io.threads"]
        assert (foreign.value, foreign.config_source, foreign.config_type) == ("8", 5, 3)
        assert foreign.read_only
        secret = configs["ssl.keystore.password"]
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
        (wanted,) = (await described(node, BROKER, "1", "ssl.protocol")).values()
        assert wanted.value == "TLSv1.3"

    tell(story)


def test_settings_of_groups_that_are_not_served_are_carried_over() -> None:
    async def story(node: ToyNode) -> None:
        given = {
            "share.auto.offset.reset": "earliest",
            "streams.num.standby.replicas": "1",
            "consumer.assignor.offload.enable": "false",
        }
        changes = [(name, SET, value) for name, value in given.items()]
        assert await altered(node, alter_configs(GROUP, "g", *changes)) is NONE
        configs = await described(node, GROUP, "g")
        assert {name: configs[name].value for name in given} == given
        assert {configs[name].config_source for name in given} == {8}

    tell(story)


def test_a_setting_of_a_broker_that_was_never_set_is_unset() -> None:
    async def story(node: ToyNode) -> None:
        name = "leader.replication.throttled.rate"
        assert await altered(node, alter_configs(BROKER, "1", (name, DELETE, None))) is NONE

    tell(story)


def test_validating_changes_nothing() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        good = alter_configs(TOPIC, "t", ("flush.ms", SET, "1"), validate_only=True)
        bad = alter_configs(TOPIC, "t", ("flush.ms", SET, "x"), validate_only=True)
        assert await altered(node, good) is ErrorCode.none
        assert await altered(node, bad) is ErrorCode.invalid_config
        assert node.metadata.image.topics["t"].configs == {}

    tell(story)


def test_settings_are_replaced_as_a_whole() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"retention.ms": "7"}))
        assert await altered(node, replace_configs("t", {"flush.ms": "9"})) is ErrorCode.none
        assert node.metadata.image.topics["t"].configs == {"flush.ms": "9"}

    tell(story)


def test_topic_defaults_are_set_as_cluster_wide_broker_configs() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        request = alter_configs(
            BROKER, "", ("log.retention.ms", SET, "7"), ("log.cleanup.policy", APPEND, "compact")
        )
        assert await altered(node, request) is NONE
        everybodys = await described(node, BROKER, "")
        assert {n: (c.value, c.config_source, c.read_only) for n, c in everybodys.items()} == {
            "log.retention.ms": ("7", 3, False),
            "log.cleanup.policy": ("delete,compact", 3, False),
        }
        brokers = await described(node, BROKER, "1")
        assert (brokers["log.retention.ms"].value, brokers["log.roll.ms"].config_source) == ("7", 5)
        topics = (await described(node, TOPIC, "t"))["retention.ms"]
        assert [(s.name, s.value, s.source) for s in topics.synonyms] == [
            ("log.retention.ms", "7", 3),
            ("retention.ms", "604800000", 5),
        ]
        assert (topics.value, topics.config_source) == ("7", 3)
        assert await altered(node, replace_configs("", {"log.roll.ms": "9"}, BROKER)) is NONE
        assert set(await described(node, BROKER, "")) == {"log.roll.ms"}
        wrong = alter_configs(BROKER, "", ("retention.ms", SET, "7"))
        assert await altered(node, wrong) is ErrorCode.invalid_config

    tell(story)


def test_a_groups_settings_stand_before_the_brokers() -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    async def story(node: ToyNode) -> None:
        told = await described(node, GROUP, "g")
        assert {n: (c.value, c.config_source) for n, c in told.items()} == {
            **{name: (one.spell(one.default), 5) for name, one in GROUP_CONFIGS.items()},
            session: ("50000", 4),
            heartbeat: ("5000", 5),
        }
        assert await altered(node, alter_configs(GROUP, "g", (session, SET, "60000"))) is NONE
        assert node.metadata.image.group_configs == {"g": {session: "60000"}}
        told = await described(node, GROUP, "g")
        assert (told[session].value, told[session].config_source) == ("60000", 8)
        assert [(s.name, s.value, s.source) for s in told[session].synonyms] == [
            (session, "60000", 8),
            (f"group.{session}", "50000", 4),
            (session, "45000", 5),
        ]
        assert not told[session].read_only
        for name, value in (
            (session, "44999"),
            (session, "60001"),
            (heartbeat, "4999"),
            ("x", "1"),
        ):
            refused = await altered(node, alter_configs(GROUP, "g", (name, SET, value)))
            assert refused is ErrorCode.invalid_config
        nobody = await altered(node, alter_configs(GROUP, "", (session, SET, "60000")))
        assert nobody is ErrorCode.invalid_request
        assert await altered(node, alter_configs(GROUP, "g", (session, DELETE, None))) is NONE
        assert node.metadata.image.group_configs == {}

    tell(story, group_consumer_session_timeout_ms="50000")


def test_settings_of_a_newer_version_are_shown_and_survive_changes() -> None:
    foreign, group = "from.tomorrow", "consumer.from.tomorrow"

    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", configs={"retention.ms": "7"}))
        newer: list[Record] = [
            ConfigRecord("t", foreign, "x"),
            ConfigRecord("", foreign, "y", BROKER),
            ConfigRecord("g", group, "z", GROUP),
        ]
        await node.metadata.decide(lambda image: newer)
        for kind, name, key in ((TOPIC, "t", foreign), (BROKER, "", foreign), (GROUP, "g", group)):
            told = (await described(node, kind, name))[key]
            assert (told.config_type, told.documentation) == (2, "A newer version has stored it.")
            for operation, value in ((SET, "new"), (APPEND, "more")):
                refused = await altered(node, alter_configs(kind, name, (key, operation, value)))
                assert refused is ErrorCode.invalid_config
        assert await altered(node, alter_configs(TOPIC, "t", ("flush.ms", SET, "9"))) is NONE
        configs = {"retention.ms": "7", "flush.ms": "9", foreign: "x"}
        assert node.metadata.image.topics["t"].configs == configs
        assert await altered(node, replace_configs("t", {"flush.ms": "8", foreign: "x"})) is NONE
        assert node.metadata.image.topics["t"].configs == {"flush.ms": "8", foreign: "x"}
        change = alter_configs(GROUP, "g", ("consumer.session.timeout.ms", SET, "60000"))
        assert await altered(node, change) is NONE
        assert node.metadata.image.group_configs["g"][group] == "z"
        for kind, name, key in ((TOPIC, "t", foreign), (BROKER, "", foreign), (GROUP, "g", group)):
            assert await altered(node, alter_configs(kind, name, (key, DELETE, None))) is NONE
            assert key not in await described(node, kind, name)

    tell(story)


def test_configs_of_a_newer_version_can_be_removed_and_block_nothing() -> None:
    codec, policy, session = "compression.type", "cleanup.policy", "consumer.session.timeout.ms"
    newer: list[Record] = [
        ConfigRecord("t", codec, "brotli"),
        ConfigRecord("t", policy, "archive"),
        ConfigRecord("", "log.cleanup.policy", "archive", BROKER),
        ConfigRecord("g", session, "auto", GROUP),
    ]

    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        await node.metadata.decide(lambda image: newer)
        for kind, name, change in (
            (TOPIC, "t", ("flush.ms", SET, "9")),
            (BROKER, "", ("log.retention.ms", SET, "7")),
            (GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")),
        ):
            assert await altered(node, alter_configs(kind, name, change)) is NONE
        assert (await described(node, TOPIC, "t"))[codec].value == "brotli"
        for kind, name, key in ((TOPIC, "t", policy), (BROKER, "", "log.cleanup.policy")):
            for operation in (APPEND, SUBTRACT):  # of what cannot be read there is no remainder
                change = (key, operation, "compact")
                refused = await altered(node, alter_configs(kind, name, change))
                assert refused is ErrorCode.invalid_config
        for kind, name, key in (
            (TOPIC, "t", codec),
            (TOPIC, "t", policy),
            (BROKER, "", "log.cleanup.policy"),
            (GROUP, "g", session),
        ):
            assert await altered(node, alter_configs(kind, name, (key, DELETE, None))) is NONE
        image = node.metadata.image
        assert image.topics["t"].settings == {"flush.ms": "9", "retention.ms": "7"}
        assert image.group_configs == {"g": {"consumer.heartbeat.interval.ms": "6000"}}

    tell(story)


def test_broker_applies_the_stored_settings_that_it_understands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = {"flush.ms": "9", "from.tomorrow": "1", "compression.type": "brotli"}
    contradicting = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    rules = TopicRules.of({**stored, **contradicting}, 1000, "t")
    assert rules == TopicRules.of({"flush.ms": "9"}, 1000)
    (told,) = caplog.messages
    assert "topic=t" in told
    assert "from.tomorrow='1'" in told
    assert "compression.type='brotli'" in told
