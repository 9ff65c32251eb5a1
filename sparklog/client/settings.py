"""Settings of the underlying Kafka client: safe defaults, and everything else unchanged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from sparklog.client.librdkafka_errors import of_exception, of_kafka
from sparklog.client.security import SecuritySettings
from sparklog.client.security_settings import (
    OAUTHBEARER,
    is_security_setting,
    librdkafka_settings,
)
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidConfig, SparklogError

CLIENT_ID: Final = "sparklog"
Settings = Mapping[str, str | int | float | bool]

logger = logging.getLogger("sparklog.client")
logger.addHandler(logging.NullHandler())

_PASSING: Final = ("transport failure", "Disconnected", "timed out")
_UNTRUSTED: Final = "certificate verify failed"

_COMMON: Final[Settings] = {
    "client.id": CLIENT_ID,
    # The client finds a returned broker within a second; the default waits up to ten.
    "reconnect.backoff.max.ms": 1000,
    "log.connection.close": False,
}


class SecurityProblem:
    """Keeps the first reason for which librdkafka cannot log in, or does not trust a broker.

    librdkafka itself goes on for ever. A connection that breaks during a login is no such reason.
    """

    def __init__(self) -> None:
        """Start without a reason."""
        self.found: SparklogError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Keep an error that librdkafka reports, if it is one of security."""
        text = error.str()
        wrong = error.name() == "_AUTHENTICATION" and not any(w in text for w in _PASSING)
        if self.found is None and (wrong or (error.name() == "_SSL" and _UNTRUSTED in text)):
            self.found = of_kafka(error, "the client cannot connect; correct its settings")


def client_settings(
    bootstrap_servers: str, *layers: Settings, problem: SecurityProblem | None = None
) -> dict[str, Any]:
    """Return one dictionary for librdkafka; a later layer overrides an earlier one.

    Settings of TLS and SASL may have Java's names, too, and refer to secrets. `problem` gets
    librdkafka's errors.

    Raises:
        InvalidConfig: `bootstrap.servers` is given twice, or a security setting is wrong.
    """
    if any("bootstrap.servers" in layer for layer in layers):
        raise InvalidConfig("bootstrap.servers is an argument of its own, not a setting")
    merged: dict[str, Any] = {**_COMMON}
    for layer in layers:
        merged |= layer
    given = {name: str(value) for name, value in merged.items() if is_security_setting(name)}
    merged = {name: value for name, value in merged.items() if name not in given}
    if given:
        security = SecuritySettings(given)
        checked = security.resolve()
        merged |= librdkafka_settings(checked)
        if checked.sasl is not None and checked.sasl.mechanism == OAUTHBEARER:
            merged["oauth_cb"] = partial(_token, security)
    if problem is not None:
        merged["error_cb"] = problem
    return {**merged, "bootstrap.servers": bootstrap_servers, "logger": logger}


def _token(security: SecuritySettings, _: str) -> tuple[str, float]:
    """Return a bearer token, and its expiry in seconds since the Unix epoch."""
    from sparklog.client.token_source import bearer_token, token_expiry_s  # noqa: PLC0415 - seldom

    sasl = security.resolve().sasl
    assert sasl is not None
    token = bearer_token(sasl)
    return token, token_expiry_s(token, SYSTEM_CLOCK.now_ms() / 1000)


def refused(exception: KafkaException) -> SparklogError:
    """Return the error for settings that librdkafka rejects."""
    error = of_exception(exception, "the Kafka client refused its settings")
    return InvalidConfig(str(error))
