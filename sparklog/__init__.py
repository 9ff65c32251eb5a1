"""sparklog: a distributed log on Spark and object storage that speaks Kafka's words.

log = sparklog.open_log("file:///data/log")
log.create_topic("flights", partitions=3)
log.partition("flights", 0).append([pyarrow.record_batch({"value": [b"hello"]})])

`log.sql("SELECT …")` is SQL over topics. `Admin`, `Producer` and `Consumer` reach the brokers that
serve a log. Each name is imported at its first use. So a log under a root needs no Kafka client,
and commands load only what they use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.consumer import Consumer
    from sparklog.client.producer import Producer
    from sparklog.cluster.metadata.image import Topic
    from sparklog.cluster.usage_reporter import reported_usage
    from sparklog.core.errors import SparklogError
    from sparklog.core.types import TopicPartition
    from sparklog.log.partition.partition_log import PartitionLog
    from sparklog.log.segment.segment import CommitKey
    from sparklog.sql.queryable_log import QueryableLog as Log
    from sparklog.sql.queryable_log import open_log

__all__ = [
    "Admin",
    "CommitKey",
    "Consumer",
    "Log",
    "PartitionLog",
    "Producer",
    "SparklogError",
    "Topic",
    "TopicPartition",
    "open_log",
    "reported_usage",
]

_PLACES = {
    "Admin": "sparklog.client.admin",
    "CommitKey": "sparklog.log.segment.segment",
    "Consumer": "sparklog.client.consumer",
    "Log": "sparklog.sql.queryable_log:QueryableLog",
    "PartitionLog": "sparklog.log.partition.partition_log",
    "Producer": "sparklog.client.producer",
    "SparklogError": "sparklog.core.errors",
    "Topic": "sparklog.cluster.metadata.image",
    "TopicPartition": "sparklog.core.types",
    "open_log": "sparklog.sql.queryable_log",
    "reported_usage": "sparklog.cluster.usage_reporter",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, inner_name = place.partition(":")
    found = getattr(importlib.import_module(module), inner_name or name)
    globals()[name] = found
    return found
