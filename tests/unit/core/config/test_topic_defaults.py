"""Names of the cluster's defaults for topics."""

from __future__ import annotations

import pytest

from sparklog.core.config.describe import ConfigSource, described_defaults, described_topic
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.config.topic_defaults import (
    DEFAULT_NAMES,
    DEFAULT_SETTINGS,
    inherited,
    parse_topic_defaults,
)
from sparklog.core.errors import InvalidConfig

OF_TOPICS_ALONE = 8


def test_topic_settings_have_cluster_defaults_of_their_own_name() -> None:
    assert len(DEFAULT_SETTINGS) - 1 == len(DEFAULT_NAMES) == len(TOPIC_SETTINGS) - OF_TOPICS_ALONE
    assert DEFAULT_NAMES["retention.ms"] == "log.retention.ms"
    assert DEFAULT_NAMES["max.message.bytes"] == "message.max.bytes"
    assert DEFAULT_NAMES["min.insync.replicas"] == "min.insync.replicas"
    for name, default in DEFAULT_NAMES.items():
        assert DEFAULT_SETTINGS[default].name == default
        assert DEFAULT_SETTINGS[default].kind is TOPIC_SETTINGS[name].kind


def test_defaults_are_read_under_the_names_of_topics_settings() -> None:
    given = {"log.retention.ms": "7", "compression.type": "zstd", "from.a.newer.version": "1"}
    assert inherited(given) == {"retention.ms": "7", "compression.type": "zstd"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retention.ms", "log.retention.ms"),
        ("log.retention.hours", "log.retention.ms, in milliseconds"),
        ("log.retention.mss", r"did you mean log\.retention\.ms\?"),
        ("remote.storage.enable", "unknown setting"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        parse_topic_defaults({name: "1"})


def test_topic_setting_lists_own_value_default_and_built_in() -> None:
    told = {
        one.setting.name: one
        for one in described_topic({"retention.ms": "5"}, {"retention.ms": "7", "segment.ms": "9"})
    }
    assert [(o.source.name, o.name, o.value) for o in told["retention.ms"].origins] == [
        ("DYNAMIC_TOPIC_CONFIG", "retention.ms", "5"),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", "log.retention.ms", "7"),
        ("DEFAULT_CONFIG", "retention.ms", "604800000"),
    ]
    assert told["segment.ms"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert (told["segment.ms"].value, told["flush.ms"].value) == ("9", "10000")


def test_defaults_are_described_with_or_without_built_in_values() -> None:
    given = {"log.retention.ms": "7"}
    assert [one.setting.name for one in described_defaults(given, set_only=True)] == list(given)
    assert len(described_defaults(given, set_only=False)) == len(DEFAULT_SETTINGS)


def test_unknown_setting_is_described_as_stored() -> None:
    own = {"retention.ms": "5", "from.tomorrow": "x", "compression.type": "brotli"}
    told = [(one.setting.name, one.value) for one in described_topic(own, {"segment.ms": "soon"})]
    assert len(told) == len(dict(told)) == len(TOPIC_SETTINGS) + 1
    assert set(own.items()) <= set(told)
    assert dict(told)["segment.ms"] == "604800000"
    everybodys = described_defaults(
        {"log.retention.ms": "never", "log.tomorrow": "1"}, set_only=True
    )
    assert [(one.setting.name, one.value) for one in everybodys] == [
        ("log.retention.ms", "never"),
        ("log.tomorrow", "1"),
    ]
