"""Settings of coordinators: those of a broker that sets none, but for what a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.transaction.shard import TransactionSettings
from sparklog.core.config.broker import parse_broker_configs


def group_settings(**changes: Any) -> GroupSettings:
    """Return the defaults of a broker with some fields changed."""
    return replace(GroupSettings.of(parse_broker_configs({})), **changes)


def transaction_settings(**changes: Any) -> TransactionSettings:
    """Return the defaults of a broker with some fields changed."""
    return replace(TransactionSettings.of(parse_broker_configs({})), **changes)
