"""sparklog: a distributed log on Spark and object storage that speaks Kafka's words.

log = sparklog.open_log("file:///data/log")
log.create_topic("flights", partitions=3)
log.partition("flights", 0).append([pyarrow.record_batch({"value": [b"hello"]})])

`query(log, "SELECT …")` is SQL over topics. `Admin`, `Producer` and `Consumer` reach the brokers
that serve a log. They are imported at their first use, so a log under a root needs no Kafka client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.metadata.image import Topic
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.segment import CommitKey

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.consumer import Consumer
    from sparklog.client.producer import Producer

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
    "query",
]

_MODULES = {
    "Admin": "sparklog.client.admin",
    "Consumer": "sparklog.client.consumer",
    "Producer": "sparklog.client.producer",
    "query": "sparklog.sql.query",
}


def __getattr__(name: str) -> Any:
    """Import a name that is not needed by everybody."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found
