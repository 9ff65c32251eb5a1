"""Version 1 of the log's format decodes for ever: with sparklog, and without it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from crc32c import crc32c

from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import SnapshotReader, read_snapshot
from sparklog.log.segment.segment import CommitKey
from sparklog.store.file import FileStore

ROOT = Path(__file__).parent / "log" / "v1"
CODECS = ("uncompressed", "lz4", "zstd")
VALUES = [None, b"", b"fourth", b"fifth", b"sixth", b"7", b"8", b"ninth"]
"""Of offsets 1 to 8; offset 0 was deleted."""


@pytest.mark.parametrize("codec", CODECS)
def test_the_golden_log_reads_as_it_was_written(codec: str) -> None:
    with Log(FileStore(ROOT)) as log:
        assert sorted(log.topics()) == sorted(f"golden-{c}" for c in CODECS)
        topic = log.topic(f"golden-{codec}")
        expected = {"compression.type": codec, "retention.ms": "-1"}
        if codec == "lz4":
            del expected["retention.ms"]
        assert topic.configs == expected
        assert topic.partitions == 2
        assert log.partition(topic.name, 0).view().end_offset == 0
        partition = log.partition(topic.name, 1)
        view = partition.view()
        assert (view.log_start_offset, view.end_offset) == (1, 9)
        state = view.committed(CommitKey("query", 4))
        assert state is not None
        assert (state.base_offset, state.end_offset) == (5, 8)
        table = pa.Table.from_batches(partition.read(1, 9))
    assert table["offset"].to_pylist() == list(range(1, 9))
    assert table["value"].to_pylist() == VALUES
    assert table["key"].to_pylist() == [None, None, b"k4", None, None, None, None, None]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[2:4] == [
        1_600_000_000_000,
        1_500_000_000_000,
    ]
    headers = table["headers"].to_pylist()
    assert headers[2] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert headers.count(None) == 7


def test_a_golden_snapshot_reads_as_it_was_made() -> None:
    with Log(FileStore(ROOT)) as log, ThreadPoolExecutor(2) as pool:
        snapshot = read_snapshot(log.store, "golden")
        assert snapshot.timestamp_ms > 1_700_000_000_000
        ranges = [(p.partition, p.log_start_offset, p.end_offset) for p in snapshot.partitions]
        assert ranges == [(0, 0, 0), (1, 1, 9)]
        reader = SnapshotReader(log.store, snapshot, pool)
        table = pa.Table.from_batches(reader.read("golden-lz4", 1))
    assert table["offset"].to_pylist() == list(range(1, 9))
    assert table["value"].to_pylist() == VALUES


def chain(codec: str) -> list[Path]:
    """Follow the chain by FORMAT.md, with nothing but names and footers."""
    (folder,) = ROOT.glob(f"topics/golden-{codec}~*/1")
    found: list[Path] = []
    offset = 0
    while (path := folder / "log" / f"{offset:020d}.arrow").exists():
        with pa.ipc.open_file(path) as file:
            text = file.metadata[b"sparklog.segment"]
            assert int(file.metadata[b"sparklog.crc32c"]) == crc32c(text)
        segment = json.loads(text)
        if segment["kind"] == "reference":
            found += [folder / entry["object"] for entry in segment["references"]]
        else:
            found.append(path)
        offset = segment["end_offset"]
    assert offset == 9
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_plain_pyarrow_reads_the_chain(codec: str) -> None:
    values = [v for p in chain(codec) for v in pa.ipc.open_file(p).read_all()["value"].to_pylist()]
    assert values == [b"first", *VALUES]


@pytest.mark.parametrize("codec", CODECS)
def test_polars_reads_the_chain(codec: str) -> None:
    values = [v for path in chain(codec) for v in pl.read_ipc(path)["value"].to_list()]
    assert values == [b"first", *VALUES]


@pytest.mark.parametrize("codec", CODECS)
def test_duckdb_queries_the_chain_over_arrow(codec: str) -> None:
    tables = [pa.ipc.open_file(path).read_all().select(["value"]) for path in chain(codec)]
    log = pa.concat_tables(tables)
    with duckdb.connect() as database:
        database.register("log", log)
        query = "SELECT count(*), count(value), sum(octet_length(value)) FROM log"
        assert database.execute(query).fetchone() == (9, 8, 28)


@pytest.mark.parametrize("codec", CODECS)
def test_index_locates_the_bytes_of_each_column(codec: str) -> None:
    for path in chain(codec):
        data = path.read_bytes()
        segment = json.loads(pa.ipc.open_file(path).metadata[b"sparklog.segment"])
        length, crc = segment["head"]
        assert crc32c(data[:length]) == crc
        index = segment["batches"]
        for i, at in enumerate(index["at"]):
            length, crc = index["meta"][i]
            assert crc32c(data[at : at + length]) == crc
            for spans in index["columns"].values():
                start, size, crc = spans[i]
                body = at + length + start
                assert crc32c(data[body : body + size]) == crc
