"""Settings of brokers beside those of Kafka 4.4: names, defaults and limits."""

from __future__ import annotations

import re
from typing import Final

from sparklog.core.config.broker import BROKER_SETTINGS
from sparklog.core.config.kafka_broker import kafka_broker_settings
from sparklog.core.config.model import Setting, SettingType
from sparklog.core.config.topic_defaults import DEFAULT_SETTINGS

KAFKAS = kafka_broker_settings()
NO_TIME = "a negative time, or none, is no time to wait or to live"
OF_TOPIC = "the limit of the topic's setting, which Kafka checks as well"
STRICTER: Final = {
    "broker.heartbeat.interval.ms": NO_TIME,
    "broker.id": "-1 is the default, and a negative id is refused",
    "broker.session.timeout.ms": NO_TIME,
    "connections.max.reauth.ms": NO_TIME,
    "default.replication.factor": "a topic has one replica at least; Kafka says so at its creation",
    "group.initial.rebalance.delay.ms": NO_TIME,
    "log.cleaner.io.max.bytes.per.second": "nothing would ever be compacted",
    "log.flush.interval.ms": OF_TOPIC,
    "log.retention.bytes": OF_TOPIC,
    "log.retention.ms": OF_TOPIC,
    "log.roll.jitter.ms": OF_TOPIC,
    "log.roll.ms": OF_TOPIC,
    "max.connection.creation.rate": "with 0 no client could ever connect",
    "max.connections": "with 0 nobody could connect to change it back",
    "offset.metadata.max.bytes": "no text is shorter than none",
    "queued.max.request.bytes": "-1, no bound, would let clients take all memory of an executor",
    "replica.fetch.wait.max.ms": NO_TIME,
    "replica.lag.time.max.ms": NO_TIME,
    "sasl.oauthbearer.clock.skew.seconds": "clocks that differ by an hour make expiry meaningless",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": NO_TIME,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": NO_TIME,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": NO_TIME,
    "sasl.server.max.receive.size": "no login has less than one byte",
}
"""Settings that refuse what Kafka takes, and why."""


def bounds(limits: str) -> tuple[float | None, float | None]:
    """Return the lowest and the highest number that Kafka takes; None has no bound."""
    found = re.match(r"\[([^,\]]+),\.\.\.(?:,([^\]]+))?\]", limits)
    if found is None:
        return None, None
    return float(found[1]), float(found[2]) if found[2] else None


def is_stricter(setting: Setting) -> bool:
    low, high = bounds(KAFKAS[setting.name].limits)
    too_low = setting.at_least is not None and (low is None or setting.at_least > low)
    too_high = setting.at_most is not None and (high is None or setting.at_most < high)
    return too_low or too_high


def test_setting_accepts_kafkas_numbers_or_gives_a_reason() -> None:
    ours = {**BROKER_SETTINGS, **DEFAULT_SETTINGS}
    stricter = {name for name in ours.keys() & KAFKAS.keys() if is_stricter(ours[name])}
    assert stricter == STRICTER.keys()


def test_default_equals_kafkas_or_names_kafkas() -> None:
    for name in BROKER_SETTINGS.keys() & KAFKAS.keys():
        setting, kafkas = BROKER_SETTINGS[name], KAFKAS[name].default
        if setting.kind not in {SettingType.STRING, SettingType.LIST} and kafkas is not None:
            default = setting.default if setting.kafka_default is None else setting.kafka_default
            assert setting.spell(default) == kafkas, name
