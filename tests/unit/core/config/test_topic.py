"""Topic and broker settings: Kafka's names, defaults and limits, and errors that help."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.config.broker import BROKER_SETTINGS, parse_broker_configs
from sparklog.core.config.model import LONG_MAX, Effect, Setting, SettingType, Value
from sparklog.core.config.topic import TOPIC_SETTINGS, check_topic_config_names, parse_topic_configs
from sparklog.core.errors import InvalidConfig

ALL_SETTINGS = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]

# Kafka 4.4: name, kind and default, from its `TopicConfig` and `LogConfig`.
KAFKA_DEFAULTS: dict[str, tuple[SettingType, Value]] = {
    "cleanup.policy": (SettingType.LIST, ("delete",)),
    "compression.gzip.level": (SettingType.INT, -1),
    "compression.lz4.level": (SettingType.INT, 9),
    "compression.type": (SettingType.STRING, "producer"),
    "compression.zstd.level": (SettingType.INT, 3),
    "delete.retention.ms": (SettingType.LONG, 86_400_000),
    "file.delete.delay.ms": (SettingType.LONG, 60_000),
    "flush.messages": (SettingType.LONG, LONG_MAX),
    "flush.ms": (SettingType.LONG, LONG_MAX),
    "follower.replication.throttled.replicas": (SettingType.LIST, ()),
    "index.interval.bytes": (SettingType.INT, 4096),
    "leader.replication.throttled.replicas": (SettingType.LIST, ()),
    "local.retention.bytes": (SettingType.LONG, -2),
    "local.retention.ms": (SettingType.LONG, -2),
    "max.compaction.lag.ms": (SettingType.LONG, LONG_MAX),
    "max.decompressed.message.bytes": (SettingType.INT, 2_147_483_639),
    "max.message.bytes": (SettingType.INT, 1_048_588),
    "message.timestamp.after.max.ms": (SettingType.LONG, 3_600_000),
    "message.timestamp.before.max.ms": (SettingType.LONG, LONG_MAX),
    "message.timestamp.type": (SettingType.STRING, "CreateTime"),
    "min.cleanable.dirty.ratio": (SettingType.DOUBLE, 0.5),
    "min.compaction.lag.ms": (SettingType.LONG, 0),
    "min.insync.replicas": (SettingType.INT, 1),
    "preallocate": (SettingType.BOOLEAN, False),
    "errors.deadletterqueue.group.enable": (SettingType.BOOLEAN, False),
    "remote.copy.lag.bytes": (SettingType.LONG, -1),
    "remote.copy.lag.ms": (SettingType.LONG, 0),
    "remote.log.copy.disable": (SettingType.BOOLEAN, False),
    "remote.log.delete.on.disable": (SettingType.BOOLEAN, False),
    "remote.storage.enable": (SettingType.BOOLEAN, False),
    "retention.bytes": (SettingType.LONG, -1),
    "retention.ms": (SettingType.LONG, 604_800_000),
    "segment.bytes": (SettingType.INT, 1_073_741_824),
    "segment.index.bytes": (SettingType.INT, 10_485_760),
    "segment.jitter.ms": (SettingType.LONG, 0),
    "segment.ms": (SettingType.LONG, 604_800_000),
    "unclean.leader.election.enable": (SettingType.BOOLEAN, False),
}


def test_kafka_topic_settings_have_their_kind_and_default() -> None:
    ours = {
        name: (s.kind, s.default if s.kafka_default is None else s.kafka_default)
        for name, s in TOPIC_SETTINGS.items()
        if name != "flush.bytes" and not name.startswith("sparklog.")
    }
    assert ours == KAFKA_DEFAULTS


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda s: s.name)
def test_a_default_is_a_value_its_own_setting_takes(setting: Setting) -> None:
    assert setting.parse(setting.spell(setting.default)) == setting.default


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda s: s.name)
def test_a_setting_has_a_reason_and_its_unit_is_the_end_of_its_name(setting: Setting) -> None:
    assert setting.reason.endswith(".")
    for unit in ("ms", "bytes"):
        assert (setting.unit == unit) == setting.name.endswith(f".{unit}")


def test_topic_setting_has_its_default_when_not_set() -> None:
    config = parse_topic_configs({})
    assert config.given == {}
    assert config.whole("max.message.bytes") == 1_048_588
    assert config.words("cleanup.policy") == ("delete",)
    assert config.number("min.cleanable.dirty.ratio") == 0.5
    assert config.flag("preallocate") is False
    assert set(config) == set(TOPIC_SETTINGS)
    assert len(config) == len(TOPIC_SETTINGS)


def test_topic_setting_is_read_back_typed() -> None:
    config = parse_topic_configs(
        {
            "cleanup.policy": "compact, delete",
            "retention.ms": " -1 ",
            "min.cleanable.dirty.ratio": "1e-1",
            "preallocate": "TRUE",
            "message.timestamp.type": "LogAppendTime",
        }
    )
    assert config["cleanup.policy"] == ("compact", "delete")
    assert config.whole("retention.ms") == -1
    assert config.number("min.cleanable.dirty.ratio") == 0.1
    assert config.flag("preallocate") is True
    assert config.text("message.timestamp.type") == "LogAppendTime"


def test_a_zero_that_was_set_is_not_taken_for_absent() -> None:
    assert parse_topic_configs({"flush.ms": "0"}).whole("flush.ms") == 0


def test_an_empty_cleanup_policy_keeps_everything_as_in_kafka() -> None:
    assert parse_topic_configs({"cleanup.policy": ""}).words("cleanup.policy") == ()


def test_settings_are_spelled_as_kafka_prints_them() -> None:
    spelled = parse_topic_configs({"cleanup.policy": "compact,delete"}).spelled()
    assert spelled["cleanup.policy"] == "compact,delete"
    assert spelled["preallocate"] == "false"
    assert spelled["flush.messages"] == "9223372036854775807"
    assert parse_topic_configs(spelled).spelled() == spelled


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "7d", "64 bits"),
        ("retention.ms", "1_000", "64 bits"),
        ("retention.ms", "٣", "64 bits"),
        ("retention.ms", "", "64 bits"),
        ("flush.messages", "9223372036854775808", "64 bits"),
        ("segment.bytes", "2147483648", "32 bits"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("compression.zstd.level", "23", "at most 22"),
        ("compression.type", "brotli", "zstd, lz4"),
        ("compression.type", "", "zstd, lz4"),
        ("cleanup.policy", "delete,delete", "each once"),
        ("cleanup.policy", "delete,", "each once"),
        ("cleanup.policy", "shred", "compact, delete"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "1e999", "range of a double"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("min.insync.replicas", "0", "at least 1"),
        ("sparklog.commit", "disk", "storage, memory"),
    ],
)
def test_a_value_outside_the_limits_is_refused_and_the_limit_named(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(InvalidConfig) as error:
        parse_topic_configs({name: text})
    assert str(error.value).startswith(f"{name} takes ")
    assert expected in str(error.value)


def test_an_unknown_name_is_refused_with_the_closest_known_one() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean retention\.ms\? setting='retention_ms'"):
        parse_topic_configs({"retention_ms": "1"})
    with pytest.raises(InvalidConfig, match=r"known are cleanup\.policy, compression"):
        check_topic_config_names(["qqqqqqqq"])


def test_removing_settings_needs_names_only() -> None:
    check_topic_config_names(["retention.ms", "sparklog.commit"])


def test_contradicting_compaction_lags_are_rejected() -> None:
    lags = {"min.compaction.lag.ms": "1001", "max.compaction.lag.ms": "1000"}
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms=1001 max.*=1000"):
        parse_topic_configs(lags)
    parse_topic_configs({**lags, "min.compaction.lag.ms": "1000"})


def test_setting_without_effect_is_accepted_and_marked() -> None:
    assert TOPIC_SETTINGS["remote.storage.enable"].acts is Effect.NEVER
    assert parse_topic_configs({"remote.storage.enable": "true"}).flag("remote.storage.enable")


def test_a_config_travels_to_another_process() -> None:
    config = parse_topic_configs({"segment.bytes": "2097152"})
    assert pickle.loads(pickle.dumps(config)) == config


def test_broker_settings_are_checked_like_the_topics() -> None:
    assert parse_broker_configs({"wal.linger.ms": "0"}).whole("wal.linger.ms") == 0
    with pytest.raises(InvalidConfig, match="at most 60000"):
        parse_broker_configs({"wal.linger.ms": "60001"})
    with pytest.raises(InvalidConfig, match=r"did you mean wal\.bytes"):
        parse_broker_configs({"wal.byte": "1"})
    for name in ("log.retention.ms", "log.retention.hours"):
        with pytest.raises(
            InvalidConfig, match=r"--entity-default --add-config log\.retention\.ms"
        ):
            parse_broker_configs({name: "1"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"group.consumer.session.timeout.ms": "44999"}, r"group\.consumer\.min\.session"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, r"group\.consumer\.max\.heartbeat"),
        ({"group.consumer.min.heartbeat.interval.ms": "5001"}, r"heartbeat.*=5000 .*=5001"),
        ({"group.consumer.assignors": ""}, "at least one assignor"),
        ({"group.consumer.assignors": "uniform,mine"}, "some of uniform, range"),
        ({"group.consumer.migration.policy": "both"}, "one of bidirectional"),
        (
            {
                "group.consumer.min.session.timeout.ms": "5000",
                "group.consumer.session.timeout.ms": "5000",
            },
            "within its session",
        ),
    ],
)
def test_settings_of_groups_that_contradict_each_other_are_refused(
    given: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_broker_configs(given)


@given(st.sampled_from(ALL_SETTINGS), st.text())
def test_any_text_is_a_value_or_an_invalid_config(setting: Setting, text: str) -> None:
    try:
        value = setting.parse(text)
    except InvalidConfig:
        return
    if setting.kind is SettingType.PASSWORD:
        assert setting.spell(value) == ("[hidden]" if value else "")
    else:
        assert setting.parse(setting.spell(value)) == value
