"""Settings of the underlying Kafka client: safe defaults, and everything else unchanged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from sparklog.client.librdkafka_errors import of_exception
from sparklog.core.errors import InvalidConfig, SparklogError

CLIENT_ID: Final = "sparklog"
Settings = Mapping[str, str | int | float | bool]

logger = logging.getLogger("sparklog.client")
logger.addHandler(logging.NullHandler())

_COMMON: Final[Settings] = {
    "client.id": CLIENT_ID,
    # The client finds a returned broker within a second; the default waits up to ten.
    "reconnect.backoff.max.ms": 1000,
    "log.connection.close": False,
}


def client_settings(bootstrap_servers: str, *layers: Settings) -> dict[str, Any]:
    """Return one dictionary for librdkafka; a later layer overrides an earlier one.

    Raises:
        InvalidConfig: `bootstrap.servers` is given twice.
    """
    if any("bootstrap.servers" in layer for layer in layers):
        raise InvalidConfig("bootstrap.servers is an argument of its own, not a setting")
    merged: dict[str, Any] = {**_COMMON}
    for layer in layers:
        merged |= layer
    return {**merged, "bootstrap.servers": bootstrap_servers, "logger": logger}


def refused(exception: KafkaException) -> SparklogError:
    """Return the error for settings that librdkafka rejects."""
    error = of_exception(exception, "the Kafka client refused its settings")
    return InvalidConfig(str(error))
