from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log
from sparklog.protocol.partitioner.partitioner import partition_for_key
from tests.cli.conftest import Cli

KEYS = [b"lx-abc", b"4b1814", struct.pack(">i", 7), struct.pack(">q", -1), b"\x00\xff"]


@pytest.fixture
def filled(file_cli: Cli, log: Log) -> Cli:
    log.create_topic("t", 3, {"sparklog.key.index": "bloom"})
    for turn in range(3):
        for key in KEYS:
            value = b"%d-%s" % (turn, key.hex().encode())
            rows = pa.RecordBatch.from_pydict(
                {"value": pa.array([value], pa.binary()), "key": pa.array([key], pa.binary())}
            )
            log.partition("t", partition_for_key(key, 3)).append([rows])
    return file_cli


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["lx-abc"], b"lx-abc"),
        (["6c782d616263", "--key-format", "hex"], b"lx-abc"),
        (["bHgtYWJj", "--key-format", "base64"], b"lx-abc"),
        (["7", "--key-format", "integer"], struct.pack(">i", 7)),
        (["-1", "--key-format", "long"], struct.pack(">q", -1)),
        (["00ff", "--key-format", "hex"], b"\x00\xff"),
    ],
)
def test_a_keys_records_are_found_where_producers_put_them(
    filled: Cli, words: list[str], key: bytes
) -> None:
    found = filled.ok("find", "--topic", "t", f"--key={words[0]}", *words[1:])
    assert found.lines == [f"{turn}-{key.hex()}" for turn in range(3)]
    assert f"t-{partition_for_key(key, 3)}: found 3 records" in found.errors
    newest = filled.ok("find", "--topic", "t", f"--key={words[0]}", *words[1:], "--latest")
    assert newest.lines == [f"2-{key.hex()}"]


def test_skipped_segments_and_requests_are_reported(filled: Cli) -> None:
    found = filled("find", "--topic", "t", "--key", "nobody has it", "--all-partitions")
    assert (found.code, found.output) == (0, b"")
    assert found.errors.count("found 0 records; read the keys of 0 of ") == 3
    assert "requests" in found.errors
    assert "--all-partitions" not in found.errors
    found = filled("find", "--topic", "t", "--key", "nobody has it")
    assert "--all-partitions looks in all" in found.errors


def test_records_are_printed_as_consume_prints_them(filled: Cli) -> None:
    words = ("find", "--topic", "t", "--key", "lx-abc", "--latest")
    shown = filled.ok(*words, "--formatter-property", "print.key=true")
    assert shown.lines == [f"lx-abc\t2-{b'lx-abc'.hex()}"]
    (document,) = filled.ok(*words, "--json").documents
    assert (document["topic"], document["key"]) == ("t", "lx-abc")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--key", "x", "--key-format", "hex"], "--key is no hex"),
        (["--key", "x", "--key-format", "long"], "--key is no long"),
        (["--key", "9999999999", "--key-format", "integer"], "--key is no integer"),
        (["--key", "x", "--all", "--latest"], "not allowed with"),
        (["--key", "x", "--partition", "0", "--all-partitions"], "not allowed with"),
    ],
)
def test_a_wrong_call_is_refused(filled: Cli, words: list[str], told: str) -> None:
    failed = filled("find", "--topic", "t", *words)
    assert failed.code == 2
    assert told in failed.errors


def test_missing_partition_is_reported(filled: Cli) -> None:
    failed = filled("find", "--topic", "t", "--key", "x", "--partition", "9")
    assert failed.code == 1
    assert "partition" in failed.errors
