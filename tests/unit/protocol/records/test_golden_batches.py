"""Batches written by Java's client, librdkafka and kafka-python decode to what went in."""

from __future__ import annotations

import json

import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.protocol.records.header import parse_header
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from tests.harness.golden_batches import FOLDER, data_of, describe, describe_batch, expected

EXPECTED = expected()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_batch_of_a_real_client_decodes_to_its_records(name: str) -> None:
    found = describe(data_of(name))
    assert len(found) == len(EXPECTED[name])
    for batch, wanted in zip(found, EXPECTED[name], strict=True):
        assert {field: batch[field] for field in wanted} == wanted


def test_every_golden_file_is_described() -> None:
    files = {path.stem for path in FOLDER.glob("*.bin")}
    assert files == set(EXPECTED) | {"magic-0", "magic-1"}


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_rejected_by_name(magic: int) -> None:
    with pytest.raises(
        DataCorrupt, match=rf"message set of magic {magic} refused.*Produce version 3"
    ):
        list(split_batches(data_of(f"magic-{magic}")))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_decoded_batch_encodes_to_the_clients_bytes(name: str) -> None:
    """Uncompressed bytes have one form; compressed ones decode to the same."""
    for one in split_batches(data_of(name)):
        header, batch = one.header, decode(one.data)
        settings = BatchSettings(
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            delete_horizon_ms=header.delete_horizon_ms,
        )
        again = encode(
            batch.records,
            settings,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
        )
        wanted = describe_batch(batch)
        found = describe_batch(decode(again))
        # Java stores record timestamps beside LogAppendTime, and a first timestamp in an empty
        # batch; Arrow rows have neither.
        free = {"size_bytes"} if header.codec else set()
        if header.timestamp_type or not header.record_count:
            free |= {"size_bytes", "base_timestamp", "max_timestamp"}
        if not free:
            assert again == bytes(one.data)
        assert {k: v for k, v in found.items() if k not in free} == {
            k: v for k, v in wanted.items() if k not in free
        }


def test_keys_hash_to_javas_partitions() -> None:
    vectors = json.loads((FOLDER / "murmur2.json").read_text())
    assert len(vectors) == 20
    for vector in vectors:
        key = bytes.fromhex(vector["key"])
        for partitions in (1, 3, 12, 1000):
            assert partition_for_key(key, partitions) == vector[f"of_{partitions}"]


def test_header_round_trips() -> None:
    for name in EXPECTED:
        data = data_of(name)
        header = parse_header(data)
        assert header.to_bytes() == data[:61]
