"""Makes a golden write-ahead log: `python -m tests.golden.wal.make FOLDER`. For a new format only.

`LOG` describes the contents. The bytes may differ from Arrow version to Arrow version, so they are
kept.
"""

from __future__ import annotations

import sys

from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, WalObject, encode
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
UNFORCED_WAL = WalLayout(5, "ffeeddccbbaa99887766554433221100")
UNFORCED_LOG = (
    WalObject(WalHeader(WalKind.REGISTRATION, 0, 0, "5" * 32, forced=False)),
    WalObject(
        WalHeader(WalKind.WINDOW, 1, 0, "6" * 32, forced=False),
        (WalBatch(TOPIC_ID, 0, 12, 7, b"not forced to a disk"),),
    ),
    WalObject(WalHeader(WalKind.SEAL, 2, 0, "7" * 32, forced=False)),
)


def make(folder: str) -> None:
    """Write an object of every kind."""
    store = FileStore(folder)
    for layout, log in ((WAL, LOG), (UNFORCED_WAL, UNFORCED_LOG)):
        for one in log:
            data = encode(layout, one.header, one.batches)
            key = layout.key(one.header.sequence)
            assert store.put_if_absent(key, data) is PutOutcome.CREATED


if __name__ == "__main__":
    make(sys.argv[1])
