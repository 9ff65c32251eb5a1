"""Loads what the first flush and the first fetch of history would otherwise wait for.

Compiled kernels and codecs are loaded when first used, which takes from half a second to seconds
on a busy machine: too long for the takeover of a dead leader's partitions.
"""

from __future__ import annotations

import pyarrow as pa

from sparklog.log.layout import PartitionLayout
from sparklog.log.wire_segment import draft_batches
from sparklog.protocol.batch_encoder import encode

_ROWS = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
_NOWHERE = PartitionLayout("warm-up", "A" * 22, 0)
_CODECS = ("lz4", "zstd", "none")


def warm_up() -> None:
    """Encode, decode and draft a record in every codec of segments."""
    batch = encode(_ROWS, base_offset=0)
    for codec in _CODECS:
        draft_batches(_NOWHERE, [batch], "0" * 32, codec=codec)
