"""Record batches of magic 2 to Arrow and back: the public face of this room's codec.

    decode        the bytes of one batch -> header and rows
    encode        rows -> the bytes of one batch
    encode_many   rows -> as many batches as a size limit asks for
    Rows          rows, of which parts are made into batches one after the other

Rows and columns are as `arrow_records` says. numba loads at the first call, not at import.
"""

from sparklog.protocol.batch_decoder import DecodedBatch, decode
from sparklog.protocol.batch_encoder import PLAIN, BatchSettings, Rows, encode, encode_many
from sparklog.protocol.batch_header import BatchHeader, Codec

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
