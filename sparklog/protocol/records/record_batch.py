"""Record batches of magic 2 to Arrow and back: the public interface of the codec.

- `decode`: the bytes of one batch to header and rows.
- `encode`: rows to the bytes of one batch.
- `encode_many`: rows to as many batches as a size limit requires.
- `Rows`: rows, of which parts become batches one after the other.

`columns` defines rows and columns. numba loads at the first call, not at import.
"""

from sparklog.protocol.records.decoder import DecodedBatch, decode
from sparklog.protocol.records.encoder import PLAIN, BatchSettings, Rows, encode, encode_many
from sparklog.protocol.records.header import BatchHeader, Codec

__all__ = [
    "PLAIN",
    "BatchHeader",
    "BatchSettings",
    "Codec",
    "DecodedBatch",
    "Rows",
    "decode",
    "encode",
    "encode_many",
]
