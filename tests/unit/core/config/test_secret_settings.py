"""Secrets among settings: no description and no message shows them."""

from __future__ import annotations

import pytest

from sparklog.core.config.describe import (
    ConfigSource,
    DescribedConfig,
    described_broker,
    described_defaults,
    described_topic,
)
from sparklog.core.config.kafka_broker import kafka_broker_settings
from sparklog.core.config.model import (
    Config,
    Effect,
    Setting,
    SettingType,
    is_secret_name,
    parse_configs,
    table_of,
    understood,
)

SECRET = Setting("ssl.key.password", SettingType.PASSWORD, "", Effect.BROKER, "A secret.")
TABLE = table_of(SECRET)
GIVEN = {"ssl.key.password": "marked-secret"}


def config() -> Config:
    return parse_configs(GIVEN, TABLE)


def found(name: str, described: list[DescribedConfig]) -> DescribedConfig:
    (one,) = [one for one in described if one.setting.name == name]
    return one


def test_secret_of_the_broker_has_no_value_at_any_source() -> None:
    described = described_broker(config(), {}, {})
    assert "marked-secret" not in repr([one.origins for one in described])
    one = found("ssl.key.password", described)
    assert one.setting.kind is SettingType.PASSWORD
    assert {origin.value for origin in one.origins} == {None}
    assert one.source is ConfigSource.STATIC_BROKER_CONFIG


@pytest.mark.parametrize(
    "name", ["ssl.key.password", "listener.name.x.plain.sasl.jaas.config", "sasl.token"]
)
def test_secret_that_a_newer_version_stored_has_no_value(name: str) -> None:
    stored = {name: "marked-secret"}
    for described in (
        described_topic(stored, {}),
        described_defaults(stored, set_only=True),
        described_broker(Config({}, {}), stored, {}),
    ):
        one = found(name, described)
        assert one.setting.kind is SettingType.PASSWORD
        assert one.value is None
    assert "marked-secret" not in repr(understood(stored, {})[1])


def test_spelling_hides_a_secret_and_the_value_stays() -> None:
    assert config().spelled() == {"ssl.key.password": "[hidden]"}
    assert config().text("ssl.key.password") == "marked-secret"


def test_kafkas_secrets_are_known_by_name() -> None:
    passwords = {name for name, one in kafka_broker_settings().items() if one.kind == "password"}
    certificates = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
    assert {name for name in passwords if not is_secret_name(name)} == certificates
