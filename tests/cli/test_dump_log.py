from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cli.console.segment_dump import Depth, SegmentDump
from sparklog.cli.output import Output
from sparklog.cluster.log import Log, open_log
from sparklog.cluster.metadata.json_values import text_of
from sparklog.cluster.metadata.records import ClusterRecord
from sparklog.core.types import TimestampType
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.builder import build_records
from sparklog.log.segment.segment import CommitKey, ProducerBatch
from sparklog.security.sasl.credentials import ScramMechanism
from tests.cli.conftest import Cli

BATCH_FIELDS = [
    "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId",
    "producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl", "deleteHorizonMs",
    "position", "CreateTime", "size", "format", "compresscodec", "crc", "isvalid",
]  # fmt: skip
"""Those of DumpLogSegments, in its order, with `format` for `magic`."""


def records(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([v.encode() for v in values])})


@pytest.fixture
def partition(file_cli: Cli, log: Log) -> PartitionLog:
    file_cli.ok("topics", "--create", "--topic", "t")
    return log.partition("t", 0)


def test_every_batch_and_record_is_printed_with_kafkas_fields(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok(
        "produce", "--topic", "t", "--property", "parse.key=true", "--property",
        "parse.headers=true", "--property", "null.marker=N", stdin=b"a:1,b:2\tk\tvalue\nN\tN\tN\n",
    )  # fmt: skip
    dumping, start, segment, batch, first, second = cli.ok(
        "dump-log", "--topic", "t", "--print-data-log"
    ).lines
    assert re.fullmatch(r"Dumping topics/t~[^/]{22}/0/log/0{20}\.arrow", dumping)
    assert start == "Log starting offset: 0"
    assert "kind: data" in segment
    assert "commit: none" in segment
    assert re.findall(r"(\w+): ", batch) == BATCH_FIELDS
    assert batch.startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 ")
    assert batch.endswith("isvalid: true")
    assert re.fullmatch(
        r"\| offset: 0 CreateTime: \d{13} keySize: 1 valueSize: 5 sequence: -1 "
        r"headerKeys: \[a,b\] key: k payload: value",
        first,
    )
    assert re.fullmatch(
        r"\| offset: 1 CreateTime: \d{13} keySize: -1 valueSize: -1 sequence: -1 headerKeys: \[\]",
        second,
    )


def test_depth_decides_how_much_of_a_record_is_shown(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok("produce", "--topic", "t", stdin=b"value\n")
    dump = ("dump-log", "--topic", "t")
    assert not any(line.startswith("|") for line in cli.ok(*dump).lines)
    assert cli.ok(*dump, "--deep-iteration").lines[-1].endswith("headerKeys: []")
    bare = cli.ok(*dump, "--print-data-log", "--skip-record-metadata")
    assert bare.lines[-1] == "| payload: value"


def test_json_has_the_same_fields(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok("produce", "--topic", "t", stdin=b"value\n\xff\n")
    found = cli.ok("dump-log", "--topic", "t", "--print-data-log", "--json").documents
    assert [d["type"] for d in found] == ["object", "segment", "batch", "record", "record"]
    assert list(found[2]) == ["type", *BATCH_FIELDS]
    assert found[2]["isvalid"] is True
    assert [d["payload"] for d in found[3:]] == ["value", {"base64": "/w=="}]


def test_one_partition_can_be_chosen(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "2")
    lines = "".join(f"key{n}\tv\n" for n in range(20)).encode()
    cli.ok("produce", "--topic", "t", "--property", "parse.key=true", stdin=lines)
    both = cli.ok("dump-log", "--topic", "t").lines
    one = cli.ok("dump-log", "--topic", "t", "--partition", "1").lines
    assert sum(line.startswith("Dumping") for line in both) == 2
    assert [line.split("/")[2] for line in one if line.startswith("Dumping")] == ["1"]


def test_references_are_followed_to_the_offsets_they_give(
    file_cli: Cli, partition: PartitionLog
) -> None:
    partition.append([records("first")])
    staged = [partition.stage([records("a", "b")]), partition.stage([records("c")])]
    partition.append_staged(staged, key=CommitKey("query", 7))
    dump = ("dump-log", "--topic", "t", "--print-data-log")
    lines = file_cli.ok(*dump).lines
    (segment,) = [line for line in lines if "kind: reference" in line]
    assert "commit: query/7" in segment
    references = [line for line in lines if line.startswith("Reference ")]
    assert f"object: {staged[0].object} baseOffset: 1 lastOffset: 2 count: 2" in references[0]
    assert f"object: {staged[1].object} baseOffset: 3 lastOffset: 3 count: 1" in references[1]
    shown = [re.sub(r"CreateTime.*payload", "", line) for line in lines if line[0] == "|"]
    assert sorted(shown) == [
        "| offset: 0 : first", "| offset: 1 : a", "| offset: 2 : b", "| offset: 3 : c",
    ]  # fmt: skip

    partition.absorb_tail()
    again = file_cli.ok(*dump).lines
    assert again[0].endswith("/manifest/00000000000000000001.arrow")
    assert "Manifest version: 1 logStartOffset: 0 endOffset: 4 count: 3" in again[1]
    assert again[2].startswith("Writer writer: query sequence: 7 baseOffset: 1 lastOffset: 3")
    assert f"lastOffset: 2 count: 2 object: {staged[0].object} objectBase: 1" in again[4]
    assert again[6:] == lines


def test_unpublished_staged_objects_are_shown_from_zero(
    file_cli: Cli, partition: PartitionLog
) -> None:
    reference = partition.stage([records("x")])
    lines = file_cli.ok("dump-log", "--topic", "t", "--print-data-log").lines
    assert lines[0].endswith(reference.object)
    assert lines[1] == "Log starting offset: 0"


def test_the_registry_itself_can_be_dumped(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    lines = cli.ok("dump-log", "--topic", "__cluster_metadata", "--print-data-log").lines
    payloads = [json.loads(line.partition("payload: ")[2]) for line in lines if "payload" in line]
    assert [p["type"] for p in payloads] == ["TopicRecord", "PartitionRecord"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_dump_of_the_registry_hides_secrets(file_cli: Cli, options: tuple[str, ...]) -> None:
    secret = "0123456789abcdef" * 2
    with open_log(file_cli.root) as log:
        log.set_password("alice", "pw", [ScramMechanism.SHA_256])
        log._decide(lambda image: [ClusterRecord("id", secret)])
        credential = log.refresh().scram_credentials["alice"][ScramMechanism.SHA_256]
    dump = ("dump-log", "--topic", "__cluster_metadata", "--print-data-log", *options)
    text = file_cli.ok(*dump).text
    assert "alice" in text
    assert text.count("[hidden]") == 4
    for hidden in (credential.salt, credential.stored_key, credential.server_key):
        assert text_of(hidden) not in text
    assert secret not in text


def test_files_are_dumped_by_path_by_name_in_the_root_and_alone(
    file_cli: Cli, partition: PartitionLog, tmp_path: Path
) -> None:
    partition.append([records("a")])
    partition.append([records("b")])
    name = partition.layout.key(partition.layout.chain_name(1))
    path = Path(file_cli.root) / name
    dump = ("dump-log", "--print-data-log", "--files")
    by_path = file_cli.ok(*dump, str(path)).lines
    assert by_path[0] == f"Dumping {name}"
    assert by_path[-1].endswith("payload: b")
    assert file_cli.ok(*dump, name).lines == by_path
    alone = Path(shutil.copy(path, tmp_path / "copy.arrow"))
    assert file_cli.ok(*dump, str(alone)).lines[1:] == by_path[1:]
    assert file_cli.ok(*dump, f"file://{path}").lines == by_path
    first = partition.layout.key(partition.layout.chain_name(0))
    both = file_cli.ok(*dump, f"{first},{name}").lines
    assert both[-len(by_path) :] == by_path
    assert len(both) == 2 * len(by_path)


def test_a_manifest_is_dumped_as_a_file_too(file_cli: Cli, partition: PartitionLog) -> None:
    partition.append([records("a")])
    partition.absorb_tail()
    name = partition.layout.key(partition.layout.manifest_name(1))
    lines = file_cli.ok("dump-log", "--files", name).lines
    assert lines[1].startswith("Manifest version: 1 ")
    assert lines[2].startswith("| baseOffset: 0 lastOffset: 0 count: 1 object: log/")


def test_a_foreign_file_is_passed_over_by_name(
    file_cli: Cli, log: Log, partition: PartitionLog
) -> None:
    partition.append([records("a")])
    key = partition.layout.key("log/notes.txt")
    log.store.put(key, b"hello")
    outcome = file_cli.ok("dump-log", "--topic", "t")
    assert outcome.errors == f"Ignoring unknown file {key}\n"


@pytest.mark.parametrize("where", ["body", "metadata", "head"])
def test_damaged_bytes_are_named_and_the_rest_is_shown(
    file_cli: Cli, log: Log, partition: PartitionLog, where: str
) -> None:
    partition.append([records("first", "second")])
    partition.append([records("third")])
    layout = partition.layout
    key = layout.key(layout.chain_name(0))
    data = bytearray(log.store.get(key))
    stored = partition.view().tail[0].segment.batches[0].stored
    at = {
        "body": stored.position + stored.meta.length + stored.columns[-1].start,
        "metadata": stored.position + 9,
        "head": 20,
    }[where]
    data[at] ^= 0x10
    log.store.put(key, bytes(data))

    outcome = file_cli("dump-log", "--topic", "t", "--print-data-log")
    assert outcome.code == 1
    assert outcome.errors.startswith("error: stored bytes are damaged")
    assert key in outcome.errors
    assert outcome.lines[-1].endswith("payload: third")
    valid = [line.endswith("isvalid: true") for line in outcome.lines if "isvalid" in line]
    assert valid == [where == "head", True]
    assert any("payload: first" in line for line in outcome.lines) == (where == "head")


@pytest.mark.parametrize("damage", ["truncated", "footer", "empty"])
def test_dump_names_a_segment_without_footer_and_shows_the_rest(
    file_cli: Cli, log: Log, partition: PartitionLog, damage: str
) -> None:
    partition.append([records("first")])
    partition.append([records("second")])
    layout = partition.layout
    key = layout.key(layout.chain_name(0))
    data = log.store.get(key)
    log.store.put(
        key,
        {
            "truncated": data[:-20],
            "footer": data.replace(b'"rows":1', b'"rows":9'),
            "empty": b"",
        }[damage],
    )
    outcome = file_cli("dump-log", "--topic", "t", "--print-data-log")
    assert outcome.code == 1
    assert f"damaged={key}" in outcome.errors
    assert outcome.lines[-1].endswith("payload: second")
    assert key in file_cli.fails("dump-log", "--files", key)


def test_an_unreadable_manifest_is_named_and_the_one_before_is_shown(
    file_cli: Cli, log: Log, partition: PartitionLog
) -> None:
    partition.append([records("a")])
    partition.absorb_tail()
    partition.append([records("b")])
    partition.absorb_tail()
    key = partition.layout.key(partition.layout.manifest_name(2))
    log.store.put(key, log.store.get(key)[:-30])
    outcome = file_cli("dump-log", "--topic", "t")
    assert outcome.code == 1
    assert key in outcome.errors
    assert any(line.startswith("Manifest version: 1 ") for line in outcome.lines)


def test_missing_object_is_named(file_cli: Cli, partition: PartitionLog) -> None:
    partition.append([records("a")])
    assert "topic=x" in file_cli.fails("dump-log", "--topic", "x")
    assert "partition=1" in file_cli.fails("dump-log", "--topic", "t", "--partition", "1")
    assert "object=log/x.arrow" in file_cli.fails("dump-log", "--files", "log/x.arrow")
    assert "--partition needs --topic" in file_cli.misused(
        "dump-log", "--files", "x", "--partition", "0"
    )
    file_cli.misused("dump-log")


def test_idempotent_producers_and_their_sequences_are_shown(
    file_cli: Cli, log: Log, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """No writer here makes such segments without a broker, so one is drafted by hand."""
    layout = PartitionLayout("t", "A" * 22, 0)
    stamps = pa.array([1, 2, 3, 4], pa.timestamp("ms", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({"timestamp": stamps, "value": pa.array([b"v"] * 4)})
    draft = build_records(
        layout, [batch], "0" * 32, codec="none", timestamp_type=TimestampType.CREATE_TIME
    )
    produced = (ProducerBatch(9, 3, 40, 0, 2, 0x10), ProducerBatch(9, 3, 42, 2, 4, 0x10))
    draft = replace(draft, segment=replace(draft.segment, producers=produced))
    key = layout.key(layout.chain_name(100))
    log.store.put(key, draft.at(100))
    dump = SegmentDump(
        log.store, Output(sys.stdout.buffer, as_json=True), Depth(records=True, data=False)
    )
    dump.print(key, draft.placed(100), 100, 0)
    found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    producers = [d for d in found if d["type"] == "producer"]
    assert [(d["baseOffset"], d["lastOffset"], d["baseSequence"]) for d in producers] == [
        (100, 101, 40), (102, 103, 42),
    ]  # fmt: skip
    (shown,) = [d for d in found if d["type"] == "batch"]
    assert (shown["producerId"], shown["producerEpoch"]) == (9, 3)
    assert (shown["baseSequence"], shown["lastSequence"]) == (40, 43)
    assert shown["isTransactional"] is True
    assert [d["sequence"] for d in found if d["type"] == "record"] == [40, 41, 42, 43]


def test_objects_of_leaders_are_shown_with_fences_and_markers(cli: Cli) -> None:
    folder = (
        Path(__file__).parents[1] / "golden/log/v1/topics/golden-led~R29sZGVuTGVkUGFydGl0aQ/0/log"
    )
    names = [str(folder / f"{offset:020d}.arrow") for offset in (1, 2, 6)]
    lines = cli.ok("dump-log", "--files", ",".join(names)).lines
    mark, data, unled = (line for line in lines if line.startswith("Segment "))
    assert "kind: control" in mark
    assert "partitionLeaderEpoch: 1 isLed: true" in mark
    assert "kind: data" in data
    assert "partitionLeaderEpoch: 1 isLed: true" in data
    assert "partitionLeaderEpoch: 2 isLed: false" in unled
    assert "Marker offset: 5 CreateTime: 2003 endTxnMarker: ABORT coordinatorEpoch: 5" in lines
