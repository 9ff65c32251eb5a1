"""Settings of share groups: defaults, bounds of the broker, and what a group may not set."""

from __future__ import annotations

import pytest

from sparklog.coordinator.share.settings import (
    OffsetReset,
    ResetPolicy,
    ShareGroupSettings,
    ShareSettings,
)
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.config.group import GROUP_CONFIGS, NONE_SET, parse_group_configs
from sparklog.core.config.model import parse_configs
from sparklog.core.errors import InvalidConfig

DEFAULTS = ShareGroupSettings(
    lock_ms=30_000,
    count_max=5,
    records_max=2_000,
    heartbeat_interval_ms=5_000,
    session_timeout_ms=45_000,
    read_committed=False,
    offset_reset=OffsetReset(),
    renew=True,
    dead_letter_topic="",
    copies_records=False,
)


def test_a_group_without_settings_has_the_defaults_of_its_broker() -> None:
    assert ShareSettings.of(parse_broker_configs({})).for_group(NONE_SET) == DEFAULTS
    broker = parse_broker_configs(
        {
            "group.share.record.lock.duration.ms": "20000",
            "group.share.delivery.count.limit": "7",
            "group.share.max.size": "3",
            "group.share.max.share.sessions": "4",
            "group.share.initialize.retry.interval.ms": "5",
            "errors.deadletterqueue.topic.name.prefix": "",
            "errors.deadletterqueue.auto.create.topics.enable": "true",
        }
    )
    settings = ShareSettings.of(broker)
    found = settings.for_group(NONE_SET)
    assert (found.lock_ms, found.count_max, found.records_max) == (20_000, 7, 2_000)
    assert (settings.size_max, settings.sessions_max, settings.initialize_retry_ms) == (3, 4, 5)
    assert (settings.dead_letter_prefix, settings.creates_dead_letter_topics) == ("", True)


def test_settings_of_a_group_stand_before_those_of_its_broker() -> None:
    broker = parse_broker_configs({"group.share.delivery.count.limit": "7"})
    config = parse_group_configs(
        {
            "share.record.lock.duration.ms": "15000",
            "share.delivery.count.limit": "2",
            "share.partition.max.record.locks": "100",
            "share.heartbeat.interval.ms": "6000",
            "share.session.timeout.ms": "50000",
            "share.isolation.level": "read_committed",
            "share.auto.offset.reset": "by_duration:PT1H30M",
            "share.renew.acknowledge.enable": "false",
            "errors.deadletterqueue.topic.name": "dlq.orders",
            "errors.deadletterqueue.copy.record.enable": "true",
        },
        broker,
    )
    assert ShareSettings.of(broker).for_group(config) == ShareGroupSettings(
        lock_ms=15_000,
        count_max=2,
        records_max=100,
        heartbeat_interval_ms=6_000,
        session_timeout_ms=50_000,
        read_committed=True,
        offset_reset=OffsetReset(ResetPolicy.BY_DURATION, 5_400_000),
        renew=False,
        dead_letter_topic="dlq.orders",
        copies_records=True,
    )


def test_a_stored_value_counts_within_the_bounds_of_the_broker() -> None:
    stored = {"share.delivery.count.limit": "2", "share.session.timeout.ms": "90000"}
    config = parse_configs(stored, GROUP_CONFIGS)
    broker = parse_broker_configs({"group.share.min.delivery.count.limit": "4"})
    found = ShareSettings.of(broker).for_group(config)
    assert (found.count_max, found.session_timeout_ms) == (4, 60_000)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("share.session.timeout.ms", "44999", "greater than or equal to group.share.min.session"),
        ("share.session.timeout.ms", "60001", "less than or equal to group.share.max.session"),
        ("share.heartbeat.interval.ms", "4999", "greater than or equal to group.share.min.heart"),
        ("share.record.lock.duration.ms", "14999", "than or equal to group.share.min.record.lock"),
        ("share.record.lock.duration.ms", "60001", "than or equal to group.share.max.record.lock"),
        ("share.delivery.count.limit", "1", "at least 2"),
        ("share.delivery.count.limit", "11", "less than or equal to group.share.max.delivery"),
        ("share.partition.max.record.locks", "4001", "than or equal to group.share.max.partition"),
        ("share.isolation.level", "serializable", "one of read_committed, read_uncommitted"),
        ("share.auto.offset.reset", "none", "'earliest', 'latest' or 'by_duration:"),
        ("share.auto.offset.reset", "latest:PT1H", "'earliest', 'latest' or 'by_duration:"),
        ("share.auto.offset.reset", "by_duration", "'earliest', 'latest' or 'by_duration:"),
        ("share.auto.offset.reset", "by_duration:", "not a duration"),
        ("share.auto.offset.reset", "by_duration:1h", "not a duration"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "'earliest', 'latest' or 'by_duration:"),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets", "cannot start with __"),
        ("errors.deadletterqueue.topic.name", "orders", "does not comply with the prefix"),
    ],
)
def test_a_value_that_the_broker_does_not_allow_is_refused(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words) as caught:
        parse_group_configs({name: value}, parse_broker_configs({}))
    assert name in str(caught.value)


def test_session_of_a_group_is_longer_than_its_heartbeat_interval() -> None:
    broker = parse_broker_configs({"group.share.min.session.timeout.ms": "5000"})
    with pytest.raises(InvalidConfig, match=r"must be greater than group\.share\.heartbeat"):
        parse_group_configs({"share.session.timeout.ms": "5000"}, broker)


def test_dead_letter_topic_has_any_name_without_a_prefix() -> None:
    broker = parse_broker_configs({"errors.deadletterqueue.topic.name.prefix": ""})
    name = "errors.deadletterqueue.topic.name"
    assert parse_group_configs({name: "orders"}, broker).text(name) == "orders"
    with pytest.raises(InvalidConfig, match="cannot start with __"):
        parse_group_configs({name: "__orders"}, broker)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"group.share.session.timeout.ms": "60001"}, "less than or equal to group.share.max"),
        ({"group.share.min.heartbeat.interval.ms": "5001"}, "greater than or equal to"),
        ({"group.share.max.delivery.count.limit": "4"}, "at least 5"),
        (
            {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
            "greater than or equal to group.share.min.delivery",
        ),
        ({"group.share.assignors": ""}, "at least one assignor"),
        ({"group.share.assignors": "range"}, "some of simple"),
        ({"group.share.max.size": "1001"}, "at most 1000"),
        (
            {
                "group.share.min.session.timeout.ms": "5000",
                "group.share.session.timeout.ms": "5000",
            },
            "must be greater than group.share.heartbeat.interval.ms",
        ),
    ],
)
def test_settings_of_a_broker_that_contradict_each_other_are_refused(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        parse_broker_configs(given)
