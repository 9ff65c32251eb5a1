"""What a topic's settings mean for a replica, parsed once per change of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.cluster.leadership import CommitRules
from sparklog.cluster.topic_config import log_config
from sparklog.core.settings import parse_topic_configs
from sparklog.log.batch_check import BatchRules


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
    def of(cls, configs: Mapping[str, str], replica_lag_time_max_ms: int) -> TopicRules:
        """Return the rules that the `configs` in force for a topic make.

        Raises:
            InvalidConfig: an unknown setting or a bad value, stored by a newer version.
        """
        parsed = parse_topic_configs(configs)
        stored = log_config(configs)
        return cls(
            batches=BatchRules.of(parsed),
            commit=CommitRules.of(parsed, replica_lag_time_max_ms),
            codec=stored.codec,
            zstd_level=stored.zstd_level,
            indexes_keys=stored.indexes_keys,
            flush_s=min(parsed.whole("flush.ms"), 86_400_000) / 1000,
            flush_bytes=parsed.whole("flush.bytes"),
        )
