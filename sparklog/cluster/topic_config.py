"""The configuration of a partition's log, from its topic's settings."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.core.config import understood_configs
from sparklog.core.settings import TOPIC_SETTINGS
from sparklog.core.types import TimestampType
from sparklog.log.partition_log import LogConfig

_CODEC_OF = {
    # `producer` keeps the producer's codec on the wire; a direct append has no wire and uses lz4.
    "producer": "lz4",
    "lz4": "lz4",
    "zstd": "zstd",
    "uncompressed": "none",
    # Arrow bodies support two codecs; Kafka's other two map to the one with the same purpose.
    "gzip": "zstd",
    "snappy": "lz4",
}


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """Return the log's configuration for a topic's stored `configs`; ignore unknown ones."""
    parsed = understood_configs(configs, TOPIC_SETTINGS)
    log_append = parsed.text("message.timestamp.type") == "LogAppendTime"
    return LogConfig(
        codec=_CODEC_OF[parsed.text("compression.type")],
        zstd_level=parsed.whole("compression.zstd.level"),
        max_message_bytes=parsed.whole("max.message.bytes"),
        timestamp_type=TimestampType.LOG_APPEND_TIME if log_append else TimestampType.CREATE_TIME,
        requires_keys="compact" in parsed.words("cleanup.policy"),
        indexes_keys=parsed.text("sparklog.key.index") == "bloom",
    )
