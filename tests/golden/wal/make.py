"""Makes a golden write-ahead log: `python -m tests.golden.wal.make FOLDER`. For a new format only.

What is in it is told by `LOG`; the bytes may differ from Arrow version to Arrow version, which is
why they are kept.
"""

from __future__ import annotations

import sys

from sparklog.log.layout import WalLayout
from sparklog.log.wal_object import WalBatch, WalHeader, WalKind, WalObject, encode
from sparklog.store.base import PutOutcome
from sparklog.store.file import FileStore

WAL = WalLayout(5, "00112233445566778899aabbccddeeff")
TOPIC_ID = "U2dtpD-emRmHjZcvmkUdoQ"
LOG = (
    WalObject(WalHeader(WalKind.REGISTRATION, 0, 0, "0" * 32)),
    WalObject(
        WalHeader(WalKind.WINDOW, 1, 0, "1" * 32),
        (
            WalBatch(TOPIC_ID, 0, 0, 7, b"a batch is bytes here"),
            WalBatch(TOPIC_ID, 3, 2**40, 1, bytes(range(256))),
        ),
    ),
    WalObject(WalHeader(WalKind.WINDOW, 2, 1, "2" * 32)),
    WalObject(WalHeader(WalKind.SEAL, 3, 1, "3" * 32)),
    WalObject(WalHeader(WalKind.BARRIER, 4, 0, "4" * 32)),
)


def make(folder: str) -> None:
    """Write an object of every kind."""
    store = FileStore(folder)
    for one in LOG:
        data = encode(WAL, one.header, one.batches)
        assert store.put_if_absent(WAL.key(one.header.sequence), data) is PutOutcome.CREATED


if __name__ == "__main__":
    make(sys.argv[1])
