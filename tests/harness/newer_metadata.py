"""Records of another version in the metadata log."""

from __future__ import annotations

from sparklog.cluster.log import Log
from sparklog.cluster.metadata import records as codec
from sparklog.cluster.metadata.records import Record
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionLayout
from sparklog.log.partition.partition_log import PartitionLog
from tests.harness.log_records import batch


def stored(log: Log, values: list[bytes]) -> None:
    """Append metadata records without checks."""
    layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
    PartitionLog(log.store, layout).append([batch(values)])


def spelled(*records: Record) -> list[bytes]:
    """Return records in their stored form."""
    return [bytes(text) for text in codec.encode(records).column("value").to_pylist()]
