"""SourceRecord: records of one partition, as the sources that are followed yield them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparklog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Some records of one partition."""

    topic_partition: TopicPartition
    batch: pa.RecordBatch
