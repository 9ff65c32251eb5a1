"""A topic's settings, changed while it is in use."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.bench.common.side import ANSWER_TIMEOUT_S


def alter(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Change some settings of a topic, and leave the others."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_TIMEOUT_S)
