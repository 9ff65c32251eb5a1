"""sparklog: a distributed log on Spark and object storage that speaks Kafka's words.

log = sparklog.open_log("file:///data/log")
log.create_topic("flights", partitions=3)
log.partition("flights", 0).append([pyarrow.record_batch({"value": [b"hello"]})])
"""

from sparklog.cluster.image import Topic
from sparklog.cluster.open import Log, open_log
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.log.partition_log import PartitionLog
from sparklog.log.segment import CommitKey

__all__ = [
    "CommitKey",
    "Log",
    "PartitionLog",
    "SparklogError",
    "Topic",
    "TopicPartition",
    "open_log",
]
