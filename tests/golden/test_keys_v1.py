"""An index of keys that version 1 of the format wrote is understood the same for ever."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c

from sparklog.log.partition.partition_log import PartitionLog
from sparklog.store.file import FileStore
from tests.golden.log.make_keys import KEYED, KEYS

ROOT = Path(__file__).parent / "log" / "v1"


def test_keys_are_found_and_segments_skipped() -> None:
    log = PartitionLog(FileStore(ROOT), KEYED)
    view = log.view()
    assert [e.rows for e in view.entries if e.rows] == [6000, 2, 1]
    columns = ("offset", "value")
    found = log.find(b"key-7", columns, view=view)
    rows = [row for part in found.records for row in part.to_pylist()]
    assert rows == [{"offset": 6007, "value": b"7"}, {"offset": 12_002, "value": b"last"}]
    assert (found.out_of_bounds, found.filtered, found.searched) == (1, 0, 2)
    assert all(log.find(key, columns, view=view).rows for key in KEYS[::500])
    assert log.find(b"k" * 100, columns, view=view).rows == 1
    assert log.find(b"key-1x", columns, view=view).filtered == 1


def test_footer_alone_locates_the_filter() -> None:
    (path,) = ROOT.glob("topics/golden-keys~*/0/log/*-*.arrow")
    keys = json.loads(pa.ipc.open_file(path).metadata[b"sparklog.segment"])["keys"]
    assert base64.b64decode(keys["min"]) == b"key-0"
    assert base64.b64decode(keys["max"]) == b"key-999"
    data = path.read_bytes()[keys["at"] :][: keys["length"]]
    assert len(data) == keys["length"] == 32 * -(-6000 // 21)
    assert keys["crcs"] == [crc32c(data)]


def test_plain_pyarrow_reads_past_the_filter() -> None:
    (path,) = ROOT.glob("topics/golden-keys~*/0/log/*-*.arrow")
    assert pa.ipc.open_file(path).read_all()["key"].to_pylist() == KEYS


@pytest.mark.parametrize("key", [b"", b"a", b"zzz"])
def test_key_bounds_exclude_keys_outside(key: bytes) -> None:
    found = PartitionLog(FileStore(ROOT), KEYED).find(key)
    assert (found.rows, found.out_of_bounds, found.searched) == (0, 2, 1)
