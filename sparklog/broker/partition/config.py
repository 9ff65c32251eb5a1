"""What a topic's settings mean for a replica, parsed once per change of the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.cluster.controller.leader_state import CommitRules
from sparklog.cluster.log import log_config
from sparklog.core.config.model import parse_configs, understood
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.log.tail.batch_validator import BatchRules

logger = logging.getLogger(__name__)


def log_left_out(whose: str, strange: list[str]) -> None:
    """Say which of somebody's settings this broker does not go by."""
    logger.error(
        "settings that this version does not understand are left out; upgrade this broker, "
        "or remove them. %s: %s",
        whose,
        "; ".join(strange),
    )


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The settings of one topic as replicas use them."""

    batches: BatchRules
    commit: CommitRules
    codec: str
    zstd_level: int
    indexes_keys: bool
    flush_s: float
    flush_bytes: int

    @classmethod
    def of(
        cls, configs: Mapping[str, str], replica_lag_time_max_ms: int, topic: str = ""
    ) -> TopicRules:
        """Return the rules that the `configs` in force for a topic make.

        A broker serves on whatever a newer version has stored: what it does not understand is left
        out, and logged under the name of the `topic`, if that is given.
        """
        known, strange = understood(configs, TOPIC_SETTINGS)
        if strange and topic:
            log_left_out(f"topic={topic}", strange)
        parsed = parse_configs(known, TOPIC_SETTINGS)
        stored = log_config(known)
        return cls(
            batches=BatchRules.of(parsed),
            commit=CommitRules.of(parsed, replica_lag_time_max_ms),
            codec=stored.codec,
            zstd_level=stored.zstd_level,
            indexes_keys=stored.indexes_keys,
            flush_s=min(parsed.whole("flush.ms"), 86_400_000) / 1000,
            flush_bytes=parsed.whole("flush.bytes"),
        )
