"""TopicRules: a topic's settings as replicas use them, parsed once per change of the settings."""

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
    """Log the settings of `whose` that this broker ignores, because it does not understand them."""
    logger.error(
        "settings that this version does not understand are ignored; upgrade this broker, "
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
        """Return the rules that follow from the `configs` in force for a topic.

        A newer version may have stored settings that this broker does not understand. It serves
        nevertheless: it ignores them, and logs them under the name of the `topic` if one is given.
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
