"""Partitions of records, by the rule of every Kafka client.

The partition of a key is murmur2(key), its sign bit cleared, modulo the number of partitions. So a
key keeps its partition until partitions are added. Records without a key go to one partition that
the caller chooses for the whole call, as Kafka's sticky partitioner does for a batch (KIP-480).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, InvalidPartitions
from sparklog.protocol.partitioner.murmur2 import murmur2
from sparklog.protocol.records.columns import binary_view


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of one key, 0 to `partitions` - 1; needs no compiled code.

    Raises:
        InvalidPartitions: there are no partitions.
    """
    _check_partitions(partitions)
    return (murmur2(key, 0, len(key)) & 0x7FFFFFFF) % partitions


def partitions_for_keys(
    keys: pa.Array, partitions: int, *, sticky_partition: int
) -> npt.NDArray[np.int32]:
    """Return the partition of each key of a binary column, as int32 of the column's length.

    Args:
        keys: binary or string; may be a slice, may hold nulls.
        partitions: the topic's number of partitions.

        sticky_partition: for null keys; choose a new one for each call to spread them.

    Raises:
        InvalidPartitions: there are no partitions, or no such sticky one.
        InvalidRequest: the column does not hold bytes.
        DataCorrupt: the array's offsets are outside its data.
    """
    _check_partitions(partitions)
    if not 0 <= sticky_partition < partitions:
        raise InvalidPartitions(
            "the partition for records without a key does not exist; pick another. "
            f"sticky_partition={sticky_partition} partitions={partitions}"
        )
    from sparklog.protocol.partitioner import kernels  # noqa: PLC0415 - loads numba on first use

    view = binary_view(keys, len(keys), "key")
    out = np.empty(len(keys), np.int32)
    bad_row = kernels.assign_partitions(
        view.data, view.ends, view.valid, view.first_bit, partitions, sticky_partition, out
    )
    if bad_row >= 0:
        raise DataCorrupt(
            "Arrow array is malformed: its offsets lead outside its data; check the writer. "
            f"column=key row={bad_row}"
        )
    return out


def _check_partitions(partitions: int) -> None:
    if partitions < 1:
        raise InvalidPartitions(
            f"a topic has at least one partition; refresh its metadata. partitions={partitions}"
        )
